"""What a result says about the variants of one model: a line each, and sentences for the verdict.

Starts from the result document alone; :mod:`harness.variants` made its ``parity`` entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.naming import provider_name
from harness.parity import DIFFERS, EQUIVALENT, SAME
from harness.provenance import on_one_machine
from harness.render.format import number, score, signed
from harness.results import CellResult, ResultDocument

__all__ = ["Variant", "agreement_sentences", "variants"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One ``parity`` entry with the times of its cells; those of a reranker count the whole query.

    Attributes:
        entry: as :mod:`harness.variants` describes it.
        name: ``minilm?dtype=int8 (cpu, int8)``.
        reference: the name of what it was compared with; empty for the reference itself.
        docs_per_s, p50_s: its own.
        docs_ratio, p50_ratio: its own divided by the reference's; None without both.
    """

    entry: Mapping[str, Any]
    name: str
    reference: str
    docs_per_s: float | None
    p50_s: float | None
    docs_ratio: float | None
    p50_ratio: float | None

    @property
    def verdict(self) -> str:
        """``reference``, ``same``, ``equivalent``, ``differs`` or ``not compared``."""
        return str(self.entry["verdict"])

    @property
    def reason(self) -> str:
        """Why it differs or was not compared."""
        return str(self.entry.get("reason") or "")

    def figure(self, name: str) -> float | None:
        """A measure of the agreement; None where there was no comparison."""
        found = self.entry.get(name)
        return float(found) if found is not None else None


def variants(document: ResultDocument, kind: str = "embedder") -> list[Variant]:
    """The ``parity`` entries of ``kind``, in their order: every model's reference first."""
    out = []
    for entry in document.parity:
        if entry.get("kind") != kind:
            continue
        base = entry.get("reference")
        find = _cell if kind == "embedder" else _reranked
        own, other = find(document, entry), find(document, base) if base else None
        beside = other if own and other and on_one_machine(document, own, other) else None
        # a reranker has no documents to embed: those of its cell are the embedder's
        docs, p50 = _speed(own, "docs_per_s") if kind == "embedder" else None, _speed(own, "p50_s")
        out.append(
            Variant(
                entry,
                _name(entry),
                _name(base) if base else "",
                docs,
                p50,
                _ratio(docs, _speed(beside, "docs_per_s")),
                _ratio(p50, _speed(beside, "p50_s")),
            )
        )
    return out


def _name(entry: Mapping[str, Any]) -> str:
    return f"{provider_name(entry['provider'])} ({entry['target']}, {entry['dtype']})"


def _cell(document: ResultDocument, entry: Mapping[str, Any]) -> CellResult | None:
    """The provider's vector cell, or its first measured one."""
    place = (entry.get("provider"), entry.get("target"))
    cells = [c for c in document.cells if c.status == "ok" and (c.key.provider, c.key.target) == place]
    return min(cells, key=lambda cell: cell.key.pipeline != "vector", default=None)


def _reranked(document: ResultDocument, entry: Mapping[str, Any]) -> CellResult | None:
    """The first measured cell of a reranker."""
    wanted = entry.get("provider")
    return next((c for c in document.cells if c.status == "ok" and c.key.reranker == wanted), None)


def _speed(cell: CellResult | None, name: str) -> float | None:
    return cell.speed.get(name) if cell else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def agreement_sentences(document: ResultDocument) -> list[str]:
    """One sentence per model that ran in several ways, one per variant that differs or was not compared."""
    return [s for kind in ("embedder", "reranker") for s in _sentences(variants(document, kind))]


def _sentences(found: Sequence[Variant]) -> list[str]:
    out = []
    for reference in (v for v in found if not v.reference):
        members = [v for v in found if v.reference == reference.name]
        if members:
            out.append(_group_sentence(reference, members))
        for variant in (reference, *members):
            if variant.verdict == DIFFERS:
                out.append(f"{variant.name} is not recommended: {variant.reason.rstrip('.')}.")
            elif variant.reason:
                out.append(f"{variant.name} was not compared: {variant.reason.rstrip('.')}.")
    return out


def _group_sentence(reference: Variant, members: Sequence[Variant]) -> str:
    head = f"Compared with {reference.name}"
    if not reference.entry.get("fp32_reference"):
        head += ", for want of an fp32 reference"
    return f"{head}: {'; '.join(_parts(members))}."


def _parts(members: Iterable[Variant]) -> Iterable[str]:
    for variant in members:
        said = f"{variant.name} {_WORDS.get(variant.verdict, variant.verdict)}"
        what = "scores" if variant.entry.get("kind") == "reranker" else "vectors"
        said = said.replace("vectors", what)
        measure = "cosine" if what == "vectors" else "rank correlation"
        least = variant.figure("min_cosine" if what == "vectors" else "min_correlation")
        overlap = variant.figure("overlap_at_10")
        gap = variant.entry.get("difference")
        if least is not None:
            # cut, not rounded: a least value must not read as more than it is
            said += (
                f" ({measure} at least {math.floor(least * 1e4) / 1e4:.4f}, top-10 overlap {score(overlap)}"
            )
            said += f", nDCG@10 {signed(gap['mean'])})" if gap else ")"
        # the speed of what differs is no argument for it
        if variant.verdict in (SAME, EQUIVALENT) and variant.docs_ratio is not None:
            said += f" at {number(variant.docs_ratio)} × the documents a second"
        elif variant.verdict in (SAME, EQUIVALENT) and variant.p50_ratio is not None:
            said += f" in {number(variant.p50_ratio)} × the time of a query"
        yield said


_WORDS = {
    SAME: "gives the same vectors",
    EQUIVALENT: "gives other vectors but equivalent results",
    DIFFERS: "differs",
    "not compared": "was not compared",
}

"""What prompts are worth and what texts lost, in sentences made from the result document alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.differences import mean_of
from harness.label_health import judged_gap
from harness.naming import provider_name
from harness.render.format import corrected_p, share, signed
from harness.results import ResultDocument
from harness.rows import Difference, Row, paired
from harness.thresholds import thresholds

__all__ = ["PrefixFinding", "audit_sentences", "audited", "prefix_findings"]

#: Share of the documents that is cut from which on the verdict says so.
MUCH_CUT = 0.1


def audited(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Each provider once, by its short name, with the first of its rows that tells of its texts."""
    seen: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row.cell.audit:
            key = row.cell.key
            seen.setdefault((key.provider, key.target, key.dtype), row)
    return [(provider_name(provider, target), row) for (provider, target, _), row in seen.items()]


@dataclass(frozen=True, slots=True)
class PrefixFinding:
    """A provider with its prompts against itself without.

    Attributes:
        name: of the provider.
        change: what was changed: ``without prefixes`` or ``queries sent as documents``.
        reason: why it was not measured; empty where it was.
        before, after: means of nDCG@10 with and without.
        versus: without minus with, corrected for the providers compared; None where it was not measured.
    """

    name: str
    change: str
    reason: str
    before: float | None
    after: float | None
    versus: Difference | None

    def sentence(self) -> str:
        """One plain sentence, figures included."""
        if self.versus is None:
            return f"{self.name} {self.change}: not measured: {self.reason.rstrip('.')}."
        found = self.versus
        figures = f"{signed(found.mean)} nDCG@10 ({signed(found.low)} to {signed(found.high)})"
        said = "cannot be told from itself as it is sent"
        if found.sure:
            said = "loses" if found.mean < 0 else "gains"
            figures = f"{figures[1:]}, {corrected_p(found.adjusted)}"
            return f"{self.name} {self.change} {said} {figures}."
        return f"{self.name} {self.change} {said}: {figures}."


def prefix_findings(document: ResultDocument, rows: Sequence[Row]) -> list[PrefixFinding]:
    """Every provider whose prompts were compared, in the order of the rows."""
    seen: dict[tuple[str, str, str], tuple[str, Mapping[str, Any]]] = {}
    for row in rows:
        found = (row.cell.audit or {}).get("prefixes")
        if found:
            key = row.cell.key
            name = provider_name(key.provider, key.target)
            seen.setdefault((key.provider, key.target, key.dtype), (name, found))
    pairs = [(found["without"], found["with"]) for _, found in seen.values()]
    gaps = paired(pairs, document.seed)
    return [
        PrefixFinding(
            name, found["change"], found["reason"], mean_of(found["with"]), mean_of(found["without"]), gap
        )
        for (name, found), gap in zip(seen.values(), gaps)
    ]


def audit_sentences(document: ResultDocument, rows: Sequence[Row]) -> list[str]:
    """What the verdict says: prompts that matter, many texts cut, labels that favour, rerankers that sort
    answers from the rest."""
    out = [one.sentence() for one in prefix_findings(document, rows) if one.versus and one.versus.sure]
    for name, row in audited(rows):
        audit = row.cell.audit or {}
        found = audit["documents"]
        if found["n"] and found["cut"] >= MUCH_CUT * found["n"]:
            about = "about " if audit["estimated"] else ""
            out.append(
                f"{name} reads only the first {audit['window']} tokens of "
                f"{about}{share(found['cut'] / found['n'])} of the documents: "
                f"{share(found['lost'] / found['tokens'])} of all tokens are lost."
            )
    gap = judged_gap(document, rows)
    if gap:
        out.append(gap.sentence())
    for row in rows:
        found_at = thresholds(row.cell, document.seed) if row.ok and row.cell.key.reranker != "-" else None
        if found_at and found_at.best and found_at.separates and not row.cell.key.pipeline.endswith("+rrf"):
            out.append(
                f"{row.label}: a score threshold of {found_at.best.threshold:.4g} separates answers from the "
                f"rest: {found_at.reason}."
            )
    return out

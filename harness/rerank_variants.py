"""Which rerankers of a run are one model run in several ways, and whether their scores agree.

Reads the pool files beside the run files, ``<cell>.pool.json``: the first fused documents of each query
(``queries[id]["doc_ids"]``) with the reranker's raw scores (``["scores"]``, null where it failed). The
entries are those of :mod:`harness.variants` with ``kind`` ``reranker`` and the fields of
:class:`harness.parity.RerankAgreement`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.parity import rerank_agreement
from harness.results import CellResult, ResultDocument, file_name
from harness.variants import COARSEST, METRIC, NOT_COMPARED, PRECISION, REFERENCE, UNTOLD

__all__ = ["compare_rerankers"]

#: ``name:model@target#revision?settings``, as rerankers name themselves.
FINGERPRINT = re.compile(r"^[^:]*:(?P<model>[^#]+)@(?P<target>[^@#]+)#[^?]*\??(?P<settings>.*)$")
#: Settings that do not ask for other scores; rerankers that differ in any other are no variants.
HOW_NOT_WHAT = ("dtype", "batching", "engine", "threads", "batch_size")
DTYPE = re.compile(r"[?&]dtype=([A-Za-z0-9]+)")


#: Provider, target, store and pipeline of a cell: rerankers are compared on the pools of one place.
Place = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Reranker:
    position: int
    spec: str
    model: str
    asked: tuple[str, ...]
    target: str
    dtype: str
    cells: Mapping[Place, CellResult]

    @property
    def identity(self) -> dict[str, str]:
        return {"provider": self.spec, "target": self.target, "dtype": self.dtype}

    @property
    def rank(self) -> tuple[int, bool, int]:
        """The lowest of a model is its reference."""
        return PRECISION.get(self.dtype, COARSEST), self.target != "cpu", self.position


def compare_rerankers(document: ResultDocument, runs: Path) -> list[dict[str, Any]]:
    """One entry per reranker whose model another one of the run shares, each model's reference first.

    Args:
        document: the run with its cells.
        runs: folder of the pool files.
    """
    groups: dict[tuple[str, ...], list[_Reranker]] = {}
    for reranker in sorted(_rerankers(document), key=lambda r: r.rank):
        groups.setdefault((reranker.model, *reranker.asked), []).append(reranker)
    entries = []
    for reference, *others in groups.values():
        if others:
            entries.append(_entry(reference, None, verdict=REFERENCE, reason=""))
        entries += [_compared(reference, other, runs, document) for other in others]
    return entries


def _rerankers(document: ResultDocument) -> list[_Reranker]:
    found: dict[str, list[CellResult]] = {}
    for cell in document.cells:
        if cell.status == "ok" and FINGERPRINT.match(_fingerprint(cell)) and cell.key.reranker != "-":
            found.setdefault(cell.key.reranker, []).append(cell)
    out: list[_Reranker] = []
    for spec, cells in found.items():
        fingerprint = _fingerprint(cells[0])
        parts = FINGERPRINT.match(fingerprint)
        assert parts is not None  # only such cells were taken
        told = DTYPE.search(fingerprint) or DTYPE.search(spec)
        by_place = {(c.key.provider, c.key.target, c.key.store, c.key.pipeline): c for c in cells}
        dtype = told.group(1) if told else UNTOLD
        settings = parts["settings"].split("&")
        asked = tuple(s for s in settings if s.partition("=")[0] not in HOW_NOT_WHAT)
        out.append(_Reranker(len(out), spec, parts["model"], asked, parts["target"], dtype, by_place))
    return out


def _fingerprint(cell: CellResult) -> str:
    return str(cell.settings.get("reranker") or "")


def _compared(reference: _Reranker, other: _Reranker, runs: Path, document: ResultDocument) -> dict[str, Any]:
    """Compare the two on the first pools that both scored."""
    for place, theirs in reference.cells.items():
        ours = other.cells.get(place)
        if ours is None:
            continue
        pairs = _shared(_pools(runs, theirs), _pools(runs, ours))
        if not pairs:
            continue
        base, values = (c.metrics[METRIC].per_query if METRIC in c.metrics else [] for c in (theirs, ours))
        found = rerank_agreement(
            [a for a, _ in pairs],
            [b for _, b in pairs],
            dtype=other.dtype,
            reference_values=base,
            values=values,
            seed=document.seed,
        )
        return _entry(other, reference, **found.as_dict())
    return _entry(other, reference, verdict=NOT_COMPARED, reason="no pool was scored by both")


def _pools(runs: Path, cell: CellResult) -> Mapping[str, Any]:
    try:
        text = (runs / f"{file_name(cell.key)}.pool.json").read_text(encoding="utf-8")
        return dict(json.loads(text)["queries"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _shared(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """The scores of the queries whose pool both scored."""
    out: list[tuple[Sequence[float], Sequence[float]]] = []
    for query_id, pool in a.items():
        other = b.get(query_id)
        if not other or pool["doc_ids"] != other["doc_ids"] or not (pool["scores"] and other["scores"]):
            continue
        out.append((_scores(pool), _scores(other)))
    return out


def _scores(pool: Mapping[str, Any]) -> list[float]:
    """Plain numbers: null stands for not-a-number, an infinity for itself by name."""
    return [float("nan") if score is None else float(score) for score in pool["scores"]]


def _entry(
    reranker: _Reranker, reference: _Reranker | None, *, verdict: str, reason: str, **measured: Any
) -> dict[str, Any]:
    return {
        "kind": "reranker",
        **reranker.identity,
        "model": reranker.model,
        "reference": reference.identity if reference else None,
        "fp32_reference": (reference or reranker).dtype == "fp32",
        **measured,
        "verdict": verdict,
        "reason": reason,
    }

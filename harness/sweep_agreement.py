"""Which variant the others are held against, and how far each point's vectors are from its."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.datasets import Dataset
from harness.judged_rows import JudgedRows, number_documents
from harness.judging import judge_arrays
from harness.metrics import evaluated_queries
from harness.parity import DIFFERS, agree
from harness.sweep_plan import WHOLE_CORPUS, SweepSpec, chosen_documents
from harness.sweep_result import VariantResult
from harness.sweep_worker import QUERY_FILE, REFERENCE, chosen_queries, point_file

__all__ = ["judge_points", "reference_of", "vector_folder"]

Vectors = NDArray[np.float32]
METRIC = "ndcg@10"
#: Documents whose vectors stand in for queries where a data set has none.
STAND_INS = 20


def vector_folder(out: Path, variant: VariantResult) -> Path:
    """Where the vectors of ``variant`` are kept until everything is judged."""
    import hashlib

    return out / ".vectors" / hashlib.sha256(variant.label.encode()).hexdigest()[:16]


def reference_of(variant: VariantResult, variants: Sequence[VariantResult], out: Path) -> VariantResult:
    """The fp32 variant of the same model, one on the CPU before others; ``variant`` itself without one."""
    able = [
        other
        for other in variants
        if other.group == variant.group
        and other.dtype == "fp32"
        and (vector_folder(out, other) / REFERENCE).exists()
    ]
    return min(able, key=lambda other: other.target != "cpu", default=variant)


def judge_points(
    variant: VariantResult, reference: VariantResult, dataset: Dataset, sweep: SweepSpec, out: Path
) -> None:
    """Fill in the agreement of every point of ``variant`` whose vectors are at hand."""
    mine, theirs = vector_folder(out, variant), vector_folder(out, reference)
    measured = [p for p in variant.points if p.status == "ok" and (mine / point_file(p.batch_size)).exists()]
    if not measured or not (theirs / REFERENCE).exists():
        return
    documents, _ = chosen_documents(dataset, sweep)
    queries = [query.query_id for query in chosen_queries(dataset, sweep)]
    judge = _Judge([d.doc_id for d in documents], queries, dataset)
    base = np.load(theirs / REFERENCE)
    base_queries, my_queries = np.load(theirs / QUERY_FILE), np.load(mine / QUERY_FILE)
    before = judge.values(base, base_queries)
    for point in measured:
        vectors = np.load(mine / point_file(point.batch_size))
        point.agreement = {
            "reference": reference.label,
            "itself": reference is variant,
            **_agreement(variant, base, vectors, base_queries, my_queries, before, judge, sweep),
        }


def _agreement(
    variant: VariantResult,
    base: Vectors,
    vectors: Vectors,
    base_queries: Vectors,
    queries: Vectors,
    before: list[float],
    judge: _Judge,
    sweep: SweepSpec,
) -> dict[str, Any]:
    if base.shape != vectors.shape or base_queries.shape != queries.shape:
        widths = f"vectors are {vectors.shape[1]} wide, those of the reference {base.shape[1]}"
        return {"verdict": DIFFERS, "reason": widths}
    if not np.isfinite(vectors).all() or not np.isfinite(queries).all():
        return {"verdict": DIFFERS, "reason": "a vector holds a value that is not a number"}
    after = judge.values(vectors, queries)
    if not len(base_queries):
        base_queries, queries = base[:STAND_INS], vectors[:STAND_INS]
    found = agree(
        variant.dtype,
        base,
        vectors,
        base_queries,
        queries,
        reference_values=before,
        values=after,
        seed=sweep.seed,
    )
    return found.as_dict()


class _Judge:
    """nDCG@10 of exact search over a small corpus; no values where only part of the corpus is at hand."""

    def __init__(self, doc_ids: Sequence[str], query_ids: Sequence[str], dataset: Dataset) -> None:
        number = number_documents(doc_ids)
        self._numbers = np.array([number[doc_id] for doc_id in doc_ids], np.int32)
        row_of = {query_id: row for row, query_id in enumerate(query_ids)}
        evaluated = [q for q in evaluated_queries(dataset.relevance) if q in row_of]
        self._rows = np.array([row_of[query_id] for query_id in evaluated], np.int64)
        self._judged = JudgedRows.from_grades(dataset.relevance, evaluated, number)
        stored = sum(not document.is_empty for document in dataset.documents)
        self._whole = stored == len(doc_ids) and stored <= WHOLE_CORPUS and bool(query_ids)

    def values(self, documents: Vectors, queries: Vectors) -> list[float]:
        """One value per judged query, in the order of their ids."""
        if not self._whole or not np.isfinite(scores := queries @ documents.T).all():
            return []
        everywhere = np.broadcast_to(self._numbers, (len(self._rows), len(self._numbers)))
        found = judge_arrays(everywhere, self._judged, [METRIC], scores[self._rows])[METRIC]
        return [float(value) for value in found]

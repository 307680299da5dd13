"""A run against the judgements: values per query, their means, and who was counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.datasets import Dataset
from harness.judged_rows import JudgedRows, ranks_of
from harness.metrics import Floats, Grades, Metric, compute, evaluate, evaluated_queries
from rag_core.types import Run

__all__ = ["Judgement", "judge", "judge_arrays"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What :func:`judge` found.

    Attributes:
        name: the run's.
        query_ids: the evaluated queries, sorted: those with a relevant document.
        values: metric name → (len(query_ids),) float64; failed and missing queries are 0.
        means: metric name → mean; None where no query could be evaluated.
        counts: ``n_queries`` (of the data set), ``n_answered`` (with a ranking, empty or not),
            ``n_empty_answers``, ``n_failed``, ``n_missing`` (neither answered nor failed),
            ``n_without_relevant`` (not evaluated) and ``n_evaluated``.
        all_failed: no query was answered although some were tried: not a measurement.
    """

    name: str
    query_ids: tuple[str, ...]
    values: Mapping[str, Floats]
    means: Mapping[str, float | None]
    counts: Mapping[str, int]
    all_failed: bool


def judge(run: Run, data: Dataset | Grades, metrics: Iterable[Metric | str]) -> Judgement:
    """Judge ``run`` with ``metrics``.

    Args:
        run: rankings and failures; a query that has both counts as failed.
        data: a data set, or query id → document id → grade. Without a data set the queries are those
            judged, answered or failed.
        metrics: metrics or their names.
    """
    if isinstance(data, Dataset):
        relevance: Grades = data.relevance
        queries = {query.query_id for query in data.queries}
    else:
        relevance = data
        queries = {*data, *run.rankings, *run.failed}
    answered = {q: ranking for q, ranking in run.rankings.items() if q in queries and q not in run.failed}
    values = evaluate(answered, relevance, metrics)
    query_ids = evaluated_queries(relevance)
    failed = sum(query_id in queries for query_id in run.failed)
    return Judgement(
        name=run.name,
        query_ids=query_ids,
        values=values,
        means={name: float(np.mean(found)) if len(found) else None for name, found in values.items()},
        counts={
            "n_queries": len(queries),
            "n_answered": len(answered),
            "n_empty_answers": sum(not len(ranking) for ranking in answered.values()),
            "n_failed": failed,
            "n_missing": len(queries) - len(answered) - failed,
            "n_without_relevant": len(queries) - len(query_ids),
            "n_evaluated": len(query_ids),
        },
        all_failed=failed > 0 and not answered,
    )


def judge_arrays(
    doc_ids: ArrayLike,
    judged: JudgedRows,
    metrics: Iterable[Metric | str],
    scores: ArrayLike | None = None,
) -> dict[str, Floats]:
    """Values of ``metrics`` from document numbers, to the last bit those of :func:`judge`.

    Nothing is sorted or looked up by name: each relevant document is sought in its row.

    Args:
        doc_ids: (n, k) integers, best first, each document once in its row (a relevant one that stands
            twice is refused, others are not looked for); negative at the end of a row that is shorter.
        judged: the relevant documents of the same n queries; made once for any number of runs.
        metrics: metrics or their names.
        scores: (n, k) numbers, if ``doc_ids`` are in no order: ranked by falling score, of equal scores
            the higher number first. With numbers of :func:`.judged_rows.number_documents` that is
            trec_eval's rule. Float32 and float64 are compared as they are. A negative document may then
            stand anywhere, whatever its score.

    Returns:
        Metric name → (n,) float64; NaN for a query without a relevant document, which has no value.

    Raises:
        InvalidArgumentError: shapes or types that do not fit, a NaN score, or a document twice.
        UnknownNameError: unknown metric.
    """
    ranks = ranks_of(doc_ids, judged, scores)
    with np.errstate(invalid="ignore"):
        values = compute(ranks, metrics)
    return {name: np.where(judged.evaluated, found, np.nan) for name, found in values.items()}

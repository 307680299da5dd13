"""A run against the judgements: values per query, their means, and who was counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.datasets import Dataset
from harness.metrics import Floats, Grades, Metric, evaluate, evaluated_queries
from rag_core.types import Run

__all__ = ["Judgement", "judge"]


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

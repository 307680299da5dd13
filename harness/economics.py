"""What a reranker does with a frozen pool, computed from its raw scores and the judgements alone.

A pool is a query's first ``candidate_pool`` fused documents. A reranker scores a pair of query and document
whatever else stands in the pool, so one score per pair gives the order at every depth. Documents beyond the
depth follow in fused order, as in the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.metrics import Grades, evaluate, evaluated_queries
from harness.timing import LEAST_FOR_P95, percentile
from rag_core.reranking import interpolate, reorder
from rag_core.types import Ranking

__all__ = [
    "DEPTHS",
    "MAIN",
    "METRICS",
    "TOP",
    "Pool",
    "ceiling",
    "depths_of",
    "economics",
    "fates",
    "points_per_ms",
    "quality",
    "share_of_p95",
]

METRICS = ("precision@5", "recall@5", "ndcg@10", "mrr@10")
MAIN = "ndcg@10"
#: Ranks within which a relevant document counts as found: those that :data:`MAIN` looks at.
TOP = 10
DEPTHS = (10, 20, 30, 50, 100)


@dataclass(frozen=True, slots=True)
class Pool:
    """One query's candidates with what the reranker said of them.

    Attributes:
        fused: the whole fused list; its first ``len(scores)`` documents are the pool.
        scores: raw scores of the pool in fused order, NaN included; None where the reranker failed.
        size: documents in the pool.
    """

    fused: Ranking
    scores: tuple[float, ...] | None
    size: int

    def order(self, depth: int, mix: str = "scores", rrf_k: float = 60.0) -> tuple[str, ...]:
        """All fused ids, the first ``depth`` (at most the pool's) reranked; nothing where that failed."""
        if self.scores is None:
            return ()
        depth = min(depth, self.size)
        if depth == 0:
            return self.fused.doc_ids
        head = self.fused.top(depth)
        ranking = reorder(head, self.scores[:depth]).ranking
        if mix == "ranks":
            ranking = interpolate(head, ranking, k=rrf_k)
        return (*ranking.doc_ids, *self.fused.doc_ids[depth:])


def quality(
    lists: Mapping[str, Sequence[str]], relevance: Grades, metrics: Iterable[str] = METRICS
) -> dict[str, list[float]]:
    """Metric name → value per judged query, sorted by query id; 0 for a query without a list."""
    return {name: values.tolist() for name, values in evaluate(lists, relevance, metrics).items()}


def ceiling(pools: Mapping[str, Pool], relevance: Grades, k: int = 100) -> dict[str, float | None]:
    """Metric name → mean if a reranker ordered every pool by the judgements; None without a judged query.

    No reranker can score more on these pools: what is missing to 1 was lost by retrieval.
    """
    lists = {}
    for query_id, pool in pools.items():
        grades = relevance.get(query_id, {})
        ids = pool.fused.doc_ids
        best = sorted(ids[: pool.size], key=lambda doc_id: -grades.get(doc_id, 0))
        lists[query_id] = [*best, *ids[pool.size :]][:k]
    return {name: _mean(values) for name, values in quality(lists, relevance).items()}


def fates(
    pools: Mapping[str, Pool], after: Mapping[str, Sequence[str]], relevance: Grades, top: int = TOP
) -> dict[str, int]:
    """Where the relevant documents of the judged queries ended.

    ``relevant`` in all, of which ``not_in_pool`` (missed by retrieval: no reranker can help; it may still
    stand in the fused list beyond the pool), ``below_top`` (in the pool, not among the first ``top`` after
    reranking: mis-ranked) and ``in_top`` (the rest of the pool's). ``pushed_out`` of the first ``top`` by
    the reranker, ``lifted_in`` by it: changes between the two orders.
    """
    out = dict.fromkeys(("relevant", "not_in_pool", "below_top", "in_top", "pushed_out", "lifted_in"), 0)
    for query_id in evaluated_queries(relevance):
        relevant = {doc_id for doc_id, grade in relevance[query_id].items() if grade >= 1}
        pool = pools.get(query_id)
        ids = pool.fused.doc_ids if pool else ()
        inside = relevant.intersection(ids[: pool.size] if pool else ())
        earlier = relevant.intersection(ids[:top])
        later = relevant.intersection(after.get(query_id, ())[:top])
        out["relevant"] += len(relevant)
        out["not_in_pool"] += len(relevant - inside)
        out["below_top"] += len(inside - later)
        out["in_top"] += len(inside & later)
        out["pushed_out"] += len(earlier - later)
        out["lifted_in"] += len(later - earlier)
    return out


def depths_of(pools: Iterable[Pool]) -> tuple[int, ...]:
    """:data:`DEPTHS` below the largest pool, then the largest pool itself; empty where all are empty."""
    deepest = max((pool.size for pool in pools), default=0)
    return (*(depth for depth in DEPTHS if depth < deepest), *((deepest,) if deepest else ()))


def share_of_p95(total_s: Sequence[float], stage_s: Sequence[float]) -> float | None:
    """The share of a query's p95 that would go away without a stage: (p95 − p95 of the rest) / p95.

    Both are seconds per timed query in the same order; a failed query is NaN and left out. None below 20
    queries, as p95 itself.
    """
    total, stage = np.asarray(total_s, np.float64), np.asarray(stage_s, np.float64)
    measured = np.isfinite(total) & np.isfinite(stage)
    total, stage = total[measured], stage[measured]
    whole = percentile(total.tolist(), 95) if len(total) >= LEAST_FOR_P95 else None
    rest = percentile((total - stage).tolist(), 95)
    return (whole - rest) / whole if whole and rest is not None else None


def points_per_ms(gain: float | None, added_s: float | None) -> float | None:
    """Points (hundredths) of a metric gained per added millisecond; None where nothing was measured."""
    return gain * 100 / (added_s * 1000) if gain is not None and added_s else None


def economics(
    pools: Mapping[str, Pool],
    relevance: Grades,
    *,
    mix: str = "scores",
    rrf_k: float = 60.0,
    k: int = 100,
) -> dict[str, Any]:
    """All that needs no clock, as plain values: ``before``, ``after``, ``ceiling``, ``fates``, ``depths``.

    Args:
        pools: query id → pool; a query whose retrieval failed has none and counts 0.
        relevance: query id → document id → grade.
        mix: ``scores`` for the reranker's order, ``ranks`` for its fusion with the one before it.
        rrf_k: constant of that fusion.
        k: documents judged per query.
    """
    judged = {query_id: pool for query_id, pool in pools.items() if query_id in relevance}

    def lists(depth: int) -> dict[str, Sequence[str]]:
        return {q: pool.order(depth, mix, rrf_k)[:k] for q, pool in judged.items() if pool.scores is not None}

    depths = depths_of(judged.values())
    at = {depth: lists(depth) for depth in depths}
    found = {depth: quality(at[depth], relevance) for depth in depths}
    after = at[depths[-1]] if depths else lists(0)
    return {
        "mix": mix,
        "top": TOP,
        "before": quality({q: pool.fused.doc_ids[:k] for q, pool in judged.items()}, relevance),
        "after": found[depths[-1]] if depths else quality(after, relevance),
        "ceiling": ceiling(judged, relevance, k),
        "fates": fates(judged, after, relevance),
        "depths": [
            {
                "depth": depth,
                "means": {name: _mean(values) for name, values in found[depth].items()},
                "per_query": found[depth][MAIN],
            }
            for depth in depths
        ],
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None

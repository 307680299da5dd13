"""Putting a reranker's scores to use: order, ties, scores that are not numbers, failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fusion import rrf
from rag_core.protocols import Reranker
from rag_core.types import Ranking

__all__ = [
    "MIXES",
    "NotedScores",
    "Reordered",
    "RerankStats",
    "check_mix",
    "interpolate",
    "reorder",
    "rerank_ranking",
]

#: What decides the final order: the reranker's scores alone, or its ranks fused with the ranks before it.
MIXES = ("scores", "ranks")


class NotedScores(list[float]):
    """Scores with something that a reader of the result must know of them.

    Attributes:
        note: becomes a warning of the result.
    """

    def __init__(self, scores: Sequence[float], note: str) -> None:
        super().__init__(scores)
        self.note = note


@dataclass(slots=True)
class RerankStats:
    """Counts since the reranker was made.

    Attributes:
        pairs: candidates scored.
        truncated: of these, pairs of which the query or the candidate was cut.
        rows: inputs that the model read; more than ``pairs`` where candidates are read in windows.
        tokens: tokens that the model read, padding excluded.
        cached: candidates that the model did not read because what it makes of them was at hand.
    """

    pairs: int = 0
    truncated: int = 0
    rows: int = 0
    tokens: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Reordered:
    """Candidates in their new order.

    Attributes:
        ranking: document ids, best first. Its scores are the reranker's raw scores where these are
            numbers and all different, else n, n - 1, … 1, so that the order stands.
        raw: document id -> raw score, NaN included.
        warnings: what a reader of the result must know.
    """

    ranking: Ranking
    raw: dict[str, float]
    warnings: tuple[str, ...] = ()


def reorder(fused: Ranking, scores: Sequence[float]) -> Reordered:
    """Order ``fused`` by ``scores`` (one per candidate, in its order), highest first.

    Equal scores keep the fused order. A score that is NaN never outranks a number: those candidates
    follow the others in fused order. Sorting is on the raw scores, so no precision is lost to a sigmoid.

    Raises:
        ProviderError: another number of scores than candidates.
    """
    if len(scores) != len(fused):
        raise ProviderError(f"the reranker answered {len(scores)} scores for {len(fused)} candidates")
    values = [float(score) for score in scores]
    raw = dict(zip(fused.doc_ids, values))
    order = sorted(
        range(len(values)),
        key=lambda i: (math.isnan(values[i]), -values[i] if values[i] == values[i] else 0.0, i),
    )
    warnings = []
    n_nan = sum(math.isnan(value) for value in values)
    if n_nan:
        warnings.append(f"the reranker gave NaN for {n_nan} of {len(values)} candidates; they come last")
    distinct = len(set(values)) == len(values) and not n_nan and not any(map(math.isinf, values))
    if len(values) > 1 and len(set(values)) == 1:
        warnings.append(
            f"the reranker gave all {len(values)} candidates the same score; the fused order stands"
        )
    ids = [fused.doc_ids[i] for i in order]
    shown = [values[i] for i in order] if distinct else [float(len(ids) - i) for i in range(len(ids))]
    return Reordered(Ranking.from_scores(zip(ids, shown)), raw, tuple(warnings))


def interpolate(fused: Ranking, reordered: Ranking, *, k: float = 60.0, weight: float = 1.0) -> Ranking:
    """Reciprocal rank fusion of the order before a reranker with the order after it.

    A document's score is ``1 / (k + rank in fused) + weight / (k + rank in reordered)``. A reranker that
    is wrong about a strong first stage so costs less, and one that is right gains less. ``weight`` 0 gives
    the fused order; the larger it is, the closer comes the reranker's. Two neighbours that the reranker
    swaps have equal sums at weight 1: equal sums keep the fused order, and their scores are set apart by
    the smallest step of a float64, so that the order stands.

    Args:
        fused: the candidates in the order before reranking.
        reordered: the same candidates in the reranker's order.
        k: damps the lead of the first ranks; above 0.
        weight: of the reranker's order against 1 for the fused one; finite, from 0.

    Raises:
        InvalidArgumentError: other documents in ``reordered`` than in ``fused``, or bad ``k`` or ``weight``.
    """
    if set(fused.doc_ids) != set(reordered.doc_ids):
        raise InvalidArgumentError(
            f"interpolate: {len(fused)} documents before reranking and {len(reordered)} after it are not the "
            "same; accepted: two orders of the same documents"
        )
    both = rrf([fused, reordered], k=k, weights=[1.0, weight])
    summed = dict(zip(both.doc_ids, both.scores))
    ids = sorted(fused.doc_ids, key=summed.__getitem__, reverse=True)  # stable: equal sums stay as fused
    scores = [summed[doc_id] for doc_id in ids]
    for i in reversed(range(len(ids) - 1)):
        scores[i] = max(scores[i], math.nextafter(scores[i + 1], math.inf))
    return Ranking.from_scores(zip(ids, scores))


def check_mix(mix: str) -> None:
    """Raise InvalidArgumentError unless ``mix`` is one of :data:`MIXES`."""
    if mix not in MIXES:
        raise InvalidArgumentError(f"rerank_mix is {mix!r}; accepted: {', '.join(MIXES)}")


def rerank_ranking(reranker: Reranker, query: str, fused: Ranking, texts: Sequence[str]) -> Reordered:
    """Score ``texts`` (the candidates of ``fused``, in its order) and reorder.

    Raises:
        ProviderError: the reranker failed or answered another number of scores.
    """
    scores = reranker.rerank(query, texts) if texts else []
    found = reorder(fused, scores)
    return (
        replace(found, warnings=(scores.note, *found.warnings)) if isinstance(scores, NotedScores) else found
    )

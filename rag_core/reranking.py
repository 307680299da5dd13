"""Putting a reranker's scores to use: order, ties, scores that are not numbers, failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.errors import ProviderError
from rag_core.protocols import Reranker
from rag_core.types import Ranking

__all__ = ["Reordered", "RerankStats", "reorder", "rerank_ranking"]


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


def rerank_ranking(reranker: Reranker, query: str, fused: Ranking, texts: Sequence[str]) -> Reordered:
    """Score ``texts`` (the candidates of ``fused``, in its order) and reorder.

    Raises:
        ProviderError: the reranker failed or answered another number of scores.
    """
    return reorder(fused, reranker.rerank(query, texts) if texts else [])

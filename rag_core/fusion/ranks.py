"""Fusion by ranks: scores are not read, so that their scales do not matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from rag_core.errors import InvalidArgumentError
from rag_core.fusion.legs import Fused, Leg, checked_weights, combine
from rag_core.types import Ranking

__all__ = ["fuse_ranks", "rrf"]


def rrf(
    rankings: Sequence[Ranking | Sequence[str]],
    k: float = 60.0,
    weights: Sequence[float] | None = None,
    depth: int | None = None,
) -> Ranking:
    """Reciprocal rank fusion: a document's score is the sum over lists of ``weight / (k + rank)``.

    Ranks start at 1; a document that a list does not hold gets nothing from it. Equal sums are ordered
    by the rule of :class:`~rag_core.types.Ranking` (document id descending), and the terms of a sum are
    added in order of size, so that neither the order of the lists nor that of the process's hashes
    changes a bit of the answer. A list given as plain ids may repeat one: its first rank counts.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009.

    Args:
        rankings: one per leg, best first.
        k: damps the lead of the first ranks; above 0.
        weights: one per leg, finite, none negative, not all 0; a leg of weight 0 adds no document.
            None gives every leg 1.
        depth: only the first ``depth`` documents of each leg count; None for all.

    Raises:
        InvalidArgumentError: bad ``k``, ``weights`` or ``depth``.
    """
    _check_constant(k)
    if depth is not None and depth < 1:
        raise InvalidArgumentError(f"rrf: depth is {depth}; accepted: a whole number from 1")
    factors = checked_weights(weights, len(rankings), "rrf")
    terms: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, factors):
        if weight == 0:
            continue
        ids = ranking.doc_ids if isinstance(ranking, Ranking) else dict.fromkeys(ranking)
        for rank, doc_id in enumerate(islice(ids, depth), 1):
            term = weight / (k + rank)
            if doc_id in terms:
                terms[doc_id].append(term)
            else:
                terms[doc_id] = [term]
    return Ranking.from_scores(
        (doc_id, parts[0] if len(parts) == 1 else sum(sorted(parts))) for doc_id, parts in terms.items()
    )


def fuse_ranks(legs: Sequence[Leg], k: float = 60.0, weights: Sequence[float] | None = None) -> Fused:
    """:func:`rrf` of ``legs``, to the last bit, with what each of them added to each document.

    Raises:
        InvalidArgumentError: bad ``k`` or ``weights``.
    """
    _check_constant(k)
    factors = checked_weights(weights, len(legs), "rrf")
    points = [
        {d: factor / (k + rank) for rank, d in enumerate(leg.ranking.doc_ids, 1)} if factor else {}
        for leg, factor in zip(legs, factors)
    ]
    names = tuple(leg.name for leg in legs)
    missing = (0.0,) * len(legs)
    reasons = ("",) * len(legs)
    return Fused(combine(points, missing), "rrf", names, tuple(factors), reasons, tuple(points), missing)


def _check_constant(k: float) -> None:
    if not (math.isfinite(k) and k > 0):
        raise InvalidArgumentError(f"rrf: k is {k}; accepted: a finite number above 0")

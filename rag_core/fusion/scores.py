"""Fusion by scores: each list is brought to a common scale, then the weighted values are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rag_core.fusion.legs import Fused, Leg, checked_weights, combine, standardise

__all__ = ["convex", "relative", "zscore"]

#: A leg's values in the order of its list, and the value of a document that it does not list.
Scaled = tuple[list[float], float]


def relative(legs: Sequence[Leg], weights: Sequence[float] | None = None) -> Fused:
    """Relative scores: ``(s - least) / (best - least)`` of the list; a document not listed gets 0.

    A list of equal scores gives 1 to each. Fox and Shaw, "Combination of multiple searches", TREC-2, 1994
    (CombSUM), with the min-max scaling of Lee, SIGIR 1997; Weaviate's ``relativeScoreFusion``.

    Raises:
        InvalidArgumentError: bad ``weights``.
    """
    return _fuse("relative", legs, weights, _min_max)


def zscore(legs: Sequence[Leg], weights: Sequence[float] | None = None) -> Fused:
    """Standard scores: deviations above the mean of the list, see :func:`~rag_core.fusion.legs.standardise`.

    A document not listed gets the value of the list's last one. Mazzeschi, "Distribution-based score
    fusion", 2023, which gives it nothing, so that the mean of a list would count as much as its absence.

    Raises:
        InvalidArgumentError: bad ``weights``.
    """
    return _fuse("zscore", legs, weights, lambda leg: standardise(leg)[:2])


def convex(legs: Sequence[Leg], weights: Sequence[float] | None = None) -> Fused:
    """Convex combination: ``(s - floor) / (best - floor)``, ``floor`` the least score that a leg could give.

    A document not listed gets the value of the list's last one, or of a score of 0 where a lexical list is
    whole. Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval", TOIS 2023 (TM2C2,
    with 0.8 for vectors and 0.2 for BM25).

    Raises:
        InvalidArgumentError: bad ``weights``.
    """
    return _fuse("convex", legs, weights, _from_floor)


def _min_max(leg: Leg) -> Scaled:
    scores = leg.ranking.scores
    return _scaled(scores, scores[-1], scores[0]), 0.0


def _from_floor(leg: Leg) -> Scaled:
    scores = leg.ranking.scores
    known = leg.floor if leg.floor is not None else 0.0 if leg.evidence is not None else scores[-1]
    floor = min(known, scores[-1])
    values = _scaled(scores, floor, scores[0])
    absent = _scaled([0.0], floor, scores[0])[0] if leg.n_unlisted else values[-1]
    return values, min(absent, values[-1])


def _scaled(scores: Sequence[float], low: float, high: float) -> list[float]:
    span = high - low
    return [(score - low) / span for score in scores] if span > 0 else [1.0] * len(scores)


def _fuse(
    method: str, legs: Sequence[Leg], weights: Sequence[float] | None, scale: Callable[[Leg], Scaled]
) -> Fused:
    given = checked_weights(weights, len(legs), method)
    counted = [weight if len(leg.ranking) else 0.0 for weight, leg in zip(given, legs)]
    total = sum(sorted(counted))
    shares = [weight / total if total else 0.0 for weight in counted]
    points: list[dict[str, float]] = []
    missing: list[float] = []
    for leg, share in zip(legs, shares):
        values, absent = scale(leg) if share else ([], 0.0)
        points.append({d: share * value for d, value in zip(leg.ranking.doc_ids, values)})
        missing.append(share * absent)
    return Fused(
        combine(points, missing),
        method,
        tuple(leg.name for leg in legs),
        tuple(shares),
        ("",) * len(legs),
        tuple(points),
        tuple(missing),
    )

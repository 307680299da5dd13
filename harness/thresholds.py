"""Score thresholds: how many answers one keeps, how many false ones it lets through, and whether it pays.

An answer is kept at a threshold t where the best relevant document of the pool has a score of at least t. A
false answer leaks where a query that no document answers has some score of at least t. The difference of
both shares is Youden's J (Cancer 3, 1950). The optimism of a threshold judged on the queries that it was
chosen on is taken off with the bootstrap (Efron and Gong, American Statistician 37, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.metrics import Grades, evaluated_queries
from harness.render.format import share
from harness.resampling import blocks
from harness.results import CellResult
from harness.significance import binomial_interval

__all__ = [
    "LEAST_KEPT",
    "LEAST_QUERIES",
    "MOST_LEAK",
    "Point",
    "Thresholds",
    "record",
    "thresholds",
]

Floats = NDArray[np.float64]
#: A threshold is suggested only where the 95 % interval of the answers kept begins here or above.
LEAST_KEPT = 0.8
#: It separates only where the interval of the leak ends here or below.
MOST_LEAK = 0.5
#: Queries that each side needs: with fewer, no interval could pass these two.
LEAST_QUERIES = 20
#: Thresholds looked at; of more distinct scores so many quantiles.
MOST_POINTS = 200
RESAMPLES = 1000
LEVEL = 0.95

SEPARATES, NO_SEPARATION, TOO_FEW = "separates", "no clean separation", "too few queries"


@dataclass(frozen=True, slots=True)
class Point:
    """One threshold: the shares at or above it, each with its exact binomial 95 % interval."""

    threshold: float
    kept: float
    kept_low: float
    kept_high: float
    leak: float
    leak_low: float
    leak_high: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The curve of one system.

    Attributes:
        scores: ``rerank`` or ``vector``: whose scores.
        leak_of: ``unanswerable`` (top scores of queries without a relevant document) or ``others`` (of
            every answerable query the best candidate that is not judged relevant).
        n_kept, n_leak: queries behind the two shares.
        n_out: answerable queries without a relevant document in the pool, which take no part.
        points: rising thresholds; empty with too few queries.
        best: the point that is suggested, or the one that comes nearest; None with too few queries.
        low, high: 95 % bootstrap interval of the threshold, chosen anew in every resample.
        gain, gain_low, gain_high: kept minus leak there, its optimism taken off, with its interval.
        verdict: ``separates``, ``no clean separation`` or ``too few queries``.
        reason: why, as a clause.
    """

    scores: str
    leak_of: str
    n_kept: int
    n_leak: int
    n_out: int
    points: tuple[Point, ...]
    best: Point | None
    low: float | None
    high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    verdict: str
    reason: str

    @property
    def separates(self) -> bool:
        """Whether a threshold is suggested."""
        return self.verdict == SEPARATES


def record(
    scored: Mapping[str, Sequence[tuple[str, float]]], relevance: Grades, queries: Sequence[str], of: str
) -> dict[str, Any]:
    """What a result keeps of a pool's scores: three numbers a query at most.

    Args:
        scored: query id → (document id, score) of its pool, in any order; a query that failed is missing.
        relevance: query id → document id → grade; relevant from 1 on.
        queries: ids of all queries.
        of: ``rerank`` or ``vector``.

    Returns:
        ``of``; ``relevant`` and ``other``, the best score of a relevant and of any other candidate per judged
        query, sorted by id, None without one; ``unanswerable``, the top scores of the queries without a
        relevant document, and ``n_unjudged``, how many of these have no judgement at all. Scores that are
        not finite are left out.
    """
    judged = evaluated_queries(relevance)
    answered = set(judged)
    held = {q: [(d, s) for d, s in pool if math.isfinite(s)] for q, pool in scored.items()}

    def best(query_id: str, wanted: bool) -> float | None:
        grades = relevance[query_id]
        return max((s for d, s in held.get(query_id, ()) if (grades.get(d, 0) >= 1) is wanted), default=None)

    without = [q for q in queries if q not in answered and held.get(q)]
    return {
        "of": of,
        "relevant": [best(q, True) for q in judged],
        "other": [best(q, False) for q in judged],
        "unanswerable": [max(s for _, s in held[q]) for q in without],
        "n_unjudged": sum(q not in relevance for q in without),
    }


def thresholds(cell: CellResult, seed: int = 0) -> Thresholds | None:
    """The curve and the suggestion of ``cell``; None where it kept no scores."""
    kept = cell.thresholds
    if not kept:
        return None
    return _thresholds(
        kept["of"], tuple(kept["relevant"]), tuple(kept["other"]), tuple(kept["unanswerable"]), seed
    )


@lru_cache(maxsize=64)  # the verdict, the report and the plot ask for the same curves
def _thresholds(
    of: str,
    best: tuple[float | None, ...],
    other: tuple[float | None, ...],
    top: tuple[float, ...],
    seed: int,
) -> Thresholds:
    relevant = [score for score in best if score is not None]
    is_real = len(top) >= LEAST_QUERIES
    pairs = [(r, o) for r, o in zip(best, other) if r is not None and o is not None]
    leak_of = "unanswerable" if is_real else "others"
    wanted = np.array(relevant if is_real else [r for r, _ in pairs], np.float64)
    false = np.array(top if is_real else [o for _, o in pairs], np.float64)
    counts = (of, leak_of, len(wanted), len(false), len(best) - len(relevant))
    fewest = min(len(wanted), len(false))
    if fewest < LEAST_QUERIES:
        reason = f"{fewest} queries on a side, {LEAST_QUERIES} needed"
        return Thresholds(*counts, (), None, None, None, None, None, None, TOO_FEW, reason)
    points = _points(wanted, false)
    place = _chosen(*_shares(points), len(wanted))
    low, high, gain, gain_low, gain_high = _bootstrap(wanted, false, points, paired=not is_real, seed=seed)
    verdict, reason = _verdict(points[place], gain_low)
    return Thresholds(*counts, points, points[place], low, high, gain, gain_low, gain_high, verdict, reason)


@lru_cache(maxsize=4096)
def _bounds(count: int, n: int) -> tuple[float, float]:
    return binomial_interval(count, n, LEVEL)


def _points(wanted: Floats, false: Floats) -> tuple[Point, ...]:
    """Thresholds between neighbouring scores, so that rounding one does not move a query across it."""
    values = np.unique(np.concatenate([wanted, false]))
    middles = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])
    if len(middles) > MOST_POINTS:
        middles = np.unique(np.quantile(middles, np.linspace(0, 1, MOST_POINTS), method="inverted_cdf"))
    made = []
    for middle in middles.tolist():
        kept, leak = int((wanted >= middle).sum()), int((false >= middle).sum())
        made.append(
            Point(
                middle,
                kept / len(wanted),
                *_bounds(kept, len(wanted)),
                leak / len(false),
                *_bounds(leak, len(false)),
            )
        )
    return tuple(made)


def _shares(points: Sequence[Point]) -> tuple[Floats, Floats]:
    return np.array([p.kept for p in points]), np.array([p.leak for p in points])


def _least_share(n: int) -> float:
    """The smallest share of ``n`` whose interval begins at :data:`LEAST_KEPT` or above; 1 without one."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _bounds(middle, n)[0] >= LEAST_KEPT else (middle + 1, high)
    return low / n


def _chosen(kept: Floats, leak: Floats, n: int) -> int:
    """The place of the greatest kept − leak among those that keep enough; of equal ones the lowest."""
    return int(np.argmax(np.where(kept >= _least_share(n) - 1e-12, kept - leak, -np.inf)))


def _bootstrap(
    wanted: Floats, false: Floats, points: Sequence[Point], *, paired: bool, seed: int
) -> tuple[float, float, float, float, float]:
    """Interval of the threshold, then kept − leak without its optimism and with its interval.

    Queries are drawn with replacement, on each side by itself or, ``paired``, on both together.
    """
    at = np.array([p.threshold for p in points])
    kept, leak = _shares(points)
    is_kept = (wanted[:, None] >= at).astype(np.float32)
    is_leak = (false[:, None] >= at).astype(np.float32)
    generator = np.random.default_rng(seed)
    # half a query of slack: sums of single precision miss the share itself by some units of the last place
    floor = _least_share(len(wanted)) - 0.5 / len(wanted)
    places, there, here = [], [], []
    for rows in blocks(RESAMPLES, max(len(wanted), len(false))):
        mine = _drawn(generator, rows, len(wanted))
        others = mine if paired else _drawn(generator, rows, len(false))
        k, l_ = mine @ is_kept, others @ is_leak
        found = np.argmax(np.where(k >= floor, k - l_, -np.inf), axis=1)
        own = np.arange(rows)
        places.append(found)
        there.append(k[own, found] - l_[own, found])
        here.append(kept[found] - leak[found])
    chosen, gains = np.concatenate(places), np.concatenate(there).astype(np.float64)
    optimism = float(np.mean(gains - np.concatenate(here)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(at[chosen], (tail, 1 - tail))
    gain_low, gain_high = np.quantile(gains, (tail, 1 - tail))
    best = _chosen(kept, leak, len(wanted))
    gain = float(kept[best] - leak[best]) - optimism
    # resamples choose anew, so that their gains are optimistic too: their spread is kept, not their place
    shift = gain - float(np.mean(gains))
    return float(low), float(high), gain, float(gain_low) + shift, float(gain_high) + shift


def _drawn(generator: np.random.Generator, rows: int, n: int) -> NDArray[np.float32]:
    """(rows, n): the part of a resample that each query makes up; every row sums to 1."""
    picks = generator.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
    return (np.bincount(picks.ravel(), minlength=rows * n).reshape(rows, n) / n).astype(np.float32)


def _verdict(best: Point, gain_low: float) -> tuple[str, str]:
    if best.kept_low < LEAST_KEPT:
        return NO_SEPARATION, f"too few queries to be sure that {share(LEAST_KEPT)} of the answers are kept"
    if best.leak_high > MOST_LEAK:
        return NO_SEPARATION, (
            f"where at least {share(LEAST_KEPT)} of the answers are surely kept, {share(best.leak)} of the "
            f"false ones leak, and up to {share(best.leak_high)} may"
        )
    if gain_low <= 0:
        return NO_SEPARATION, "kept minus leak cannot be told from 0"
    return SEPARATES, (
        f"it keeps {share(best.kept)} of the answers ({share(best.kept_low)} to {share(best.kept_high)}) and "
        f"lets {share(best.leak)} of the false ones through "
        f"({share(best.leak_low)} to {share(best.leak_high)})"
    )

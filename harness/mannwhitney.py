"""Mann and Whitney's rank test of two samples: which of both holds the larger values, whatever their shape.

Mid-ranks for ties. Exact for small samples, counted over every way to draw the first sample from the ranks
found (ties included); else the normal approximation with the variance corrected for ties and a continuity
correction of one half. Mann and Whitney, Ann. Math. Statist. 18, 1947; Lehmann, Nonparametrics, 1975.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError

__all__ = ["EXACT_UP_TO", "RankTest", "mann_whitney"]

#: Values of both samples together up to which every draw is counted.
EXACT_UP_TO = 30


@dataclass(frozen=True, slots=True)
class RankTest:
    """The outcome of :func:`mann_whitney`.

    Attributes:
        u: pairs in which the value of the second sample is the larger one; a tie counts one half.
        share: ``u`` over all pairs: 0.5 where neither sample tends to larger values.
        p_value: two-sided.
        is_exact: whether every draw was counted.
    """

    u: float
    share: float
    p_value: float
    is_exact: bool


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Whether the values of ``second`` tend to be larger or smaller than those of ``first``.

    Raises:
        InvalidArgumentError: a sample is empty, or a value is not finite.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for which, values in (("first", a), ("second", b)):
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise InvalidArgumentError(
                f"the {which} sample has {values.size} values, {int((~np.isfinite(values)).sum())} of them "
                "not finite; accepted: at least one, all finite"
            )
    ranks, ties = _doubled_ranks(np.concatenate([a, b]))
    n, m = len(a), len(b)
    u = float(ranks[n:].sum()) / 2 - m * (m + 1) / 2
    is_exact = n + m <= EXACT_UP_TO
    p = _exact_p(ranks, m) if is_exact else _normal_p(u, n, m, ties)
    return RankTest(u, u / (n * m), p, is_exact)


def _doubled_ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Twice the mid-rank of each value, which is whole, and how often each distinct value occurs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    after = np.cumsum(counts)
    return (2 * after - counts + 1)[place], counts


def _exact_p(ranks: NDArray[np.int64], m: int) -> float:
    """The share of draws of ``m`` ranks whose sum is as far from its expectation as the last ``m``'s."""
    total = int(ranks.sum())
    ways = [np.zeros(total + 1, np.int64) for _ in range(m + 1)]  # drawn so far → doubled sum → draws
    ways[0][0] = 1
    for rank in ranks.tolist():
        for drawn in range(m, 0, -1):
            ways[drawn][rank:] += ways[drawn - 1][: total + 1 - rank]
    n_all = len(ranks)
    # doubled sums have the expectation m · total / n_all: compared in whole numbers
    distance = np.abs(np.arange(total + 1) * n_all - m * total)
    found = abs(int(ranks[n_all - m :].sum()) * n_all - m * total)
    return int(ways[m][distance >= found].sum()) / comb(n_all, m)


def _normal_p(u: float, n: int, m: int, ties: NDArray[np.int64]) -> float:
    size = n + m
    tied = float((ties.astype(np.float64) ** 3 - ties).sum())
    variance = n * m / 12 * (size + 1 - tied / (size * (size - 1)))
    if variance <= 0:  # all values are equal
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / sqrt(variance)
    return min(1.0, 2 * NormalDist().cdf(-z))

"""How far a mean can be trusted: intervals and paired tests, seeded and deterministic.

Sources: Efron, "Better bootstrap confidence intervals", JASA 82 (1987), for BCa; Clopper and Pearson,
Biometrika 26 (1934), for the exact binomial interval; Fisher's randomisation test as described for
retrieval by Smucker, Allan and Carterette, CIKM 2007; Hoeffding, JASA 58 (1963), Theorem 2, for its tail;
the continued fraction of the incomplete beta function as in DLMF 8.17.22.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness import resampling
from harness.resampling import bca_levels, exact_p, resampled_means, sign_sums
from rag_core.errors import InvalidArgumentError

__all__ = [
    "PairedDifference",
    "binomial_interval",
    "bootstrap_interval",
    "holm",
    "mean_interval",
    "paired_difference",
    "paired_differences",
    "patterns",
    "randomisation_p",
    "regularised_beta",
    "student_quantile",
]

Floats = NDArray[np.float64]

#: Sign patterns drawn for a test, and for each comparison of a family of many: Holm's correction multiplies
#: the smallest p value that the patterns can show.
PERMUTATIONS, PER_COMPARISON = 10_000, 100
#: The widest level an interval is read at: the least and the greatest of the resampled means.
WIDEST = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """``a`` minus ``b`` over the same queries.

    Attributes:
        mean: mean difference.
        low, high: its confidence interval.
        p_value: two-sided; the share of sign patterns at least as extreme as what was seen.
        n: queries compared.
        lower, upper: one-sided bounds at the same level each, widened for few queries.
    """

    mean: float
    low: float
    high: float
    p_value: float
    n: int
    lower: float
    upper: float


def mean_interval(
    values: ArrayLike, *, binary: bool, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The interval of a metric's mean: exact where values are 0 or 1 (``Metric.binary``), else BCa.

    Raises:
        InvalidArgumentError: no values, a value that is not finite or, for ``binary``, not 0 or 1.
    """
    data = _checked(values, level)
    if not binary:
        return bootstrap_interval(data, level, resamples, seed)
    if not np.isin(data, (0.0, 1.0)).all():
        raise InvalidArgumentError("a value of a binary metric is neither 0 nor 1; accepted: 0 and 1")
    return binomial_interval(int(data.sum()), len(data), level)


def bootstrap_interval(
    values: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The bias-corrected and accelerated bootstrap interval of the mean of ``values``, shape (n,).

    Plain percentiles where the correction has no finite value; ``(v, v)`` where all values are ``v``.

    Raises:
        InvalidArgumentError: no values, a value that is not finite, ``level`` outside (0, 1), or fewer
            than 100 ``resamples``.
    """
    data = _checked(values, level)
    if resamples < 100:
        raise InvalidArgumentError(f"resamples is {resamples}; accepted: 100 or more")
    if np.ptp(data) == 0:
        return float(data[0]), float(data[0])
    means = resampled_means(data[:, None], resamples, seed)[:, 0]
    low, high = np.quantile(means, bca_levels(data, means, level))
    return float(low), float(high)


def binomial_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a proportion.

    Raises:
        InvalidArgumentError: ``n`` below 1, ``successes`` outside 0 to ``n``, ``level`` outside (0, 1).
    """
    _check_level(level)
    if n < 1 or not 0 <= successes <= n:
        raise InvalidArgumentError(f"{successes} successes of {n}; accepted: 0 to n of n >= 1")
    tail = (1 - level) / 2
    low = _beta_quantile(tail, successes, n - successes + 1) if successes else 0.0
    high = _beta_quantile(1 - tail, successes + 1, n - successes) if successes < n else 1.0
    return low, high


def _beta_quantile(probability: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if regularised_beta(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def regularised_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for ``a``, ``b`` > 0 and 0 <= ``x`` <= 1."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below the mean
        return 1.0 - regularised_beta(1 - x, b, a)
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
        - math.log(a)
    )
    return math.exp(log_front) * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction, to double precision."""
    tiny = 1e-300
    upper, lower = 1.0, 1 - (a + b) * x / (a + 1)
    lower = 1 / (lower if abs(lower) > tiny else tiny)
    value = lower
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            lower = 1 + term * lower
            lower = 1 / (lower if abs(lower) > tiny else tiny)
            upper = 1 + term / upper
            upper = upper if abs(upper) > tiny else tiny
            step = upper * lower
            value *= step
        if abs(step - 1) < 1e-15:
            break
    return value


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> PairedDifference:
    """Compare two systems on the same queries, ``a`` and ``b`` of shape (n,), row by row.

    The p value is that of the randomisation test: under "no difference" each query's difference may as
    well have the other sign. Exact for up to 13 queries that differ; from ``permutations`` random
    patterns otherwise, counting the one seen, so that it is never 0. Where none of them is as extreme, it is
    Hoeffding's bound of the exact value if that is smaller: a correction for many comparisons would otherwise
    find no certainty beyond the number of patterns.

    Raises:
        InvalidArgumentError: other shapes, values that are not finite, ``level`` outside (0, 1), fewer than
            100 ``resamples``.
    """
    first, second = _checked(a, level), _checked(b, level)
    if len(first) != len(second):
        raise InvalidArgumentError(f"{len(first)} values against {len(second)}; accepted: one pair per query")
    table = np.column_stack([first, second])
    return paired_differences(table, [(0, 1)], level, resamples, seed, permutations)[0]


def paired_differences(
    values: ArrayLike,
    pairs: Sequence[tuple[int, int]],
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    permutations: int | None = None,
) -> list[PairedDifference]:
    """:func:`paired_difference` of many pairs of the columns of ``values``, shape (n queries, k systems).

    All share the resampled queries and the random signs: the cost is that of k columns, not of the pairs.
    ``permutations`` is 10,000, and 100 for each pair where that is more, unless it is given.

    Raises:
        InvalidArgumentError: as :func:`paired_difference`.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2:
        raise InvalidArgumentError(f"values of shape {table.shape}; accepted: (queries, systems)")
    _checked(table.ravel(), level)
    if resamples < 100:
        raise InvalidArgumentError(f"resamples is {resamples}; accepted: 100 or more")
    means = resampled_means(table, resamples, seed)
    p_values = randomisation_p(table, pairs, seed, permutations)
    found = []
    for (i, j), p_value in zip(pairs, p_values):
        difference = table[:, i] - table[:, j]
        low, high, lower, upper = _bounds(difference, means[:, i] - means[:, j], level)
        mean = float(difference.mean())
        found.append(PairedDifference(mean, low, high, p_value, len(table), lower, upper))
    return found


def randomisation_p(
    values: ArrayLike, pairs: Sequence[tuple[int, int]], seed: int = 0, permutations: int | None = None
) -> list[float]:
    """The p values of :func:`paired_differences` alone, without intervals."""
    table = np.asarray(values, np.float64)
    permutations = patterns(len(pairs)) if permutations is None else permutations
    sizes = np.abs(table).sum(axis=0)
    sums: Floats | None = None
    out = []
    for i, j in pairs:
        difference = table[:, i] - table[:, j]
        changed = difference[difference != 0]
        if not len(changed):
            out.append(1.0)
        elif len(changed) <= resampling.EXACT_QUERIES:
            out.append(exact_p(changed))
        else:
            if sums is None:
                sums = sign_sums(table, permutations, seed)
            least = abs(float(difference.sum())) - 1e-12 * float(
                sizes[i] + sizes[j]
            )  # equal but for rounding
            extreme = int(np.sum(np.abs(sums[:, i] - sums[:, j]) >= least))
            drawn = (extreme + 1) / (permutations + 1)
            out.append(drawn if extreme else min(drawn, _at_most(changed)))
    return out


def _at_most(difference: Floats) -> float:
    """Hoeffding's bound of the exact p value: sums of random signs beyond ``s`` have a probability of at most
    ``2 exp(-s² / (2 Σ d²))``. It says more than patterns do where none of them came near ``s``."""
    exponent = float(difference.sum()) ** 2 / (2 * float(np.sum(difference**2)))
    return max(2 * math.exp(-exponent), sys.float_info.min)


def patterns(comparisons: int) -> int:
    """Random sign patterns by which one of ``comparisons`` can still be told after Holm's correction."""
    return max(PERMUTATIONS, PER_COMPARISON * comparisons)


def _bounds(difference: Floats, drawn: Floats, level: float) -> tuple[float, float, float, float]:
    """Two-sided interval of BCa, then the two one-sided bounds of its form widened for few queries."""
    centre = float(difference.mean())
    if np.ptp(difference) == 0:
        return (centre,) * 4
    # a mean drawn equal to what was seen counts half below it: rounding must not decide
    drawn[np.abs(drawn - centre) <= 1e-12] = difference.mean()
    levels = [
        *bca_levels(difference, drawn, level),
        *bca_levels(difference, drawn, _widened(level, len(difference))),
    ]
    low, high, lower, upper = np.quantile(drawn, levels).tolist()
    return low, high, lower, upper


def _widened(level: float, n: int) -> float:
    """The two-sided level whose ends bound a mean of ``n`` values on one side at ``level``.

    Resampled means spread by a factor of sqrt((n - 1) / n) too little, and normal quantiles stand in for
    Student's: Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69
    (2015), 3.2, widens the level for both.
    """
    if n < 2:
        return 2 * level - 1
    edge = math.sqrt(n / (n - 1)) * student_quantile(level, n - 1)
    return min(
        2 * NormalDist().cdf(edge) - 1, WIDEST
    )  # of two or three values t is beyond any normal quantile


@lru_cache(maxsize=256)
def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t with ``freedom`` degrees, for 0 < ``probability`` < 1 (bisected)."""
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    # P(T > t) = I_x(freedom / 2, 1 / 2) / 2 with x = freedom / (freedom + t²)
    x = _beta_quantile(2 * (1 - probability), freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x) if x else math.inf


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InvalidArgumentError(f"level is {level}; accepted: between 0 and 1, for example 0.95")


def _checked(values: ArrayLike, level: float) -> Floats:
    _check_level(level)
    data = np.asarray(values, np.float64)
    if data.ndim != 1 or not len(data):
        raise InvalidArgumentError(
            f"values of shape {data.shape}; accepted: one number per query, at least one"
        )
    if not np.isfinite(data).all():
        raise InvalidArgumentError("a value is not finite; accepted: finite numbers")
    return data


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment for many comparisons, in the given order (Scand. J. Statist. 6, 1979)."""
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = worst
    return adjusted

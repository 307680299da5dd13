"""How far a mean can be trusted: intervals and paired tests, seeded and deterministic.

Sources: Efron, "Better bootstrap confidence intervals", JASA 82 (1987), for BCa; Clopper and Pearson,
Biometrika 26 (1934), for the exact binomial interval; Fisher's randomisation test as described for
retrieval by Smucker, Allan and Carterette, CIKM 2007; the continued fraction of the incomplete beta
function as in DLMF 8.17.22.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_core.errors import InvalidArgumentError

__all__ = [
    "PairedDifference",
    "binomial_interval",
    "bootstrap_interval",
    "holm",
    "mean_interval",
    "paired_difference",
    "regularised_beta",
]

Floats = NDArray[np.float64]

#: Numbers held at once while resampling: 16 MB of float64.
BLOCK = 2_000_000
#: Up to this many queries that differ, all sign patterns are enumerated: at most 2 ** 13 of them.
EXACT_QUERIES = 13


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """``a`` minus ``b`` over the same queries.

    Attributes:
        mean: mean difference.
        low, high: its confidence interval.
        p_value: two-sided; the share of sign patterns at least as extreme as what was seen.
        n: queries compared.
    """

    mean: float
    low: float
    high: float
    p_value: float
    n: int


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
    means = _resampled_means(data, resamples, seed)
    low, high = np.quantile(means, _bca_levels(data, means, level))
    return float(low), float(high)


def _resampled_means(data: Floats, resamples: int, seed: int) -> Floats:
    generator = np.random.default_rng(seed)
    blocks = [
        data[generator.integers(0, len(data), (rows, len(data)), dtype=np.int32)].mean(axis=1)
        for rows in _blocks(resamples, len(data))
    ]
    return np.concatenate(blocks)


def _blocks(rows: int, width: int) -> Iterator[int]:
    """``rows`` in portions of at most :data:`BLOCK` numbers."""
    step = max(1, BLOCK // width)
    for start in range(0, rows, step):
        yield min(step, rows - start)


def _bca_levels(data: Floats, means: Floats, level: float) -> list[float]:
    """The two quantile levels that BCa reads off the resampled means."""
    tail = (1 - level) / 2
    normal = NormalDist()
    centre = data.mean()
    below = float(np.mean(means < centre) + np.mean(means == centre) / 2)
    if not 0 < below < 1:
        return [tail, 1 - tail]
    bias = normal.inv_cdf(below)
    # leaving out x_i moves the mean by (mean - x_i) / (n - 1); the constant cancels
    influence = data - centre
    acceleration = float(np.sum(influence**3) / (6 * np.sum(influence**2) ** 1.5))
    levels = []
    for z in (normal.inv_cdf(tail), normal.inv_cdf(1 - tail)):
        scale = 1 - acceleration * (bias + z)
        if scale <= 0:
            return [tail, 1 - tail]
        levels.append(normal.cdf(bias + (bias + z) / scale))
    return levels


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
    permutations: int = 10_000,
) -> PairedDifference:
    """Compare two systems on the same queries, ``a`` and ``b`` of shape (n,), row by row.

    The p value is that of the randomisation test: under "no difference" each query's difference may as
    well have the other sign. Exact for up to 13 queries that differ; from ``permutations`` random
    patterns otherwise, counting the one seen, so that it is never 0.

    Raises:
        InvalidArgumentError: other shapes, values that are not finite, ``level`` outside (0, 1).
    """
    first, second = _checked(a, level), _checked(b, level)
    if len(first) != len(second):
        raise InvalidArgumentError(f"{len(first)} values against {len(second)}; accepted: one pair per query")
    difference = first - second
    low, high = bootstrap_interval(difference, level, resamples, seed)
    p_value = _sign_flip_p(difference, permutations, seed)
    return PairedDifference(float(difference.mean()), low, high, p_value, len(difference))


def _sign_flip_p(difference: Floats, permutations: int, seed: int) -> float:
    data = difference[difference != 0]  # the sign of a zero changes nothing
    if not len(data):
        return 1.0
    seen = abs(float(data.sum()))
    least = seen - 1e-12 * float(np.abs(data).sum())  # equal sums may differ in their last bits
    if len(data) <= EXACT_QUERIES:
        patterns = np.arange(2 ** len(data))[:, None] >> np.arange(len(data)) & 1
        return float(np.mean(np.abs(patterns @ (2 * data) - data.sum()) >= least))
    generator = np.random.default_rng(seed)
    extreme = 0
    for rows in _blocks(permutations, len(data)):
        flips = np.unpackbits(
            np.frombuffer(generator.bytes(rows * ((len(data) + 7) // 8)), np.uint8).reshape(rows, -1),
            axis=1,
            count=len(data),
        )
        extreme += int(np.sum(np.abs(flips @ (2 * data) - data.sum()) >= least))
    return (extreme + 1) / (permutations + 1)


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

"""How large an effect is, how many queries would show it, and how small a one these queries can show.

Sources: Cohen, "Statistical Power Analysis for the Behavioral Sciences" (2nd ed., 1988), 2.3.5, for d_z;
Guenther, "Sample size formulas for normal theory t tests", The American Statistician 35 (1981), for the
number of queries; Sakai, "Topic set size design", Information Retrieval Journal 19 (2016), plans retrieval
experiments so.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from rag_core.errors import InvalidArgumentError

__all__ = ["ALPHA", "POWER", "detectable", "effect_size", "queries_needed"]

#: Two-sided level of a test, and the share of true differences that it shall find.
ALPHA, POWER = 0.05, 0.80


def effect_size(mean: float, sd: float) -> float | None:
    """Cohen's d_z: mean difference in units of the differences' standard deviation; None without spread."""
    return mean / sd if sd > 0 else None


def queries_needed(mean: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> int | None:
    """Queries at which a two-sided paired test at ``alpha`` finds a true difference with ``power``.

    ``((z_{1-alpha/2} + z_power) * sd / mean)² + z²_{1-alpha/2} / 2``, rounded up (Guenther 1981), and at
    least as many as give the randomisation test a p value of ``alpha``: one in ``2 ** (n - 1)`` is its least.

    Args:
        mean: the difference of the means, in units of the metric.
        sd: standard deviation of the differences over the queries, in the same units.
        alpha: level of the test.
        power: share of repetitions that shall find it.

    Returns:
        None where ``mean`` is 0: no number would do.

    Raises:
        InvalidArgumentError: ``alpha`` or ``power`` outside (0, 1), a negative ``sd``.
    """
    edge, reach = _normal(alpha, power, sd)
    if mean == 0:
        return None
    least = 1 + math.log2(1 / alpha)
    return math.ceil(max(((edge + reach) * sd / abs(mean)) ** 2 + edge**2 / 2, least))


def detectable(n: int, sd: float, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest difference that ``n`` queries show with ``power``: :func:`queries_needed` inverted.

    Returns:
        None where ``n`` is so small that no difference would do.

    Raises:
        InvalidArgumentError: as :func:`queries_needed`.
    """
    edge, reach = _normal(alpha, power, sd)
    spare = n - edge**2 / 2
    if spare <= 0 or n < 1 + math.log2(1 / alpha):
        return None
    return (edge + reach) * sd / math.sqrt(spare)


def _normal(alpha: float, power: float, sd: float) -> tuple[float, float]:
    for name, value in (("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise InvalidArgumentError(f"{name} is {value}; accepted: between 0 and 1")
    if not (math.isfinite(sd) and sd >= 0):
        raise InvalidArgumentError(f"standard deviation {sd}; accepted: a finite number from 0")
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(power)

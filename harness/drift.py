"""How far a figure of speed moves from run to run, told by earlier runs of the same thing.

The samples within a run cannot tell it: a machine that is busy for a while slows all of them together. With
enough earlier runs their own spread replaces the fixed allowance of :data:`harness.compare.DRIFT`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.significance import regularised_beta, student_quantile
from rag_core.errors import InvalidArgumentError

__all__ = ["LEAST_RUNS", "LEAST_SPREAD", "Step", "step", "student_p"]

#: Earlier runs that a spread is estimated from at least.
LEAST_RUNS = 5
#: Relative spread from run to run at least: a few runs that agree by chance prove no steadier machine.
LEAST_SPREAD = 0.005


@dataclass(frozen=True, slots=True)
class Step:
    """A figure in the newest runs against the runs before them, on a logarithmic scale.

    Attributes:
        old: geometric mean before.
        new: geometric mean of the newest runs.
        change: new over old, minus 1.
        low, high: its 95 % interval (Student's t, the spread taken from the runs before).
        p_value: two-sided.
        spread: relative standard deviation from run to run.
        n_before, n_new: runs.
    """

    old: float
    new: float
    change: float
    low: float
    high: float
    p_value: float
    spread: float
    n_before: int
    n_new: int


def step(before: Sequence[float], newest: Sequence[float], others: Sequence[float] = ()) -> Step:
    """Whether ``newest`` lies further from ``before`` than runs lie from each other.

    With d the difference of the mean logarithms and s the standard deviation of the logarithms,
    t = d / (s √(1/n_new + 1/n_before)) has Student's distribution.

    Args:
        before: the figure of each earlier run, above 0.
        newest: of each of the newest runs.
        others: runs that the spread is estimated from, where ``before`` are too few for it.

    Raises:
        InvalidArgumentError: a value that is not above 0, no run, or a spread of fewer than two runs.
    """
    a, b, c = (np.asarray(values, np.float64) for values in (before, newest, others or before))
    together = np.concatenate([a, b, c])
    if not len(a) or not len(b) or len(c) < 2 or not ((together > 0) & np.isfinite(together)).all():
        raise InvalidArgumentError(
            f"{len(a)} earlier and {len(b)} new runs, a spread of {len(c)}; accepted: at least one, one and "
            "two, each a finite number above 0"
        )
    spread = max(float(np.std(np.log(c), ddof=1)), LEAST_SPREAD)
    freedom = len(c) - 1
    d = float(np.log(b).mean() - np.log(a).mean())
    error = spread * math.sqrt(1 / len(a) + 1 / len(b))
    reach = student_quantile(0.975, freedom) * error
    return Step(
        old=math.exp(float(np.log(a).mean())),
        new=math.exp(float(np.log(b).mean())),
        change=math.expm1(d),
        low=math.expm1(d - reach),
        high=math.expm1(d + reach),
        p_value=student_p(d / error, freedom),
        spread=math.expm1(spread),
        n_before=len(a),
        n_new=len(b),
    )


def student_p(t: float, freedom: int) -> float:
    """Two-sided p value of Student's t: I_x(freedom/2, 1/2) with x = freedom / (freedom + t²)."""
    return regularised_beta(freedom / (freedom + t * t), freedom / 2, 0.5)

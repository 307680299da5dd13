"""Whether one set of timings differs from another by more than their own noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shift", "shift"]

RESAMPLES = 2000
#: Numbers drawn while resampling, at most.
BLOCK = 2_000_000
#: Makes the median absolute deviation of normal values their standard deviation.
MAD_TO_SD = 1.4826


@dataclass(frozen=True, slots=True)
class Shift:
    """The relative change of a percentile.

    Attributes:
        change: new over old, minus 1.
        low, high: its 95 % bootstrap interval.
        noise: robust relative spread of one sample, both runs together: of the ratios new / old of the
            same call where the calls correspond, else of the wider run.
    """

    change: float
    low: float
    high: float
    noise: float

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval leaves out 0 and the change is larger than the spread.

        The interval alone is not enough: it shrinks with the number of calls, but a machine that is busy
        for a while moves them all together.
        """
        return (self.low > 0 or self.high < 0) and abs(self.change) > self.noise


def shift(
    old_s: Sequence[float], new_s: Sequence[float], percentile: float, *, aligned: bool, seed: int = 0
) -> Shift | None:
    """Compare a percentile (0 to 100) of two sets of raw seconds.

    Args:
        old_s, new_s: seconds above 0.
        percentile: which.
        aligned: sample i of both timed the same call, so that what makes one query slower than another
            cancels out. Ignored when the lengths differ.
        seed: of the bootstrap.

    Returns:
        None where a set is empty or holds a value that is not above 0.
    """
    old, new = np.asarray(old_s, np.float64), np.asarray(new_s, np.float64)
    if not len(old) or not len(new) or not ((old > 0).all() and (new > 0).all()):
        return None
    aligned = aligned and len(old) == len(new)
    generator = np.random.default_rng(seed)
    resamples = max(200, min(RESAMPLES, BLOCK // max(len(old), len(new))))
    rows = generator.integers(0, len(old), (resamples, len(old)))
    others = rows if aligned else generator.integers(0, len(new), (resamples, len(new)))
    ratios = np.percentile(new[others], percentile, axis=1) / np.percentile(old[rows], percentile, axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975]) - 1
    if aligned:
        noise = math.expm1(_spread(np.log(new / old)))
    else:
        noise = math.expm1(max(_spread(np.log(old)), _spread(np.log(new))))
    change = float(np.percentile(new, percentile) / np.percentile(old, percentile)) - 1
    return Shift(change, float(low), float(high), noise)


def _spread(values: NDArray[np.float64]) -> float:
    return MAD_TO_SD * float(np.median(np.abs(values - np.median(values))))

"""Resampled means and random signs that many systems share: drawn once, applied to all as a matrix product.

What is drawn depends on the number of queries and the seed alone, so a pair of systems gets the same interval
and p value whatever is compared beside it. Sources: Efron, "Better bootstrap confidence intervals", JASA 82
(1987), for BCa; Smucker, Allan and Carterette, CIKM 2007, for the randomisation test.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT_QUERIES", "bca_levels", "blocks", "exact_p", "resampled_means", "sign_sums"]

Floats = NDArray[np.float64]

#: Numbers held at once while resampling: 16 MB of float64.
BLOCK = 2_000_000
#: Up to this many queries that differ, all sign patterns are enumerated: at most 2 ** 13 of them.
EXACT_QUERIES = 13


def blocks(rows: int, width: int) -> Iterator[int]:
    """``rows`` in portions of at most :data:`BLOCK` numbers."""
    step = max(1, BLOCK // width)
    for start in range(0, rows, step):
        yield min(step, rows - start)


def resampled_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Means of ``values`` (n, k) over queries drawn with replacement: (resamples, k), one draw a row."""
    generator = np.random.default_rng(seed)
    n = len(values)
    out = []
    for rows in blocks(resamples, n):
        drawn = generator.integers(0, n, (rows, n), dtype=np.int32)
        if values.shape[1] == 1:
            out.append(values[:, 0][drawn].mean(axis=1, keepdims=True))
            continue
        # how often each query was drawn, so that all columns take part in one product
        places = drawn + np.arange(rows, dtype=np.int32)[:, None] * np.int32(n)
        counts = np.bincount(places.ravel(), minlength=rows * n).reshape(rows, n)
        out.append(counts.astype(np.float64) @ values / n)
    return np.concatenate(out)


def sign_sums(values: Floats, permutations: int, seed: int) -> Floats:
    """Sums of ``values`` (n, k) under random signs: (permutations, k), one pattern of signs a row.

    The sum of a difference of two columns is the difference of their sums: k columns serve all their pairs.
    """
    generator = np.random.default_rng(seed)
    n = len(values)
    total, doubled = values.sum(axis=0), 2 * values
    out = []
    for rows in blocks(permutations, n):
        packed = np.frombuffer(generator.bytes(rows * ((n + 7) // 8)), np.uint8).reshape(rows, -1)
        flips = np.unpackbits(packed, axis=1, count=n)
        out.append(flips.astype(np.float64) @ doubled - total)
    return np.concatenate(out)


def exact_p(difference: Floats) -> float:
    """Two-sided p of at most :data:`EXACT_QUERIES` differences that are not 0: the share of all 2 ** n sign
    patterns with a sum at least as far from 0."""
    patterns = np.arange(2 ** len(difference))[:, None] >> np.arange(len(difference)) & 1
    seen = abs(float(difference.sum()))
    least = seen - 1e-12 * float(np.abs(difference).sum())  # equal sums may differ in their last bits
    return float(np.mean(np.abs(patterns @ (2 * difference) - difference.sum()) >= least))


def bca_levels(data: Floats, means: Floats, level: float) -> list[float]:
    """The two quantile levels that BCa reads off the resampled ``means`` of ``data``, shape (n,).

    Plain percentiles where the correction has no finite value.
    """
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

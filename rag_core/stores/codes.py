"""Rows as bytes: the exact store's first look at a quarter of the memory, before exact scores.

A row ``r`` of length 1 becomes ``scale * code`` with whole numbers from -127 to 127 and
``scale = max |r| / 127``. What is lost is a residual of length at most ``spread``, kept beside the codes. The
score of a query's direction is then off by the residual's part in that direction. Of a residual that points
anywhere, that part has the standard deviation ``spread / sqrt(dim)``; all rows within six of these of the
threshold, on both sides, are candidates. So rows that lie close together are looked at in larger numbers,
where a pool of fixed size would lose some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rag_core.protocols import Vectors
from rag_core.stores.arrayfile import map_arrays, write_parts
from rag_core.stores.kernels import int8_kernels
from rag_core.stores.parallel import in_parts
from rag_core.stores.rows import ROUNDING
from rag_core.stores.scan import Rows, threshold

__all__ = ["POOL", "Codes", "coded", "near_by_codes", "write_codes"]

#: Largest code of a row, and of a query: the sum of 4,096 products of both fits 31 bits. The query costs no
#: memory traffic, so its codes are finer and its part of the error is negligible.
LARGEST, LARGEST_OF_QUERY = 127, 4095
WIDEST = 4096
#: Rows scored exactly at least, per row asked for and in all.
POOL_SHARE, POOL = 2, 128
DEVIATIONS = 6.0
#: Rows coded, and bytes scanned by one thread, at a time. All wait for a thread that loses its processor
#: with a part in hand, so parts are small.
CODED_ROWS, SCANNED_BYTES = 1 << 13, 1 << 19


@dataclass(frozen=True, slots=True)
class Codes:
    """``codes`` int8 ``(n, dim)``, ``scales`` float32 ``(n,)``, and the length of the longest residual."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    spread: float

    @classmethod
    def open(cls, path: Path, shape: tuple[int, int]) -> Codes:
        """Map what :func:`write_codes` wrote. OSError, ValueError: missing, damaged or of another shape."""
        arrays = map_arrays(path)
        wanted = [(shape, "int8"), (shape[:1], "float32"), ((1,), "float64")]
        if [(array.shape, array.dtype.name) for array in arrays] != wanted:
            raise ValueError(f"{path.name} does not hold the codes of {shape[0]} rows of width {shape[1]}")
        codes, scales, spread = arrays
        return cls(codes, scales, float(spread[0]))

    @property
    def margin(self) -> float:
        """How far below the threshold a candidate may seem to be."""
        return 2 * DEVIATIONS * self.spread / math.sqrt(self.codes.shape[1]) + ROUNDING


def coded(rows: Vectors) -> tuple[NDArray[np.int8], NDArray[np.float32], float]:
    """Codes, scales and the longest residual of ``rows`` of length 1, float32 ``(n, dim)``."""
    scales = np.asarray(np.abs(rows).max(axis=1) / LARGEST, np.float32)
    codes = np.rint(rows / scales[:, None]).astype(np.int8)
    residual = rows - codes * scales[:, None]
    longest = np.einsum("ij,ij->i", residual, residual, dtype=np.float64).max(initial=0.0)
    return codes, scales, math.sqrt(longest)


def write_codes(stream: IO[bytes], vectors: Vectors) -> None:
    """Write the codes of ``vectors``, a block of rows at a time."""
    scales, spreads = [np.zeros(0, np.float32)], [0.0]

    def parts() -> Iterator[NDArray[np.int8]]:
        for start in range(0, len(vectors), CODED_ROWS):
            codes, scale, spread = coded(vectors[start : start + CODED_ROWS])
            scales.append(scale)
            spreads.append(spread)
            yield codes

    write_parts(stream, vectors.shape, np.int8, parts())
    write_parts(stream, (len(vectors),), np.float32, scales)
    write_parts(stream, (1,), np.float64, [np.array([max(spreads)])])


def near_by_codes(held: Codes, unit: Vectors, k: int, allowed: Rows | None = None) -> Rows | None:
    """Candidates for the ``k`` nearest rows, ascending; None without a kernel, or for wider rows."""
    kernels = int8_kernels() if held.codes.shape[1] <= WIDEST else None
    if kernels is None:
        return None
    scale = float(np.abs(unit).max()) / LARGEST_OF_QUERY
    query = np.rint(unit / np.float32(scale)).astype(np.int16)
    n = len(held.codes) if allowed is None else len(allowed)
    scores = np.empty(n, np.float32)
    if allowed is None:
        in_parts(
            n, _rows_at_once(held), lambda a, b: kernels.scan(held.codes, held.scales, query, scores, a, b)
        )
    else:
        in_parts(
            n,
            _rows_at_once(held),
            lambda a, b: kernels.scan_rows(held.codes, held.scales, query, allowed, scores, a, b),
        )
    pool = max(POOL, POOL_SHARE * k)
    if pool >= n:
        return np.arange(n) if allowed is None else allowed
    least = min(threshold(scores, pool), threshold(scores, k) - held.margin / scale)
    found = np.flatnonzero(scores >= least)
    return found if allowed is None else allowed[found]


def _rows_at_once(held: Codes) -> int:
    return max(1, SCANNED_BYTES // int(held.codes.shape[1]))

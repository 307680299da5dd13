"""Compiled loops over bytes. Where numba is not installed there are none, and callers go on without."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Kernels", "has_int8_kernels", "int8_kernels"]


class Kernels(NamedTuple):
    """Loops that release the interpreter's lock.

    Attributes:
        scan: ``(codes, scales, query, out, start, stop)``: ``out[i] = (codes[i] . query) * scales[i]``.
        scan_rows: ``(codes, scales, query, rows, out, start, stop)``: the same for ``codes[rows[i]]``.
    """

    scan: Callable[..., None]
    scan_rows: Callable[..., None]


def has_int8_kernels() -> bool:
    """Whether :func:`int8_kernels` has some; compiles and imports nothing."""
    return importlib.util.find_spec("numba") is not None


@lru_cache(maxsize=1)
def int8_kernels() -> Kernels | None:
    """The loops; None without numba. The first call of a machine compiles them, which takes seconds."""
    try:
        numba = importlib.import_module("numba")
    except ImportError:
        return None
    codes, scales = _read_only(numba, numba.int8, 2), _read_only(numba, numba.float32, 1)
    query, rows = numba.int16[::1], _read_only(numba, numba.int64, 1)
    head, tail = (codes, scales, query), (numba.float32[::1], numba.int64, numba.int64)
    return Kernels(
        _compiled(numba, _scan, numba.void(*head, *tail)),
        _compiled(numba, _scan_rows, numba.void(*head, rows, *tail)),
    )


def _read_only(numba: Any, kind: Any, ndim: int) -> Any:
    # mapped arrays are read-only, and one that may be written is accepted where one that may not is declared
    return numba.types.Array(kind, ndim, "C", readonly=True)


def _compiled(numba: Any, loop: Callable[..., None], signature: Any) -> Callable[..., None]:
    try:
        return numba.njit(signature, nogil=True, cache=True)(loop)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder that the machine code could be kept in
        return numba.njit(signature, nogil=True)(loop)  # type: ignore[no-any-return]


# The product of a byte and 16 bits, summed up in 32 bits, is one instruction on x86 and ARM (pmaddwd, smlal).


def _scan(codes: Any, scales: Any, query: Any, out: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        total = np.int32(0)
        for column in range(codes.shape[1]):
            total += np.int32(codes[row, column]) * np.int32(query[column])
        out[row] = np.float32(total) * scales[row]


def _scan_rows(codes: Any, scales: Any, query: Any, rows: Any, out: Any, start: int, stop: int) -> None:
    for at in range(start, stop):
        row = rows[at]
        total = np.int32(0)
        for column in range(codes.shape[1]):
            total += np.int32(codes[row, column]) * np.int32(query[column])
        out[at] = np.float32(total) * scales[row]

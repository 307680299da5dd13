"""Seconds, raw first: percentiles are derived, and only from enough samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

__all__ = ["LEAST_FOR_P95", "LEAST_FOR_P99", "percentile", "summary_s", "timed"]

T = TypeVar("T")
#: Below these numbers of samples the percentile would be the maximum in disguise.
LEAST_FOR_P95, LEAST_FOR_P99 = 20, 100


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """The value of ``call()`` and the seconds it took, by the monotonic clock.

    A provider's `embed` returns float32 on the host, so the clock stops only when the values exist
    there: work still queued on a device is waited for, and counted.
    """
    started = time.perf_counter()
    value = call()
    return value, time.perf_counter() - started


def percentile(samples_s: Sequence[float], q: float) -> float | None:
    """The ``q``-th percentile (0 to 100) by linear interpolation between order statistics.

    None without samples. Hyndman and Fan (1996), definition 7, which is numpy's default.
    """
    return float(np.percentile(samples_s, q)) if len(samples_s) else None


def summary_s(samples_s: Sequence[float]) -> dict[str, float | None]:
    """``p50_s``, and ``p95_s`` from 20 samples on, ``p99_s`` from 100 on (None below)."""
    n = len(samples_s)
    return {
        "p50_s": percentile(samples_s, 50),
        "p95_s": percentile(samples_s, 95) if n >= LEAST_FOR_P95 else None,
        "p99_s": percentile(samples_s, 99) if n >= LEAST_FOR_P99 else None,
    }

"""Percentiles and clocks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.timing import percentile, summary_s, timed


def test_timed_gives_value_and_seconds() -> None:
    value, seconds = timed(lambda: time.sleep(0.02) or 7)
    assert value == 7
    assert 0.02 <= seconds < 1


@pytest.mark.parametrize(
    ("n", "p95", "p99"),
    [(1, False, False), (19, False, False), (20, True, False), (99, True, False), (100, True, True)],
)
def test_high_percentiles_need_enough_samples(n: int, p95: bool, p99: bool) -> None:
    summary = summary_s([0.01] * n)
    assert summary["p50_s"] == pytest.approx(0.01)
    assert (summary["p95_s"] is not None, summary["p99_s"] is not None) == (p95, p99)


def test_no_samples_give_nulls() -> None:
    assert summary_s([]) == {"p50_s": None, "p95_s": None, "p99_s": None}


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50), st.floats(0, 100))
def test_percentile_lies_within_the_samples(samples: list[float], q: float) -> None:
    value = percentile(samples, q)
    assert value is not None
    assert min(samples) <= value <= max(samples) + 1e-12
    assert percentile(samples, 50) == pytest.approx(float(np.median(samples)))

"""A change of latency against its own noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.noise import shift


def samples(n: int, median: float, spread: float, seed: int) -> list[float]:
    return (median * np.random.default_rng(seed).lognormal(0, spread, n)).tolist()  # type: ignore[no-any-return]


def test_eight_percent_with_fifteen_percent_spread_is_noise() -> None:
    """O40."""
    for aligned in (True, False):
        found = shift(samples(200, 0.05, 0.15, 1), samples(200, 0.054, 0.15, 2), 50, aligned=aligned)
        assert found is not None
        assert not found.beyond_noise
        assert found.noise > 0.1
        assert found.low < found.change < found.high


def test_a_change_larger_than_the_spread_is_beyond_it() -> None:
    for sign, median in ((1, 0.075), (-1, 0.033)):
        found = shift(samples(100, 0.05, 0.1, 1), samples(100, median, 0.1, 2), 50, aligned=True)
        assert found is not None
        assert found.beyond_noise
        assert math.copysign(1, found.change) == sign


def test_slow_queries_cancel_out_where_calls_correspond() -> None:
    """Queries ten times slower than others: a rise of a fifth shows when call meets call only."""
    base = np.geomspace(0.01, 0.1, 60)
    jitter = np.random.default_rng(0).lognormal(0, 0.02, (2, 60))
    old, new = (base * jitter[0]).tolist(), (base * 1.2 * jitter[1]).tolist()
    together = shift(old, new, 50, aligned=True)
    apart = shift(old, new, 50, aligned=False)
    assert together is not None
    assert apart is not None
    assert together.beyond_noise
    assert not apart.beyond_noise


def test_equal_runs_have_not_changed() -> None:
    found = shift([0.1] * 30, [0.1] * 30, 95, aligned=True)
    assert found is not None
    assert (found.change, found.low, found.high, found.noise, found.beyond_noise) == (0, 0, 0, 0, False)


def test_other_lengths_are_compared_as_they_are() -> None:
    found = shift(samples(30, 0.1, 0.05, 1), samples(60, 0.2, 0.05, 2), 95, aligned=True)
    assert found is not None
    assert found.change == pytest.approx(1.0, abs=0.15)
    assert found.beyond_noise


@pytest.mark.parametrize("bad", [[], [0.0, 1.0], [math.nan]])
def test_what_cannot_be_compared(bad: list[float]) -> None:
    assert shift(bad, [1.0], 50, aligned=True) is None
    assert shift([1.0], bad, 50, aligned=False) is None

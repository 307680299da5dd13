"""A step of a figure against how far runs drift apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.drift import LEAST_SPREAD, step, student_p
from rag_core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(12.706, 1, 0.05), (2.228, 10, 0.05), (3.169, 10, 0.01), (0.0, 4, 1.0)]
)
def test_students_tail_as_printed_tables_have_it(t: float, freedom: int, p: float) -> None:
    assert student_p(t, freedom) == pytest.approx(p, abs=2e-5)


def test_a_step_by_hand() -> None:
    before = [math.exp(v) for v in (0.0, 0.1, -0.1, 0.1, -0.1)]
    found = step(before, [math.exp(0.4)])
    t = 0.4 / (0.1 * math.sqrt(1 + 1 / 5))
    assert found.change == pytest.approx(math.expm1(0.4))
    assert found.p_value == pytest.approx(student_p(t, 4))
    assert found.spread == pytest.approx(math.expm1(0.1))
    assert found.low < found.change < found.high
    assert (found.n_before, found.n_new) == (5, 1)


def test_more_new_runs_tell_more() -> None:
    before = [1.0, 1.05, 0.95, 1.04, 0.97, 1.01]
    assert step(before, [1.15] * 3).p_value < step(before, [1.15]).p_value


def test_a_few_equal_runs_prove_no_steady_machine() -> None:
    found = step([1.0] * 5, [1.001])
    assert found.spread == pytest.approx(LEAST_SPREAD, rel=0.01)
    assert found.p_value > 0.5


def test_the_spread_may_come_from_other_runs() -> None:
    steady = [2.0, 2.02, 1.98, 2.01, 1.99]
    assert step([1.0], [1.3], steady).p_value < 0.01
    noisy = [2.0, 2.5, 1.6, 2.3, 1.8]
    assert step([1.0], [1.3], noisy).p_value > 0.1


def test_the_level_holds_when_nothing_changed() -> None:
    """1,000 histories of eight equal runs: rejections at 1 % are within a binomial's 99.9 % range."""
    rng = np.random.default_rng(6)
    values = rng.lognormal(0, 0.05, (1000, 9))
    rejected = sum(step(row[:8], row[8:]).p_value < 0.01 for row in values)
    assert 2 <= rejected <= 23


@pytest.mark.parametrize(
    ("before", "newest"), [([1.0], [1.0]), ([1.0, 0.0], [1.0]), ([1.0, 1.0], []), ([1.0, math.nan], [1.0])]
)
def test_what_cannot_be_tested_is_refused(before: list[float], newest: list[float]) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: at least one"):
        step(before, newest)

"""Mann and Whitney's test against published values and against counting every draw."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from harness.mannwhitney import EXACT_UP_TO, mann_whitney
from rag_core.errors import InvalidArgumentError


def test_a_published_example() -> None:
    """Ages at diagnosis, nine persons: U is 17 of 20, the exact two-sided p 1/9."""
    found = mann_whitney([20, 11, 17, 12], [19, 22, 16, 29, 24])
    assert (found.u, found.share, found.is_exact) == (17, 0.85, True)
    assert found.p_value == pytest.approx(1 / 9, rel=1e-12)


def test_complete_separation_is_the_smallest_p_there_is() -> None:
    found = mann_whitney(range(5), range(10, 15))
    assert found.u == 25
    assert found.p_value == pytest.approx(2 / math.comb(10, 5))


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6, 7], [1, 1, 2, 2, 2, 3, 9], [5, 5, 5, 5, 5, 5, 5]])
def test_exact_p_equals_counting_every_draw_ties_included(values: list[float]) -> None:
    def centred_u(second: list[float], first: list[float]) -> float:
        u = sum((b > a) + 0.5 * (b == a) for b in second for a in first)
        return abs(u - len(first) * len(second) / 2)

    for chosen in combinations(range(7), 3):
        second = [values[i] for i in chosen]
        first = [values[i] for i in range(7) if i not in chosen]
        draws = [
            centred_u([values[i] for i in c], [values[i] for i in range(7) if i not in c])
            for c in combinations(range(7), 3)
        ]
        expected = sum(d >= centred_u(second, first) for d in draws) / len(draws)
        assert mann_whitney(first, second).p_value == pytest.approx(expected)


def test_the_normal_approximation_with_ties() -> None:
    """Two columns of 20 with grades 1 to 4: by hand from the variance corrected for ties."""
    first, second = [1] * 8 + [2] * 6 + [3] * 4 + [4] * 2, [1] * 3 + [2] * 5 + [3] * 6 + [4] * 6
    found = mann_whitney(first, second)
    assert not found.is_exact
    u = sum((b > a) + 0.5 * (b == a) for b in second for a in first)
    assert found.u == u
    ties = sum(t**3 - t for t in (11, 11, 10, 8))
    variance = 20 * 20 / 12 * (41 - ties / (40 * 39))
    z = (abs(u - 200) - 0.5) / math.sqrt(variance)
    assert found.p_value == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-12)


def test_exact_and_normal_meet_where_one_takes_over() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, EXACT_UP_TO // 2), rng.normal(0.8, 1, EXACT_UP_TO // 2)
    exact, normal = mann_whitney(a, b), mann_whitney(np.append(a, 0.1), b)
    assert (exact.is_exact, normal.is_exact) == (True, False)
    assert exact.p_value == pytest.approx(normal.p_value, rel=0.5)


def test_swapping_the_samples_mirrors_the_share() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.lognormal(0, 1, 60), rng.lognormal(0.3, 1, 90)
    one, other = mann_whitney(a, b), mann_whitney(b, a)
    assert one.share == pytest.approx(1 - other.share)
    assert one.p_value == pytest.approx(other.p_value)


def test_equal_values_tell_nothing() -> None:
    assert mann_whitney([2.0] * 40, [2.0] * 40).p_value == 1.0


def test_the_level_holds_on_equal_distributions() -> None:
    """300 pairs of samples of one distribution: rejections at 5 % are within a binomial's 99.9 % range."""
    rng = np.random.default_rng(5)
    rejected = sum(
        mann_whitney(rng.lognormal(0, 1, 40), rng.lognormal(0, 1, 40)).p_value < 0.05 for _ in range(300)
    )
    assert 4 <= rejected <= 29


@pytest.mark.parametrize("bad", [[], [math.nan], [1.0, math.inf]])
def test_bad_samples_are_named(bad: list[float]) -> None:
    with pytest.raises(InvalidArgumentError, match="the second sample has"):
        mann_whitney([1.0], bad)

"""Effect sizes and numbers of queries."""

from __future__ import annotations

import math

import pytest

from harness.power import detectable, effect_size, queries_needed
from rag_core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("d", "n"),
    # G*Power 3.1, t test, difference between two dependent means, two tails, alpha 0.05, power 0.80
    [(0.2, 199), (0.3, 90), (0.5, 34), (0.8, 15)],
)
def test_the_number_of_queries_is_the_published_one(d: float, n: int) -> None:
    assert queries_needed(d, 1.0) == n
    assert queries_needed(-10 * d, 10.0) == n


def test_a_stricter_level_and_more_power_need_more_queries() -> None:
    plain = queries_needed(0.02, 0.2)
    assert plain is not None
    assert plain < (queries_needed(0.02, 0.2, alpha=0.05 / 19) or 0)
    assert plain < (queries_needed(0.02, 0.2, power=0.9) or 0)


def test_no_number_tells_nothing_and_few_cannot_tell_at_all() -> None:
    assert queries_needed(0.0, 0.3) is None
    # whatever the effect: six signs alike have p = 2 / 64, five 2 / 32 > 0.05
    assert queries_needed(0.9, 0.001) == 6
    assert detectable(5, 0.3) is None
    assert detectable(6, 0.3) is not None
    assert detectable(3, 0.3, alpha=0.0001) is None


def test_what_is_detectable_needs_just_these_queries() -> None:
    for n in (20, 180, 5000):
        least = detectable(n, 0.31)
        assert least is not None
        assert queries_needed(least, 0.31) in (n, n + 1)  # rounded up


def test_effect_size_is_in_standard_deviations() -> None:
    assert effect_size(0.1, 0.4) == pytest.approx(0.25)
    assert effect_size(0.1, 0.0) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"power": 1.0}, "power is 1.0"),
        ({"sd": math.nan}, "standard deviation nan"),
        ({"sd": -1.0}, "standard deviation -1.0"),
    ],
)
def test_bad_arguments_are_named(settings: dict[str, float], words: str) -> None:
    given = {"sd": 0.2, "alpha": 0.05, "power": 0.8, **settings}
    with pytest.raises(InvalidArgumentError, match=words):
        queries_needed(0.1, **given)
    with pytest.raises(InvalidArgumentError, match=words):
        detectable(100, **given)

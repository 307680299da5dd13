"""What is drawn once for many systems."""

from __future__ import annotations

import numpy as np
import pytest

from harness import resampling
from harness.significance import bootstrap_interval, paired_difference, paired_differences, randomisation_p
from harness.significance import patterns as patterns_for
from rag_core.errors import InvalidArgumentError

VALUES = np.clip(
    np.random.default_rng(2).beta(0.4, 0.5, (70, 1)) + np.random.default_rng(3).normal(0, 0.2, (70, 5)), 0, 1
)
PAIRS = [(0, 1), (3, 1), (2, 4), (4, 0)]


def test_a_pair_gets_the_same_figures_whatever_is_compared_beside_it() -> None:
    together = paired_differences(VALUES, PAIRS, seed=5, permutations=4000)
    for (i, j), found in zip(PAIRS, together):
        alone = paired_difference(VALUES[:, i], VALUES[:, j], seed=5, permutations=4000)
        assert found.p_value == alone.p_value
        assert (found.mean, found.n) == (alone.mean, 70)
        ends = (found.low, found.high, found.lower, found.upper)
        assert ends == pytest.approx((alone.low, alone.high, alone.lower, alone.upper), abs=1e-12)
        assert (found.low, found.high) == pytest.approx(
            bootstrap_interval(VALUES[:, i] - VALUES[:, j], seed=5), abs=1e-12
        )


def test_p_values_alone_are_the_same() -> None:
    expected = [found.p_value for found in paired_differences(VALUES, PAIRS, seed=1)]
    assert randomisation_p(VALUES, PAIRS, seed=1) == expected


def test_resampled_means_of_columns_are_those_of_each_column_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (resampling.BLOCK, 900):
        monkeypatch.setattr(resampling, "BLOCK", block)
        together = resampling.resampled_means(VALUES, 300, 4)
        assert together.shape == (300, 5)
        for column in range(5):
            alone = resampling.resampled_means(VALUES[:, column : column + 1], 300, 4)
            np.testing.assert_allclose(together[:, column], alone[:, 0], rtol=0, atol=1e-12)


def test_sums_under_signs_are_sums_under_signs() -> None:
    sums = resampling.sign_sums(np.eye(9), 500, 0)
    assert sums.shape == (500, 9)
    assert set(np.unique(sums)) == {-1.0, 1.0}  # of one query the sum is its sign
    assert abs(sums.mean()) < 4 / np.sqrt(sums.size)
    shifted = resampling.sign_sums(np.column_stack([np.eye(9), np.arange(9.0)]), 500, 0)
    np.testing.assert_allclose(shifted[:, 9], sums @ np.arange(9.0), atol=1e-12)


def test_a_large_family_draws_more_so_that_its_correction_can_be_passed() -> None:
    assert patterns_for(1) == patterns_for(100) == 10_000
    # Holm multiplies the least p value, 1 / (patterns + 1), by the size of the family
    assert 780 / (patterns_for(780) + 1) < 0.011


def test_the_one_sided_bounds_lie_inside_and_are_wider_than_plain_ones_for_few_queries() -> None:
    found = paired_differences(VALUES[:12], [(0, 1)])[0]
    low, high = bootstrap_interval(VALUES[:12, 0] - VALUES[:12, 1], level=0.9)
    assert found.low < found.lower < low
    assert high < found.upper < found.high
    for n in (2, 3, 4):  # Student's t is beyond what resampled means can show: their ends stand
        few = paired_differences(VALUES[:n], [(0, 1)])[0]
        gaps = VALUES[:n, 0] - VALUES[:n, 1]
        assert gaps.min() - 1e-12 <= few.lower < few.mean < few.upper <= gaps.max() + 1e-12
    single = paired_differences(VALUES[:1], [(0, 1)])[0]
    assert single.lower == single.upper == single.mean


@pytest.mark.parametrize(
    ("values", "settings", "words"),
    [
        ([0.1, 0.2], {}, r"shape \(2,\)"),
        ([[0.1, float("nan")]], {}, "not finite"),
        ([[0.1, 0.2]], {"resamples": 9}, "resamples is 9"),
        ([[0.1, 0.2]], {"level": 2.0}, "level is 2"),
    ],
)
def test_bad_arguments_are_named(values: object, settings: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        paired_differences(values, [(0, 1)], **settings)  # type: ignore[arg-type]

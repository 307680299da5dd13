"""Choosing by nested cross-validation: the default where all are equal, the better one where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.nested import choose, nested_choice
from rag_core.errors import InvalidArgumentError

WIDTHS = [range(3), range(12)]


def equal(seed: int, n: int = 60, m: int = 12) -> NDArray[np.float64]:
    """Twelve settings of the same worth: queries differ most, settings on a query a little."""
    random = np.random.default_rng(seed)
    return random.uniform(0, 1, (n, 1)) + random.normal(0, 0.15, (n, m))


def test_of_equal_settings_the_default_is_kept_and_the_estimate_has_no_bias() -> None:
    found = [nested_choice(equal(seed), WIDTHS, seed) for seed in range(60)]
    gains = np.array([choice.gain.mean for choice in found])
    assert sum(choice.sure for choice in found) <= 3
    assert abs(gains.mean()) < 3 * gains.std(ddof=1) / np.sqrt(60)
    # what the chosen setting shows on the queries it was chosen by is far from that
    seen = [equal(seed)[:, c.column].mean() - equal(seed)[:, 0].mean() for seed, c in enumerate(found)]
    assert np.mean(seen) > 0.02


@pytest.mark.parametrize("column", [2, 9])
def test_a_better_setting_is_found_narrow_or_wide(column: int) -> None:
    effect = np.zeros(12)
    effect[column] = 0.12
    found = [nested_choice(equal(seed) + effect, WIDTHS, seed) for seed in range(20)]
    assert sum(choice.column == column and choice.sure for choice in found) >= 18
    gains = np.array([choice.gain.mean for choice in found])
    assert gains.mean() == pytest.approx(0.12, abs=0.02)
    assert np.mean([choice.again for choice in found]) > 0.8


def test_the_same_seed_gives_the_same_answer_and_equal_settings_the_first() -> None:
    values = equal(3)
    one, two = nested_choice(values, WIDTHS, 7), nested_choice(values, WIDTHS, 7)
    assert (one.column, one.gain, one.again) == (two.column, two.gain, two.again)
    same = np.repeat(values[:, :1], 12, axis=1)
    choice = nested_choice(same, WIDTHS)
    assert (choice.column, choice.again, choice.gain.mean, choice.sure) == (0, 1.0, 0.0, False)


def test_no_row_is_judged_by_a_setting_that_it_helped_to_choose() -> None:
    """A setting that is worth something on one query alone can never be chosen without it."""
    values = np.zeros((40, 3))
    values[7, 2] = 1.0
    choice = nested_choice(values, [range(3)])
    assert choice.column == 2
    assert choice.held_out[7] == 0.0
    assert choice.gain.mean == 0.0


def test_inner_folds_prefer_a_narrow_search_that_does_as_well() -> None:
    values = np.zeros((50, 4))
    values[:, 1] = 0.5
    values[:, 3] = 0.5
    assert choose(values, [np.array([0, 1]), np.arange(4)], np.random.default_rng(0)) == 1


def test_rows_too_few_to_pair_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        nested_choice(np.zeros((0, 2)), [range(2)])

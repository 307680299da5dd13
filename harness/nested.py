"""Choosing one of several settings by measured values, and an honest estimate of what the choice gains.

A setting that is best on the queries it was chosen by looks better than it is. Nested cross-validation
(Varma and Simon, "Bias in error estimation when using cross-validation for model selection", BMC
Bioinformatics 7, 2006) therefore repeats the whole choice without a fold of the queries and takes the values
of that fold. The settings have nothing to fit, so that the mean over the queries at hand stands for an inner
validation of each; what inner folds do choose is how wide to search: with few queries the best of a hundred
settings is often worse than the best of ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.significance import PairedDifference, paired_difference

__all__ = ["FOLDS", "LEVEL", "REPEATS", "Choice", "choose", "nested_choice"]

#: Parts that the queries are dealt into, and times they are dealt anew: one partition's luck evens out.
FOLDS, REPEATS = 5, 10
#: Level of the interval of a gain. Values of left-out queries share the choices made on the others, so that
#: an interval that takes them as independent is too narrow (Bates, Hastie and Tibshirani, "Cross-validation:
#: what does it estimate and how well does it do it?", JASA 119, 2024). At this level the default is left
#: for 0.3 to 2.7 % of simulated sets without any gain, as 2.5 % would be due (``benchmarks/tuning.py``).
LEVEL = 0.98
#: Means closer than this are equal, and of equal settings the first is taken.
ROUNDING = 1e-12
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and what choosing so is worth.

    Attributes:
        column: the setting chosen on all rows.
        held_out: (n,) value of each row under the settings chosen without it, mean over the repeats.
        gain: ``held_out`` minus the first column (the default), paired by row; its interval at
            :data:`LEVEL`, to be read as one of 95 %.
        again: share of the outer choices that took ``column`` too.
    """

    column: int
    held_out: Floats
    gain: PairedDifference
    again: float

    @property
    def sure(self) -> bool:
        """Whether the gain's interval lies above 0 and the randomisation test says so too."""
        return self.gain.low > 0 and self.gain.p_value < 1 - LEVEL


def nested_choice(values: Floats, widths: Sequence[Sequence[int]], seed: int = 0) -> Choice:
    """Choose a column of ``values`` and estimate what that gains over column 0.

    Args:
        values: (n rows, m settings), the metric of each query under each setting; column 0 is the default.
        widths: sets of columns to choose among, the narrowest first; each with the default.
        seed: of the partitions; the same seed gives the same answer.

    Raises:
        InvalidArgumentError: fewer than two rows, or values that are not finite.
    """
    random = np.random.default_rng(seed)
    sets = [np.array(sorted(width), np.int64) for width in widths]
    chosen = choose(values, sets, random)
    n = len(values)
    gained, again, made = np.zeros(n), 0, 0
    for _ in range(REPEATS):
        fold = _dealt(n, random)
        for number in range(min(FOLDS, n)):
            out = fold == number
            column = choose(values[~out], sets, random)
            gained[out] += values[out, column] - values[out, 0]
            again += column == chosen
            made += 1
    held_out = values[:, 0] + gained / REPEATS
    gain = paired_difference(held_out, values[:, 0], LEVEL, seed=seed)
    return Choice(chosen, held_out, gain, again / made)


def choose(values: Floats, sets: Sequence[Ints], random: np.random.Generator) -> int:
    """The column to take on these rows: inner folds choose how wide to search, all rows which column."""
    n = len(values)
    fold = _dealt(n, random)
    sums = np.zeros((min(FOLDS, n), values.shape[1]))
    np.add.at(sums, fold, values)
    whole = sums.sum(axis=0)
    if len(sets) == 1 or n < 2:
        return _first_best(whole, sets[0])
    without = whole - sums
    worth = [
        sum(float(sums[number, _first_best(without[number], columns)]) for number in range(len(sums))) / n
        for columns in sets
    ]
    return _first_best(whole, sets[_first_of(np.array(worth))])


def _dealt(n: int, random: np.random.Generator) -> Ints:
    """A fold for each of ``n`` rows, of sizes that differ by one at most."""
    return random.permutation(np.arange(n) % min(FOLDS, n))


def _first_best(sums: Floats, columns: Ints) -> int:
    return int(columns[_first_of(sums[columns])])


def _first_of(values: Floats) -> int:
    return int(np.flatnonzero(values >= values.max() - ROUNDING * max(1.0, abs(values.max())))[0])

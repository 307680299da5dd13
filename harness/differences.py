"""Differences of systems on the queries that both have a value for, corrected for all tested together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.significance import PairedDifference, holm, paired_differences, patterns

__all__ = ["SURE", "Difference", "mean_of", "paired"]

#: Holm-corrected p value below which two systems are told apart.
SURE = 0.05
Floats = NDArray[np.float64]
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """One system minus another on the queries that both have a value for.

    Attributes:
        mean: mean difference of the metric.
        low, high: its 95 % bootstrap interval.
        p_value: of the randomisation test, two-sided.
        adjusted: the same after Holm's correction for all the comparisons made beside it.
        n: queries compared.
        relative: ``mean`` over the other system's mean; None where that is 0.
        lower, upper: one-sided 95 % bounds of ``mean``; None where they were not computed.
    """

    mean: float
    low: float
    high: float
    p_value: float
    adjusted: float
    n: int
    relative: float | None
    lower: float | None = None
    upper: float | None = None

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0 and the corrected p value is below :data:`SURE`."""
        return (self.low > 0 or self.high < 0) and self.adjusted < SURE


def mean_of(values: Values) -> float | None:
    """The mean of the values that are there; None without one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def paired(pairs: Sequence[tuple[Values, Values]], seed: int = 0) -> list[Difference | None]:
    """First minus second of each pair of value lists, row by row; rows that lack a value are left out.

    The p values are corrected together (Holm); None where a pair shares no row with two values.
    """
    groups: dict[bytes, list[int]] = {}
    arrays: list[tuple[Floats, Floats]] = []
    for place, (a, b) in enumerate(pairs):
        n = min(len(a), len(b))
        first, second = np.array(a[:n], np.float64), np.array(b[:n], np.float64)
        both = ~(np.isnan(first) | np.isnan(second))
        arrays.append((first[both], second[both]))
        if both.any():
            groups.setdefault(both.tobytes(), []).append(place)
    found: list[PairedDifference | None] = [None] * len(pairs)
    for places in groups.values():  # those of the same queries share what is drawn
        columns: dict[bytes, int] = {}
        wanted = tuple(
            (
                columns.setdefault(arrays[place][0].tobytes(), len(columns)),
                columns.setdefault(arrays[place][1].tobytes(), len(columns)),
            )
            for place in places
        )
        for place, got in zip(places, _family(tuple(columns), wanted, len(pairs), seed)):
            found[place] = got
    corrected = iter(holm([got.p_value for got in found if got is not None]))
    return [
        None if got is None else _difference(got, next(corrected), float(arrays[place][1].mean()))
        for place, got in enumerate(found)
    ]


def _difference(got: PairedDifference, adjusted: float, other: float) -> Difference:
    relative = got.mean / other if other else None
    return Difference(
        got.mean, got.low, got.high, got.p_value, adjusted, got.n, relative, got.lower, got.upper
    )


@lru_cache(maxsize=64)  # the terminal, the report and the plots ask for the same families
def _family(
    columns: tuple[bytes, ...], pairs: tuple[tuple[int, int], ...], size: int, seed: int
) -> list[PairedDifference]:
    """``size``: comparisons that are corrected together, of which ``pairs`` may be a part."""
    table = np.column_stack([np.frombuffer(column, np.float64) for column in columns])
    return paired_differences(table, pairs, seed=seed, permutations=patterns(size))

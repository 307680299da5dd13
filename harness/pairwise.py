"""Every system against every other: how sure the order is, how large the gap, how many queries would tell.

All pairs are corrected together. The best system is picked by the same figures that it is then tested with:
corrected for its own comparisons alone, one of 20 equal systems would be called worse than the best far more
often than in one run of 20 (``benchmarks/significance.py`` measures both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from harness.differences import SURE, Difference, paired
from harness.power import detectable, effect_size, queries_needed
from harness.results import CellResult

__all__ = [
    "EQUIVALENT",
    "FEWEST",
    "NOT_WORSE",
    "OPEN",
    "WORSE",
    "Pair",
    "all_pairs",
    "difference_verdict",
    "margin_verdict",
]

#: Differences of one query up to here are rounding: a tie.
ROUNDING = 1e-9
#: With fewer queries nothing is claimed of a margin: at 30 such claims are wrong in 5 % of simulated runs
#: (``benchmarks/significance.py``), at 15 in 8 %, at 5 in 17 %.
FEWEST = 30
EQUIVALENT, NOT_WORSE, WORSE, OPEN = "equivalent", "not worse", "worse", "open"


@dataclass(frozen=True, slots=True)
class Pair:
    """A system and another with no higher mean, on the queries that both have a value for.

    Attributes:
        better, other: cell ids.
        difference: better minus other; its ``adjusted`` p is Holm's over ``family`` pairs.
        wins, ties, losses: queries on which ``better`` is above, equal, below.
        sd: standard deviation of the differences over the queries (n − 1), in units of the metric.
        effect: Cohen's d_z, ``difference.mean / sd``; None without spread.
        needed: queries that would tell a true difference of this size with 80 % power at the level that one
            of ``family`` pairs is tested at, ``0.05 / family``; None where no number would.
        detectable: the smallest true difference that ``difference.n`` queries tell so; None for very few.
        family: pairs corrected together.
    """

    better: str
    other: str
    difference: Difference
    wins: int
    ties: int
    losses: int
    sd: float
    effect: float | None
    needed: int | None
    detectable: float | None
    family: int

    @property
    def sure(self) -> bool:
        """Whether the two are told apart."""
        return self.difference.sure


def all_pairs(cells: Sequence[CellResult], metric: str, seed: int = 0) -> list[Pair]:
    """Each two of ``cells`` that share a query with values of ``metric``, by the order of their means.

    Args:
        cells: judged ones; of equal means the first counts as the better.
        metric: name in ``CellResult.metrics``.
        seed: of the resampling.
    """
    ranked = sorted(
        (cell for cell in cells if cell.status == "ok" and cell.mean(metric) is not None),
        key=lambda cell: -(cell.mean(metric) or 0.0),
    )
    twos = list(combinations(ranked, 2))
    values = [(a.metrics[metric].per_query, b.metrics[metric].per_query) for a, b in twos]
    tested = [
        (two, both, found)
        for two, both, found in zip(twos, values, paired(values, seed))
        if found is not None
    ]
    return [_pair(a, b, both, found, len(tested)) for (a, b), both, found in tested]


def _pair(
    a: CellResult,
    b: CellResult,
    values: tuple[Sequence[float | None], Sequence[float | None]],
    found: Difference,
    family: int,
) -> Pair:
    n = min(map(len, values))
    first, second = (np.array(one[:n], np.float64) for one in values)  # None becomes NaN
    gaps = first - second
    gaps = gaps[~np.isnan(gaps)]
    wins, losses = int(np.sum(gaps > ROUNDING)), int(np.sum(gaps < -ROUNDING))
    sd = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
    mean = found.mean if abs(found.mean) > ROUNDING else 0.0
    level = SURE / family
    return Pair(
        a.key.cell_id,
        b.key.cell_id,
        found,
        wins,
        len(gaps) - wins - losses,
        losses,
        sd,
        effect_size(mean, sd),
        queries_needed(mean, sd, level),
        detectable(len(gaps), sd, level),
        family,
    )


def margin_verdict(pair: Pair, margin: float) -> str:
    """What the one-sided 95 % bounds say about ``other`` being worse than ``better`` by ``margin``.

    ``equivalent`` where both bounds lie within the margin (two one-sided tests: Schuirmann, Journal of
    Pharmacokinetics and Biopharmaceutics 15, 1987), ``not worse`` where ``other`` is behind by less than the
    margin, ``worse`` where by more, else ``open``. Each pair is judged on its own, without correction;
    one of fewer than :data:`FEWEST` queries is ``open``.
    """
    return difference_verdict(pair.difference, margin)


def difference_verdict(difference: Difference, margin: float) -> str:
    """:func:`margin_verdict` of the better minus the other."""
    lower, upper = difference.lower, difference.upper
    if lower is None or upper is None or difference.n < FEWEST:
        return OPEN
    if upper < margin:
        return EQUIVALENT if lower > -margin else NOT_WORSE
    return WORSE if lower > margin else OPEN

"""Every hybrid row beside its two legs and what no fusion of their ranks alone is asked to pass: the better
leg of each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.differences import Difference, mean_of, paired
from harness.rows import Row

__all__ = ["FusionRow", "fusion_rows"]


@dataclass(frozen=True, slots=True)
class FusionRow:
    """A hybrid row, its legs, and the differences on the same queries.

    Attributes:
        row: the hybrid.
        better, worse: its legs by their means, BM25 before the vectors where equal; ``worse`` is None where
            one leg was measured alone, as for the baseline.
        oracle: mean of the better leg of each query, in units of the metric: the ceiling; None with one leg.
        to_better, to_worse, to_oracle: hybrid minus each, the p values of each kind corrected together over
            all the hybrid rows (Holm); None where there is nothing to compare.
    """

    row: Row
    better: Row
    worse: Row | None
    oracle: float | None
    to_better: Difference | None
    to_worse: Difference | None
    to_oracle: Difference | None

    @property
    def lost(self) -> bool:
        """Whether the fusion is surely worse than its better leg."""
        return self.to_better is not None and self.to_better.sure and self.to_better.mean < 0


def fusion_rows(rows: Sequence[Row], metric: str, seed: int = 0) -> list[FusionRow]:
    """One entry per measured hybrid row that has a measured leg, in the order of ``rows``.

    The legs are the BM25 row and the vector row of the same provider, target, dtype and store.
    """
    chosen: list[tuple[Row, list[Row]]] = []
    for row in rows:
        if not row.ok or row.cell.key.pipeline != "hybrid":
            continue
        vector = replace(row.cell.key, pipeline="vector")
        legs = [leg for leg in rows if leg.ok and (leg.cell.key.pipeline == "bm25" or leg.cell.key == vector)]
        legs.sort(key=lambda leg: (-(leg.cell.mean(metric) or 0.0), leg.cell.key.pipeline))
        if legs:
            chosen.append((row, legs))
    values = [(_values(row, metric), [_values(leg, metric) for leg in legs]) for row, legs in chosen]
    tops = [_highest(*legs) if len(legs) == 2 else [] for _, legs in values]
    to_better = paired([(own, legs[0]) for own, legs in values], seed)
    to_worse = paired([(own, legs[1] if len(legs) == 2 else []) for own, legs in values], seed)
    to_oracle = paired([(own, top) for (own, _), top in zip(values, tops)], seed)
    return [
        FusionRow(
            row, legs[0], legs[1] if len(legs) == 2 else None, mean_of(top), first, second, third
        )
        for (row, legs), top, first, second, third in zip(chosen, tops, to_better, to_worse, to_oracle)
    ]  # fmt: skip


def _values(row: Row, metric: str) -> list[float | None]:
    return row.cell.metrics[metric].per_query


def _highest(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else max(a, b) for a, b in zip(first, second)]

"""Runs of a history against each other, each pair compared once, and where a chain of runs breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.compare import CellPair, Comparison, Mismatch, compare_clean
from harness.results import CellKey, CellResult, ResultDocument

__all__ = ["Pairs", "identity", "obstacle_text"]

#: In the place of a dtype: a cell that failed early does not know its own.
UNKNOWN = "-"


def identity(key: CellKey) -> CellKey:
    """What a cell is called from run to run, whatever its data set's name and its dtype."""
    return replace(key, data="", dtype=UNKNOWN)


def obstacle_text(found: Sequence[Mismatch]) -> str:
    """The fields that differ, named; at most three."""
    named = [mismatch.field for mismatch in found[:3]]
    return ", ".join(named) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


class Pairs:
    """Comparisons of a list of documents, made when asked for and kept.

    Attributes:
        documents: as :func:`harness.rows.clean` made them.
        metrics: the metrics that are compared; speed is judged elsewhere, against the drift of the runs.
    """

    def __init__(
        self,
        documents: Sequence[ResultDocument],
        metrics: Sequence[str],
        *,
        allow_other_machine: bool = False,
    ) -> None:
        self.documents = documents
        self.metrics = tuple(metrics)
        self._allow = allow_other_machine
        self._cells = [{identity(cell.key): cell for cell in document.cells} for document in documents]
        self._made: dict[tuple[int, int], tuple[Comparison, dict[CellKey, CellPair]]] = {}

    def cell(self, place: int, key: CellKey) -> CellResult | None:
        """The cell of that identity in document ``place``."""
        return self._cells[place].get(key)

    def comparison(self, old: int, new: int) -> Comparison:
        """Document ``new`` against ``old``: metrics only."""
        return self._pair(old, new)[0]

    def cells(self, old: int, new: int, key: CellKey) -> CellPair | None:
        """The pair of cells of that identity; None where they do not meet."""
        return self._pair(old, new)[1].get(key)

    def obstacle(self, old: int, new: int, key: CellKey, *, is_speed: bool) -> str:
        """The fields that forbid comparing the two cells; empty where nothing does."""
        made = self.comparison(old, new)
        found = list(made.mismatches) + (list(made.speed_mismatches) if is_speed else [])
        if not found:
            pair = self.cells(old, new, key)
            if pair is None:
                return "dtype"
            found = list(pair.mismatches)
        return obstacle_text(found)

    def _pair(self, old: int, new: int) -> tuple[Comparison, dict[CellKey, CellPair]]:
        if (old, new) not in self._made:
            made = compare_clean(
                self.documents[old],
                self.documents[new],
                metrics=self.metrics,
                speed=(),
                allow_other_machine=self._allow,
            )
            self._made[old, new] = made, {identity(pair.new.key): pair for pair in made.cells}
        return self._made[old, new]

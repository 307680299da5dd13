"""The rows of a version to come, and the table that they and the rows before make: sorted on disk, merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.index_table import LIVE, ROW, STRIDE, Rows, Table
from rag_core.packed_write import ArrayWriter, StringsWriter
from rag_core.spill import Run, Spill, merge, write_run

__all__ = ["NewRows", "live_rows", "write_table"]

#: New rows that are sorted by themselves; about 200 bytes each until they are written.
BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Some new rows in order of their ids."""

    ids: Run
    rows_at: int


class NewRows:
    """Ids, each once and in any order, and a :data:`~rag_core.index_table.ROW` for each.

    A block of them is in memory, the others in an unnamed file of ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: list[bytes] = []
        self._rows: list[Rows] = []
        self._sorted: list[_Sorted] = []
        self._count = 0
        self._spill: Spill | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Sequence[str], rows: Rows) -> None:
        """Take in ``rows`` of ``ids``.

        Raises:
            OSError: the disk is full or refuses.
        """
        self._ids += [doc_id.encode("utf-8", "surrogatepass") for doc_id in ids]
        self._rows.append(rows)
        self._count += len(ids)
        if len(self._ids) >= BLOCK:
            self._sort()

    def _sort(self) -> None:
        if not self._ids:
            return
        if self._spill is None:
            self._spill = Spill(self._folder)
        ids = self._ids
        order = sorted(range(len(ids)), key=ids.__getitem__)
        run = write_run(self._spill, [ids[i] for i in order])
        self._sorted.append(_Sorted(run, self._spill.write(np.concatenate(self._rows)[order])))
        self._ids, self._rows = [], []

    def runs(self) -> list[Run]:
        """All ids, in sorted runs."""
        self._sort()
        return [part.ids for part in self._sorted]

    def rows(self, run: int, start: int, stop: int) -> Rows:
        """Rows ``start`` to ``stop`` of a run."""
        assert self._spill is not None
        return self._spill.read(self._sorted[run].rows_at, ROW, start, stop)

    def all_rows(self) -> Iterator[Rows]:
        """The rows of all runs, in parts."""
        for run, ids in enumerate(self.runs()):
            for start in range(0, len(ids), STRIDE):
                yield self.rows(run, start, min(len(ids), start + STRIDE))

    def close(self) -> None:
        """Remove the file."""
        if self._spill is not None:
            self._spill.close()


def write_table(
    folder: Path,
    old: Table,
    dropped: NDArray[np.bool_],
    added: NewRows,
    moved: Callable[[Rows], Rows],
) -> NDArray[np.bool_]:
    """Write the table of the ``old`` rows that are not ``dropped`` and those ``added`` into ``folder``.

    Args:
        moved: makes of rows, in order, what stands in the new table: their texts may move.

    Returns:
        Which rows of the new table were added, bool ``(n,)``: one byte a row.

    Raises:
        OSError: the disk is full or refuses.
    """
    is_new: list[NDArray[np.bool_]] = [np.zeros(0, bool)]
    looked_at = 0
    with StringsWriter(folder, "ids") as ids, ArrayWriter(folder / "rows.npy", ROW) as writer:
        for piece in merge([old.ids, *added.runs()]):
            parts, news, kept = [], [], []
            for run, start, stop in piece.parts:
                parts.append(added.rows(run - 1, start, stop) if run else old.rows[start:stop])
                kept.append(np.ones(stop - start, bool) if run else ~dropped[start:stop])
                news.append(np.full(stop - start, run > 0))
            stays = np.concatenate(kept)[piece.order]
            order = piece.order[stays]
            ids.append([piece.strings[i] for i in np.flatnonzero(stays).tolist()])
            writer.append(moved(np.concatenate(parts)[order]))
            is_new.append(np.concatenate(news)[order])
            looked_at += len(stays)
            if looked_at >= STRIDE:
                old.let_go()
                looked_at = 0
    return np.concatenate(is_new)


def live_rows(table: Table, wanted: NDArray[np.bool_] | None, size: int) -> Iterator[NDArray[np.int64]]:
    """The rows that are live, of those ``wanted`` (None: all), ascending, ``size`` at a time."""
    waiting = np.zeros(0, np.int64)
    for start in range(0, len(table), STRIDE):
        block = slice(start, start + STRIDE)
        is_live = table.rows["state"][block] == LIVE
        if wanted is not None:
            is_live &= wanted[block]
        waiting = np.concatenate([waiting, np.flatnonzero(is_live) + start])
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
            table.let_go()
    if len(waiting):
        yield waiting
    table.let_go()

"""What does not stay in memory while a version is made: arrays in an unnamed file, sorted strings merged.

Sorted runs are merged a piece at a time, each piece of all runs together: what is held is one budget of
strings, however many there are (external merge sort: Knuth, "The Art of Computer Programming", 5.4).
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Merged", "Run", "SortedStrings", "Spill", "merge", "write_run"]

#: Bytes up to which no file is made.
IN_MEMORY = 1 << 21
#: Strings held by a merge, of all runs together, and the fewest that are read of a run at once.
HELD, FEWEST = 1 << 15, 32
Array = NDArray[Any]


class Spill:
    """Arrays written one after the other and read back in parts.

    The file has no name: the system removes it with the process, however that ends.
    """

    def __init__(self, folder: Path, in_memory: int = IN_MEMORY) -> None:
        """``folder``: on the disk that has the room; ``in_memory``: bytes up to which no file is made."""
        self._file = tempfile.SpooledTemporaryFile(max(1, in_memory), "w+b", dir=str(folder))  # noqa: SIM115
        self._end = 0

    def write(self, array: Array) -> int:
        """Append ``array``; returns where it begins.

        Raises:
            OSError: the disk is full or refuses.
        """
        self._file.seek(self._end)
        at, data = self._end, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self._file.write(data)
        self._end += data.nbytes
        return at

    def read(self, at: int, dtype: Any, start: int, stop: int) -> Array:
        """Elements ``start`` to ``stop`` of the array of ``dtype`` that begins at ``at``; read-only."""
        size = np.dtype(dtype).itemsize
        self._file.seek(at + start * size)
        return np.frombuffer(self._file.read((stop - start) * size), dtype)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SortedStrings(Protocol):
    """Byte strings in ascending order, each once."""

    def __len__(self) -> int: ...

    def bytes_of(self, start: int, stop: int) -> list[bytes]:
        """Those from ``start`` to ``stop``."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """:class:`SortedStrings` in a :class:`Spill`."""

    spill: Spill
    blob_at: int
    offsets_at: int
    count: int

    def __len__(self) -> int:
        return self.count

    def bytes_of(self, start: int, stop: int) -> list[bytes]:
        """See :class:`SortedStrings`."""
        offsets = self.spill.read(self.offsets_at, np.int64, start, stop + 1).tolist()
        base = offsets[0]
        blob = self.spill.read(self.blob_at, np.uint8, base, offsets[-1]).tobytes()
        return [blob[a - base : b - base] for a, b in pairwise(offsets)]


def write_run(spill: Spill, strings: Sequence[bytes]) -> Run:
    """Write ``strings``, which are ascending."""
    offsets = np.zeros(len(strings) + 1, np.int64)
    np.cumsum([len(string) for string in strings], out=offsets[1:])
    blob_at = spill.write(np.frombuffer(b"".join(strings), np.uint8))
    return Run(spill, blob_at, spill.write(offsets), len(strings))


@dataclass(frozen=True, slots=True)
class Merged:
    """A piece of a merge: every string between two bounds, of all runs.

    Attributes:
        strings: ascending; one that stands in several runs stands here as often, in the order of the runs.
        order: int64, the place of each in ``parts``, one after the other.
        parts: (run, start, stop) in the order of the runs.
    """

    strings: list[bytes]
    order: NDArray[np.int64]
    parts: list[tuple[int, int, int]]


class _Head:
    """The part of a run that is in memory."""

    def __init__(self, number: int, run: SortedStrings, size: int) -> None:
        self.number, self._run, self._size = number, run, size
        self.strings: list[bytes] = []
        self._first = self._stop = 0

    @property
    def has_more(self) -> bool:
        """Whether strings of the run are still to be read."""
        return self._stop < len(self._run)

    def fill(self) -> bool:
        """Read on where nothing is left; whether there is anything."""
        if not self.strings and self.has_more:
            self._first = self._stop
            self._stop = min(len(self._run), self._stop + self._size)
            self.strings = self._run.bytes_of(self._first, self._stop)
        return bool(self.strings)

    def take(self, bound: bytes | None) -> tuple[list[bytes], tuple[int, int, int]]:
        """What does not lie above ``bound``, and where it stands in the run."""
        count = len(self.strings) if bound is None else bisect_right(self.strings, bound)
        taken, self.strings = self.strings[:count], self.strings[count:]
        first, self._first = self._first, self._first + count
        return taken, (self.number, first, self._first)


def merge(runs: Sequence[SortedStrings], held: int = HELD) -> Iterator[Merged]:
    """The strings of all ``runs`` in order, piece by piece; none is empty.

    Args:
        held: strings in memory at a time.
    """
    size = max(FEWEST, held // max(1, len(runs)))
    heads = [_Head(number, run, size) for number, run in enumerate(runs)]
    while heads := [head for head in heads if head.fill()]:
        # beyond the least of the last strings at hand, a run may hold what has not been read
        bound = min((head.strings[-1] for head in heads if head.has_more), default=None)
        joined: list[bytes] = []
        parts: list[tuple[int, int, int]] = []
        for head in heads:
            taken, place = head.take(bound)
            if taken:
                joined += taken
                parts.append(place)
        order = sorted(range(len(joined)), key=joined.__getitem__)  # runs in order: little to compare
        yield Merged([joined[i] for i in order], np.array(order, np.int64), parts)

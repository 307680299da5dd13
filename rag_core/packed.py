"""Many strings in two arrays: opened by mapping, with nothing parsed, and searched by bisection."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PackedStrings", "let_go", "map_array", "packed", "write_array"]

#: Strings from one signpost of :meth:`PackedStrings.find` to the next.
STEP = 8
#: Answers of :meth:`PackedStrings.find` kept: the words of queries come again.
KEPT = 1 << 15
#: Up to so many bytes, ASCII strings are kept as one text, whose slices cost half as much as decoding.
WHOLE = 1 << 22
#: Once 1 / TAKEN as many strings as so small a list has were taken, or 1 / SOUGHT as many searched for, all
#: are kept as strings, or in a dictionary: making them costs about what was spent on those.
TAKEN, SOUGHT = 8, 32


class PackedStrings:
    """A list of strings as one UTF-8 blob (uint8) and its offsets (int64, one more than strings)."""

    __slots__ = (
        "_blob", "_blob_view", "_found", "_offsets", "_offsets_view", "_places", "_signposts", "_sought",
        "_strings", "_taken", "_text",
    )  # fmt: skip

    def __init__(self, blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._blob, self._offsets = blob, offsets
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self._blob_view, self._offsets_view = blob.data, offsets.data
        self._signposts: memoryview | None = None
        self._found: dict[str, int] = {}
        self._text: str | None = None
        self._strings: list[str] | None = None
        self._places: dict[str, int] | None = None
        self._taken = self._sought = 0

    @classmethod
    def pack(cls, strings: Sequence[str]) -> PackedStrings:
        """Pack ``strings`` in the order given."""
        return cls(*packed([string.encode("utf-8", "surrogatepass") for string in strings]))

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedStrings, (self._blob, self._offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def bytes_of(self, start: int, stop: int) -> list[bytes]:
        """Strings ``start`` to ``stop`` as they are packed."""
        offsets = self._offsets[start : stop + 1].tolist()
        blob = self._blob[offsets[0] : offsets[-1]].tobytes()
        return [blob[a - offsets[0] : b - offsets[0]] for a, b in pairwise(offsets)]

    def let_go(self) -> None:
        """See :func:`let_go`."""
        let_go(self._blob)
        let_go(self._offsets)

    def _bytes(self, index: int) -> bytes:
        return self._blob_view[self._offsets_view[index] : self._offsets_view[index + 1]].tobytes()

    def __getitem__(self, index: int) -> str:
        return self._bytes(index).decode("utf-8", "surrogatepass")

    def take(self, indices: NDArray[np.integer[Any]]) -> list[str]:
        """The strings at ``indices``, in their order."""
        if self._strings is not None:
            return [*map(self._strings.__getitem__, indices.tolist())]
        self._taken += len(indices)
        if self._taken * TAKEN > len(self) and len(self._blob_view) <= WHOLE:
            self._strings = self._all()
        spans = zip(self._offsets[indices].tolist(), self._offsets[indices + 1].tolist())
        return self._cut_out(spans)

    def _all(self) -> list[str]:
        return self._cut_out(pairwise(self._offsets.tolist()))

    def _cut_out(self, spans: Iterable[tuple[int, int]]) -> list[str]:
        """The strings from each start to its stop."""
        text = self._text
        if text is None:
            whole = self._blob_view if len(self._blob_view) <= WHOLE else b"\xff"
            text = self._text = str(whole, "ascii") if bytes(whole).isascii() else ""
        if text:  # one character a byte
            return [text[start:stop] for start, stop in spans]
        blob = self._blob_view
        return [str(blob[start:stop], "utf-8", "surrogatepass") for start, stop in spans]

    def find(self, string: str) -> int:
        """The position of ``string``, or -1. The strings must have been packed in order of their bytes."""
        places = self._places
        if places is not None:
            return places.get(string, -1)
        position = self._found.get(string)
        if position is None:
            self._sought += 1
            if self._sought * SOUGHT > len(self) and len(self._blob_view) <= WHOLE:
                self._places = dict(zip(self._all(), range(len(self))))
            if len(self._found) >= KEPT:
                self._found.clear()
            position = self._found[string] = self._find(string)
        return position

    def _find(self, string: str) -> int:
        wanted = string.encode("utf-8", "surrogatepass")
        signposts = self._signposts
        if signposts is None:
            signposts = self._signposts = self._first_bytes(np.arange(0, len(self), STEP)).data
        prefix = int.from_bytes(wanted[:8].ljust(8, b"\0"), "big")
        # All strings up to the signpost before `low` come before `wanted`, those from `high` on behind it.
        post = bisect_left(signposts, prefix)
        low, end = max(0, post - 1) * STEP, post
        if post < len(signposts) and signposts[post] == prefix:
            end = bisect_right(signposts, prefix, post)
        high = min(len(self), end * STEP)
        blob, offsets = self._blob_view, self._offsets_view
        while low < high:
            middle = (low + high) // 2
            found = blob[offsets[middle] : offsets[middle + 1]].tobytes()
            if found == wanted:
                return middle
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return -1

    def _first_bytes(self, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The first eight bytes of each string as one number, a shorter one filled up with zeros."""
        starts, stops = self._offsets[indices], self._offsets[indices + 1]
        numbers = np.zeros(len(indices), np.uint64)
        for at in range(8):
            numbers <<= np.uint64(8)
            held = np.flatnonzero(starts + at < stops)
            numbers[held] |= self._blob[starts[held] + at]
        return numbers

    def save(self, folder: Path, name: str) -> None:
        """Write ``name.blob.npy`` and ``name.offsets.npy``."""
        write_array(folder / f"{name}.blob.npy", self._blob)
        write_array(folder / f"{name}.offsets.npy", self._offsets)

    @classmethod
    def open(cls, folder: Path, name: str) -> PackedStrings:
        """Map what :meth:`save` wrote."""
        return cls(map_array(folder / f"{name}.blob.npy"), map_array(folder / f"{name}.offsets.npy"))


def packed(parts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """``parts`` one after the other, and where each begins and the last one ends."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.frombuffer(b"".join(parts), np.uint8), offsets


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write ``array`` in numpy's format and flush it to disk."""
    with path.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())


def map_array(path: Path) -> NDArray[Any]:
    """What :func:`write_array` wrote, mapped and read-only.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is damaged.
    """
    with path.open("rb") as stream:
        major, _ = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    if 0 in shape:  # an array without elements cannot be mapped
        return np.zeros(shape, dtype)
    # a plain view: slices of a memmap object cost microseconds more
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def let_go(array: NDArray[Any]) -> None:
    """Take the pages of a mapped array out of this process's memory; those used again are read again.

    For who has gone through a whole array: its pages would count as memory of this process until the
    system needs the room. Nothing happens to other arrays, and on systems without the call.
    """
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is not None and (advice := getattr(mmap, "MADV_DONTNEED", None)) is not None:
        base.madvise(advice)

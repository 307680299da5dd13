"""Many strings in two arrays: opened by mapping, with nothing parsed; :mod:`.packed_find` searches them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rag_core.packed_find import FREE, ByBisection, ByHash, hash_table, home_mask

__all__ = ["PackedStrings", "let_go", "map_array", "packed", "write_array"]

#: Up to so many bytes, ASCII strings are kept as one text, whose slices cost half as much as decoding.
WHOLE = 1 << 22
#: Once 1 / TAKEN as many strings as so small a list has were taken, all are kept as strings: making them
#: costs about what was spent on those.
TAKEN = 8


class PackedStrings:
    """A list of strings as one UTF-8 blob (uint8) and its offsets (int64, one more than strings).

    ``places`` is the hash table (int32) that :meth:`hashed` makes, None without.
    """

    __slots__ = (
        "_blob", "_blob_view", "_finder", "_offsets", "_offsets_view", "_places", "_strings", "_taken",
        "_text",
    )  # fmt: skip

    def __init__(
        self, blob: NDArray[np.uint8], offsets: NDArray[np.int64], places: NDArray[np.int32] | None = None
    ) -> None:
        self._blob, self._offsets, self._places = blob, offsets, places
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self._blob_view, self._offsets_view = blob.data, offsets.data
        self._finder = ByBisection(blob, offsets) if places is None else ByHash(blob, offsets, places)
        self._text: str | None = None
        self._strings: NDArray[np.object_] | None = None
        self._taken = 0

    @classmethod
    def pack(cls, strings: Sequence[str]) -> PackedStrings:
        """Pack ``strings`` in the order given."""
        return cls(*packed([string.encode("utf-8", "surrogatepass") for string in strings]))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The blob, the offsets, and the hash table where there is one."""
        held = (self._blob, self._offsets)
        return held if self._places is None else (*held, self._places)

    def hashed(self) -> PackedStrings:
        """The same strings, which must be distinct, with a hash table: :meth:`find` is then fastest."""
        if self._places is not None:
            return self
        return PackedStrings(self._blob, self._offsets, hash_table(self._blob, self._offsets))

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedStrings, self.arrays

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
            return self._strings.take(indices).tolist()  # type: ignore[no-any-return]
        self._taken += len(indices)
        if self._taken * TAKEN > len(self) and len(self._blob_view) <= WHOLE:
            self._strings = np.array(self._all(), object)
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

    @property
    def find(self) -> Callable[[str], int]:
        """Of a string, its position, or -1; strings without a hash table must be in order of their bytes."""
        return self._finder.find

    def save(self, folder: Path, name: str) -> None:
        """Write ``name.blob.npy``, ``name.offsets.npy`` and ``name.places.npy``, the hash table, if any."""
        write_array(folder / f"{name}.blob.npy", self._blob)
        write_array(folder / f"{name}.offsets.npy", self._offsets)
        self.save_places(folder, name)

    def save_places(self, folder: Path, name: str) -> None:
        """Write the hash table alone, where there is one."""
        if self._places is not None:
            write_array(folder / f"{name}.places.npy", self._places)

    @classmethod
    def open(cls, folder: Path, name: str) -> PackedStrings:
        """Map what :meth:`save` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged.
        """
        blob, offsets = map_array(folder / f"{name}.blob.npy"), map_array(folder / f"{name}.offsets.npy")
        try:
            places = map_array(folder / f"{name}.places.npy")
        except FileNotFoundError:
            return cls(blob, offsets)
        if places.dtype != np.int32 or len(places) < home_mask(len(offsets) - 1) + 2 or places[-1] != FREE:
            raise ValueError(f"{name}.places.npy: {len(places)} places for {len(offsets) - 1} strings")
        return cls(blob, offsets, places)


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
        shape, fortran, dtype = read(stream)
        if dtype.hasobject:
            raise ValueError(f"{path.name} holds Python objects")
        if 0 in shape:  # an array without elements cannot be mapped
            return np.zeros(shape, dtype)
        order: Literal["F", "C"] = "F" if fortran else "C"
        # a plain view: slices of a memmap object cost microseconds more
        return np.asarray(np.memmap(stream, dtype, "r", stream.tell(), shape, order))


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

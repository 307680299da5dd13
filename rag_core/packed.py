"""Many strings in two arrays: opened by mapping, with nothing parsed, and searched by bisection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PackedStrings", "map_array", "write_array"]


class PackedStrings:
    """A list of strings as one UTF-8 blob (uint8) and its offsets (int64, one more than strings)."""

    __slots__ = ("_blob", "_blob_view", "_offsets", "_offsets_view")

    def __init__(self, blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._blob, self._offsets = blob, offsets
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self._blob_view, self._offsets_view = blob.data, offsets.data

    @classmethod
    def pack(cls, strings: Sequence[str]) -> PackedStrings:
        """Pack ``strings`` in the order given."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(part) for part in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedStrings, (self._blob, self._offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _bytes(self, index: int) -> bytes:
        return self._blob_view[self._offsets_view[index] : self._offsets_view[index + 1]].tobytes()

    def __getitem__(self, index: int) -> str:
        return self._bytes(index).decode("utf-8", "surrogatepass")

    def find(self, string: str) -> int:
        """The position of ``string``, or -1. The strings must have been packed in order of their bytes."""
        wanted = string.encode("utf-8", "surrogatepass")
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self._bytes(middle)
            if found == wanted:
                return middle
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return -1

    def save(self, folder: Path, name: str) -> None:
        """Write ``name.blob.npy`` and ``name.offsets.npy``."""
        write_array(folder / f"{name}.blob.npy", self._blob)
        write_array(folder / f"{name}.offsets.npy", self._offsets)

    @classmethod
    def open(cls, folder: Path, name: str) -> PackedStrings:
        """Map what :meth:`save` wrote."""
        return cls(map_array(folder / f"{name}.blob.npy"), map_array(folder / f"{name}.offsets.npy"))


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

"""Many strings in two arrays: opened by mapping, with nothing parsed, and searched by bisection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PackedStrings"]


class PackedStrings:
    """A list of strings as one UTF-8 blob (uint8) and its offsets (int64, one more than strings)."""

    __slots__ = ("_blob", "_offsets")

    def __init__(self, blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._blob, self._offsets = blob, offsets

    @classmethod
    def pack(cls, strings: Sequence[str]) -> PackedStrings:
        """Pack ``strings`` in the order given."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(part) for part in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _bytes(self, index: int) -> bytes:
        return self._blob[self._offsets[index] : self._offsets[index + 1]].tobytes()

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
        np.save(folder / f"{name}.blob.npy", self._blob, allow_pickle=False)
        np.save(folder / f"{name}.offsets.npy", self._offsets, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, name: str) -> PackedStrings:
        """Map what :meth:`save` wrote."""
        blob: Any = folder / f"{name}.blob.npy"
        mode: Any = "r" if blob.stat().st_size > 128 else None  # an empty array cannot be mapped
        offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False)
        return cls(np.load(blob, mmap_mode=mode, allow_pickle=False), offsets)

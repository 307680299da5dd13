"""Arrays and packed strings that are written as they come, of which nobody knows the length beforehand.

The files are those of :func:`rag_core.packed.write_array`, bit for bit.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArrayWriter", "StringsWriter"]


class ArrayWriter:
    """One array in a file of numpy's format; whole, and on the disk, after :meth:`close` or a ``with``."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._dtype, self.length = np.dtype(dtype), 0
        self._room = len(_header(self._dtype, 0))
        self._stream = path.open("wb")
        self._stream.write(bytes(self._room))

    def append(self, values: NDArray[Any]) -> None:
        """Write ``values`` after what is there.

        Raises:
            OSError: the disk is full or refuses.
        """
        part = np.ascontiguousarray(values, self._dtype)
        self._stream.write(part.reshape(-1).view(np.uint8).data)
        self.length += len(part)

    def close(self) -> None:
        """Write the header, now that the length is known, and flush all to the disk."""
        with self._stream:
            self._stream.seek(0)
            self._stream.write(_header(self._dtype, self.length, self._room))
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self._stream.close()


class StringsWriter:
    """A :class:`rag_core.packed.PackedStrings` in ``folder`` under ``name``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._blob = ArrayWriter(folder / f"{name}.blob.npy", np.uint8)
        self._offsets = ArrayWriter(folder / f"{name}.offsets.npy", np.int64)
        self._offsets.append(np.zeros(1, np.int64))

    def __len__(self) -> int:
        return self._offsets.length - 1

    def append(self, strings: Sequence[bytes]) -> None:
        """Write ``strings`` after what is there; OSError as of :meth:`ArrayWriter.append`."""
        ends = np.cumsum([len(string) for string in strings], dtype=np.int64)
        self._offsets.append(ends + self._blob.length)
        self._blob.append(np.frombuffer(b"".join(strings), np.uint8))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._blob.__exit__(*exception)
        self._offsets.__exit__(*exception)


def _header(dtype: np.dtype[Any], length: int, room: int = 0) -> bytes:
    """numpy's header of an array ``(length,)``, filled up to ``room`` bytes; it leaves room to grow."""
    stream = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(stream, described)
    header = stream.getvalue()
    if room and len(header) != room:
        raise ValueError(f"a header of {len(header)} bytes for an array of {length}; it has {room}")
    return header

"""Several numpy arrays one after the other in a file: written in parts, opened by mapping.

Each array stands in numpy's own ``.npy`` format, filled up with zeros to a multiple of 64 bytes, so that all
of them are aligned. Nothing is held in memory but the part at hand.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["map_arrays", "write_parts"]

ALIGNED = 64
Array = NDArray[Any]


def write_parts(stream: IO[bytes], shape: tuple[int, ...], dtype: Any, parts: Iterable[Array]) -> None:
    """Append an array of ``shape``, whose elements come in ``parts`` in the order of the file.

    Raises:
        ValueError: the parts hold another number of elements than ``shape``.
        OSError: the disk is full or refuses.
    """
    kind = np.dtype(dtype)
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    stream.write(header.getvalue())
    written = 0
    for part in parts:
        data = np.ascontiguousarray(part, kind)
        stream.write(data.reshape(-1).view(np.uint8).data)
        written += data.nbytes
    expected = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if written != expected:
        raise ValueError(f"an array of shape {shape} has {expected} bytes; its parts have {written}")
    stream.write(bytes(-written % ALIGNED))


def map_arrays(path: Path) -> list[Array]:
    """The arrays that :func:`write_parts` put into ``path``, read-only views of one mapping.

    Raises:
        OSError: the file is missing.
        ValueError: it is empty, cut or damaged.
    """
    whole = np.asarray(np.memmap(path, np.uint8, "r"))
    arrays: list[Array] = []
    with path.open("rb") as stream:
        while (offset := stream.tell()) < whole.size:
            if np.lib.format.read_magic(stream) != (1, 0):
                raise ValueError(f"{path.name} holds something else than arrays at byte {offset}")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
            start, size = stream.tell(), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if fortran or dtype.hasobject or start + size > whole.size:
                raise ValueError(f"{path.name} is cut: {whole.size} bytes, {start + size} or more belong")
            arrays.append(whole[start : start + size].view(dtype).reshape(shape))
            stream.seek(start + size + -size % ALIGNED)
    return arrays

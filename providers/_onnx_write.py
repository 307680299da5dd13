"""An ONNX file written with the standard library and numpy: the few messages of onnx.proto3 that it takes.

The `onnx` package would do the same with 20 MB more to install. Field numbers are those of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3), the wire format is that of protocol buffers:
a field is its number and kind as a varint, then a varint, four bytes, or a length and that many bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FLOAT",
    "INT4",
    "INT64",
    "attribute",
    "is_sealed",
    "model",
    "node",
    "sealed",
    "tensor",
    "value_info",
]

#: TensorProto.DataType.
FLOAT, INT64, INT4 = 1, 7, 22
_TYPES = {"float32": FLOAT, "uint8": 2, "int8": 3, "int32": 6, "int64": INT64, "float16": 10}


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _head(field, len(data)) + data


def _head(field: int, size: int) -> bytes:
    """What stands before ``size`` bytes."""
    return _varint(field << 3 | 2) + _varint(size)


def attribute(name: str, value: float | int | str | Sequence[int]) -> bytes:
    """AttributeProto of one float, whole number, string or list of whole numbers."""
    if isinstance(value, str):
        return _bytes(1, name) + _bytes(4, value) + _number(20, 3)
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return _bytes(1, name) + _number(3, value) + _number(20, 2)
    return _bytes(1, name) + b"".join(_number(8, item) for item in value) + _number(20, 7)


def node(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str = "",
    **attributes: float | int | str | Sequence[int],
) -> bytes:
    """NodeProto; ``""`` among the inputs stands for an optional one left out."""
    parts = [_bytes(1, name) for name in inputs] + [_bytes(2, name) for name in outputs]
    parts += [_bytes(3, outputs[0]), _bytes(4, kind)]
    parts += [_bytes(5, attribute(name, value)) for name, value in attributes.items()]
    return b"".join([*parts, _bytes(7, domain)])


def tensor(
    name: str, values: NDArray[np.generic], kind: int = 0, shape: Sequence[int] | None = None
) -> bytes:
    """TensorProto; ``kind`` and ``shape`` where they differ from the array's, as for packed 4-bit values."""
    dims = b"".join(_number(1, size) for size in (values.shape if shape is None else shape))
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    head = dims + _number(2, kind or _TYPES[values.dtype.name]) + _bytes(8, name) + _head(9, little.nbytes)
    return b"".join([head, little.reshape(-1).view(np.uint8).data])


def value_info(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """ValueInfoProto of a tensor; a str in ``shape`` names a size that is open."""
    dims = [_number(1, size) if isinstance(size, int) else _bytes(2, size) for size in shape]
    body = _number(1, kind) + _bytes(2, b"".join(_bytes(1, dim) for dim in dims))
    return _bytes(1, name) + _bytes(2, _bytes(1, body))


def model(
    name: str,
    nodes: Iterable[bytes],
    tensors: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    opsets: Mapping[str, int],
    ir_version: int,
) -> bytes:
    """ModelProto, ready to be written to a file."""
    fields = [(1, part) for part in nodes]
    fields += [(2, name.encode()), *((5, part) for part in tensors)]
    fields += [(11, part) for part in inputs]
    fields += [(12, part) for part in outputs]
    # joined once, at the end: the tensors are most of a process's memory while a file is made
    graph = [piece for field, part in fields for piece in (_head(field, len(part)), part)]
    sets = [_bytes(8, _bytes(1, domain) + _number(2, version)) for domain, version in opsets.items()]
    head = [_number(1, ir_version), _bytes(2, "rag-core-bench"), _head(7, sum(map(len, graph)))]
    return b"".join([*head, *graph, *sets])


#: Head of the closing field: ``doc_string`` of 64 characters.
_SEAL = _varint(6 << 3 | 2) + _varint(64)


def sealed(data: bytes) -> bytes:
    """The model ``data`` with a last field, its ``doc_string``, that is the SHA-256 of all before it."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def is_sealed(path: Path) -> bool:
    """Whether ``path`` is a file that ends with the seal of what it holds: neither cut short nor altered."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    body = memoryview(data)[: -64 - len(_SEAL)]
    return data.endswith(_SEAL + hashlib.sha256(body).hexdigest().encode())

"""An ONNX file's constants and nodes, read with the standard library and numpy: what was written is told by
:mod:`providers._onnx_write`, whose counterpart this is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import ProviderError

__all__ = ["Model", "Node", "read_model"]

#: TensorProto.DataType -> how numpy reads its ``raw_data``.
_DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
#: Wire type -> bytes, of the two whose width is fixed.
_FIXED = {1: 8, 5: 4}
#: Bits of the longest whole number.
_WIDEST = 64


@dataclass(frozen=True, slots=True)
class Node:
    """An operation: its kind, and the names of what it takes and makes."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A file's graph.

    Attributes:
        nodes: in the order of the file.
        tensors: its constants by name.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, NDArray[Any]]

    def maker(self, name: str) -> Node:
        """The node that makes ``name``.

        Raises:
            KeyError: none does.
        """
        for node in self.nodes:
            if name in node.outputs:
                return node
        raise KeyError(name)

    def taker(self, name: str) -> Node:
        """The first node that takes ``name``.

        Raises:
            KeyError: none does.
        """
        for node in self.nodes:
            if name in node.inputs:
                return node
        raise KeyError(name)

    def floats(self, name: str) -> NDArray[np.float32]:
        """A constant, or what casts and products make of constants: weights that are stored with scales.

        Raises:
            KeyError: it is neither.
        """
        if name in self.tensors:
            return np.asarray(self.tensors[name], np.float32)
        node = self.maker(name)
        if node.kind == "Cast":
            return self.floats(node.inputs[0])
        if node.kind == "Mul":
            left, right = (self.floats(each) for each in node.inputs)
            return np.asarray(left * right, np.float32)
        raise KeyError(name)


def read_model(path: Path) -> Model:
    """The graph in ``path``; constants in files of their own are not read.

    Raises:
        OSError: it cannot be read.
        ProviderError: it is not an ONNX file, or is cut short.
    """
    data = path.read_bytes()
    try:
        graph = next(bytes_ for field, bytes_ in _fields(memoryview(data)) if field == 7)
        nodes, tensors = [], {}
        for field, value in _fields(graph):
            if field == 1:
                nodes.append(_node(value))
            elif field == 5:
                name, values = _tensor(value)
                tensors[name] = values
    except (StopIteration, IndexError, ValueError, TypeError, KeyError) as error:
        raise ProviderError(f"{path} is not an ONNX model, or is damaged ({type(error).__name__}: {error})") \
            from error  # fmt: skip
    return Model(tuple(nodes), tensors)


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or the bytes.

    Raises:
        IndexError, ValueError: the message ends within a field, or has one of an unknown kind.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"a field of kind {wire}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes where {len(data) - at} are left")
        yield field, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The whole number at ``at``, and where what follows begins."""
    value = shift = 0
    while shift < _WIDEST:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a whole number of more than 64 bits")


def _node(data: memoryview) -> Node:
    found: dict[int, list[str]] = {1: [], 2: [], 4: []}
    for field, value in _fields(data):
        if field in found:
            found[field].append(bytes(value).decode())
    return Node(found[4][0], tuple(found[1]), tuple(found[2]))


def _tensor(data: memoryview) -> tuple[str, NDArray[Any]]:
    """Name and values; those of a tensor of unread form are of length 0."""
    dims: list[int] = []
    kind, name, raw = 0, "", memoryview(b"")
    for field, value in _fields(data):
        if field == 1:
            dims += [value] if isinstance(value, int) else _packed(value)
        elif field == 2:
            kind = value
        elif field == 8:
            name = bytes(value).decode()
        elif field == 9:
            raw = value
    if kind not in _DTYPES or (not raw and 0 not in dims):
        return name, np.empty(0, np.float32)
    return name, np.frombuffer(raw, _DTYPES[kind]).reshape(dims)


def _packed(data: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers

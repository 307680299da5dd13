"""Vectors out of a service's answer: each with the text it belongs to, and every doubtful one named."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rag_core.errors import PermanentError
from rag_core.protocols import Vectors

__all__ = ["Rows", "read_rows", "value_at", "width_of"]


class Rows(NamedTuple):
    """What one request brought.

    Attributes:
        vectors: float32 ``(n, dim)``; the rows of ``bad`` positions are zeros.
        bad: position -> what is wrong with its vector.
    """

    vectors: Vectors
    bad: dict[int, str]


def value_at(answer: Any, path: str) -> Any:
    """The value at a dotted ``path`` of nested objects; None where there is none."""
    for name in path.split("."):
        answer = answer.get(name) if isinstance(answer, Mapping) else None
    return answer


def width_of(rows: Any) -> int:
    """The width of the first vector; 0 where there is none."""
    first = rows[0] if isinstance(rows, list) and rows else None
    vector = _vector(first.get("embedding") if isinstance(first, Mapping) else first)
    return 0 if vector is None else len(vector)


def read_rows(rows: Any, count: int, dim: int, owner: str) -> Rows:
    """Match ``rows`` with ``count`` texts: by ``index`` where rows are objects, else by position.

    A position without a row, with several, or with a vector that is not finite, all zeros or of another
    width, is bad. Rows without an index whose number is not ``count`` cannot be matched: all are bad.

    Raises:
        PermanentError: every vector has another width than ``dim``.
    """
    vectors = np.zeros((count, dim), np.float32)
    bad: dict[int, str] = {}
    widths = set()
    for position, (raw, wrong) in enumerate(_by_position(rows, count)):
        vector = None if wrong else _vector(raw)
        if vector is None:
            bad[position] = f"the service's answer {wrong or 'holds something else than a vector'}"
            continue
        widths.add(len(vector))
        with np.errstate(all="ignore"):
            norm = float(np.sqrt(vector.astype(np.float64) @ vector))
        if len(vector) != dim:
            bad[position] = f"the service's vector is {len(vector)} wide, not {dim}"
        elif not np.isfinite(norm) or norm == 0:
            bad[position] = f"the service's vector has length {norm:g}, expected above 0"
        else:
            vectors[position] = vector
    if widths and dim not in widths:
        shown = ", ".join(map(str, sorted(widths)))
        raise PermanentError(
            f"{owner}: the service answers vectors {shown} wide; expected {dim} (option dim)"
        )
    return Rows(vectors, bad)


def _by_position(rows: Any, count: int) -> list[tuple[Any, str]]:
    """For each text its raw vector, or what is wrong with it."""
    if not isinstance(rows, list):
        return [(None, "holds no list of vectors")] * count
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        if len(rows) == count:
            return [(row, "") for row in rows]
        return [(None, f"holds {len(rows)} vectors for {count} texts")] * count
    found: list[tuple[Any, str]] = [(None, "has no vector of its index")] * count
    seen: set[int] = set()
    for row in rows:
        index = row.get("index")
        if not isinstance(index, int) or not 0 <= index < count:
            return [(None, f"has a vector of index {index!r} for {count} texts")] * count
        found[index] = (
            (None, "has several vectors of its index") if index in seen else (row.get("embedding"), "")
        )
        seen.add(index)
    return found


def _vector(raw: Any) -> Vectors | None:
    """``raw`` as float32: a list of numbers (``null`` is NaN) or base64 of little-endian float32."""
    try:
        if isinstance(raw, str):
            return np.frombuffer(base64.b64decode(raw, validate=True), "<f4").astype(np.float32)
        with np.errstate(over="ignore"):
            vector = np.array(raw, dtype=np.float32)
    except (binascii.Error, TypeError, ValueError):
        return None
    return vector if vector.ndim == 1 and vector.size else None

"""Vectors in memory under 32-byte keys, bounded in bytes; the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_core.protocols import Vectors

__all__ = ["ENTRY_BYTES", "VectorLRU"]

#: Bytes beside a vector: its key 65, its slot 28, the dictionary's entry about 100.
ENTRY_BYTES = 200


class VectorLRU:
    """One matrix of slots and a dictionary of keys. Not locked: the owner locks.

    Attributes:
        capacity: most vectors held.
        evictions: vectors that had to make room.
    """

    def __init__(self, max_bytes: int, dim: int) -> None:
        """Space is reserved at the first :meth:`put`, and taken by the system as it is filled."""
        self.capacity = max(0, max_bytes) // (4 * dim + ENTRY_BYTES)
        self.evictions = 0
        self._dim = dim
        self._slots: OrderedDict[bytes, int] = OrderedDict()
        self._vectors: Vectors = np.empty((0, dim), np.float32)
        self._written_at = np.empty(0)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def n_bytes(self) -> int:
        """Bytes in use; at most the bound."""
        return len(self._slots) * (4 * self._dim + ENTRY_BYTES)

    def read(self, keys: Sequence[bytes], out: Vectors, oldest: float) -> list[int]:
        """Copy the vectors of ``keys`` into the rows of ``out``, ``(len(keys), dim)``.

        Returns:
            The positions of the keys that are not here or were written before ``oldest`` (seconds).
        """
        slots = [self._slots.get(key, -1) for key in keys]
        rows = [row for row, slot in enumerate(slots) if slot >= 0 and self._written_at[slot] >= oldest]
        if rows:
            out[rows] = self._vectors[[slots[row] for row in rows]]
            for row in rows:
                self._slots.move_to_end(keys[row])
        if len(rows) == len(keys):
            return []
        found = set(rows)
        return [row for row in range(len(keys)) if row not in found]

    def put(self, keys: Sequence[bytes], vectors: Vectors, written_at: NDArray[np.float64]) -> None:
        """Insert or replace; of more than ``capacity`` the last ones stay.

        Args:
            keys: n different keys.
            vectors: float32 ``(n, dim)``; copied.
            written_at: ``(n,)`` seconds.
        """
        if not self.capacity or not keys:
            return
        if not len(self._vectors):
            self._vectors = np.empty((self.capacity, self._dim), np.float32)
            self._written_at = np.empty(self.capacity)
        first = max(0, len(keys) - self.capacity)
        slots = [self._slot(key) for key in keys[first:]]
        self._vectors[slots] = vectors[first:]
        self._written_at[slots] = written_at[first:]

    def _slot(self, key: bytes) -> int:
        slot = self._slots.get(key, -1)
        if slot >= 0:
            self._slots.move_to_end(key)
            return slot
        if len(self._slots) < self.capacity:
            slot = len(self._slots)  # nothing is ever removed alone, so the first n slots are in use
        else:
            slot = self._slots.popitem(last=False)[1]
            self.evictions += 1
        self._slots[key] = slot
        return slot

    def clear(self) -> None:
        """Forget everything and give the space back."""
        self._slots.clear()
        self._vectors, self._written_at = np.empty((0, self._dim), np.float32), np.empty(0)

"""Token vectors of documents kept in memory, because the same candidates come again for other queries."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENTRY_BYTES", "Tokens", "TokensCache", "text_key"]

#: What an entry costs beside its vectors: key, array and place in the table, rounded up.
ENTRY_BYTES = 400


class Tokens(NamedTuple):
    """A text as its token vectors of length 1, float32 (tokens, dim), and whether its end was cut."""

    vectors: NDArray[np.float32]
    is_cut: bool


def text_key(fingerprint: str, text: str) -> bytes:
    """16 bytes that stand for ``text`` as the model called ``fingerprint`` reads it."""
    hasher = hashlib.blake2b(fingerprint.encode(), digest_size=16)
    hasher.update(b"\0")
    hasher.update(text.encode("utf-8", "surrogatepass"))
    return hasher.digest()


class TokensCache:
    """Token vectors by key, up to a number of bytes; what was not asked for longest makes room.

    Vectors are kept in float32 as they were computed, so that a score is the same number with the cache
    and without it: halves would take half the room and move scores by about 1e-3 of a token's cosine,
    enough to swap near ties. They come back read-only, and any thread may ask.

    Attributes:
        max_bytes: size of the entries at most; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._kept: OrderedDict[bytes, Tokens] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def n_bytes(self) -> int:
        """Size of the entries kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> Tokens | None:
        """What is kept under ``key``, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: bytes, tokens: Tokens) -> None:
        """Keep ``tokens`` unless they alone are larger than the cache."""
        if _size(tokens) > self.max_bytes:
            return
        own = np.array(tokens.vectors, np.float32, order="C")  # a view would hold a whole batch in memory
        own.setflags(write=False)
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += _size(tokens) - (0 if before is None else _size(before))
            self._kept[key] = Tokens(own, tokens.is_cut)
            while self._bytes > self.max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= _size(oldest)


def _size(tokens: Tokens) -> int:
    return tokens.vectors.nbytes + ENTRY_BYTES

"""Where a string is among packed ones: by a hash table, or, in the order of their bytes, by bisection.

A string's place in the hash table is the CRC-32 of its bytes modulo the number of homes, or the next free
place behind: a search ends where none is held. There are at least twice as many homes as strings, and as many
places behind them as it takes for none to start again at the front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

__all__ = ["FREE", "ByBisection", "ByHash", "hash_table", "home_mask"]

#: What a place of the hash table holds that holds no string, and the position of what is not there.
FREE = -1
#: Strings hashed at a time.
HASHED = 1 << 14
#: Strings from one signpost of the bisection to the next.
STEP = 8
Blob = NDArray[np.uint8]
Offsets = NDArray[np.int64]


def home_mask(n_strings: int) -> int:
    """The bits of a hash that tell where among ``n_strings`` the search starts."""
    return (1 << (2 * n_strings).bit_length()) - 1


def hash_table(blob: Blob, offsets: Offsets) -> NDArray[np.int32]:
    """The hash table of distinct strings: their positions, :data:`FREE` where there is none."""
    n, mask, data = len(offsets) - 1, home_mask(len(offsets) - 1), blob.data
    home = np.empty(n, np.int64)
    for low in range(0, n, HASHED):  # a list of all offsets would take more memory than the table
        spans = pairwise(offsets[low : low + HASHED + 1].tolist())
        home[low : low + HASHED] = [crc32(data[start:stop]) & mask for start, stop in spans]
    order = np.argsort(home, kind="stable")
    along = np.arange(n)
    taken = home[order]
    taken -= along
    np.maximum.accumulate(taken, out=taken)
    taken += along  # its home, or behind the one before it
    places = np.full(max(mask, int(taken.max(initial=0))) + 2, FREE, np.int32)
    places[taken] = order
    return places


class ByHash:
    """With the places that :func:`hash_table` gave out."""

    def __init__(self, blob: Blob, offsets: Offsets, places: NDArray[np.int32]) -> None:
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self._blob, self._offsets, self._places = blob.data, offsets.data, places.data
        self._mask = home_mask(len(offsets) - 1)

    def find(self, string: str) -> int:
        """The position of ``string``, :data:`FREE` where it is not held."""
        wanted = string.encode("utf-8", "surrogatepass")
        places, blob, offsets = self._places, self._blob, self._offsets
        at = crc32(wanted) & self._mask
        while (position := places[at]) != FREE and blob[offsets[position] : offsets[position + 1]] != wanted:
            at += 1
        return position


class ByBisection:
    """Of strings in the order of their bytes; signposts are made when a string is first sought."""

    def __init__(self, blob: Blob, offsets: Offsets) -> None:
        self._arrays, self._blob, self._offsets = (blob, offsets), blob.data, offsets.data
        self._signposts: memoryview[Any] | None = None

    def find(self, string: str) -> int:
        """As of :meth:`ByHash.find`."""
        wanted = string.encode("utf-8", "surrogatepass")
        n, signposts = len(self._offsets) - 1, self._signposts
        if signposts is None:
            signposts = self._signposts = _first_bytes(*self._arrays, np.arange(0, n, STEP)).data
        prefix = int.from_bytes(wanted[:8].ljust(8, b"\0"), "big")
        # All strings up to the signpost before `low` come before `wanted`, those from `high` on behind it.
        post = bisect_left(signposts, prefix)
        low, end = max(0, post - 1) * STEP, post
        if post < len(signposts) and signposts[post] == prefix:
            end = bisect_right(signposts, prefix, post)
        high = min(n, end * STEP)
        blob, offsets = self._blob, self._offsets
        while low < high:
            middle = (low + high) // 2
            found = blob[offsets[middle] : offsets[middle + 1]].tobytes()
            if found == wanted:
                return middle
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return FREE


def _first_bytes(blob: Blob, offsets: Offsets, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The first eight bytes of each string as one number, a shorter one filled up with zeros."""
    starts, stops = offsets[indices], offsets[indices + 1]
    numbers = np.zeros(len(indices), np.uint64)
    for at in range(8):
        numbers <<= np.uint64(8)
        held = np.flatnonzero(starts + at < stops)
        numbers[held] |= blob[starts[held] + at]
    return numbers

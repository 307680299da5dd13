"""Where the records of 32-byte keys are: 16 bytes a record, thousands of keys looked up at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeyIndex"]

#: New records that are sorted by themselves before they are merged into the large part.
SMALL = 4096
#: ``segment number << 32 | record``.
Places = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """First words of keys in order, and their places; the newest first among equals."""

    words: Words
    places: Places

    @classmethod
    def merge(cls, newest_first: Iterable[_Sorted]) -> _Sorted:
        parts = list(newest_first)
        words = np.concatenate([part.words for part in parts])
        order = np.argsort(words, kind="stable")
        return cls(words[order], np.concatenate([part.places for part in parts])[order])

    def without(self, numbers: Sequence[int]) -> _Sorted:
        kept = ~np.isin(self.places >> 32, numbers)
        return _Sorted(self.words[kept], self.places[kept])


NOTHING = _Sorted(np.zeros(0, np.uint64), np.zeros(0, np.int64))


class KeyIndex:
    """A large sorted part, a small one, and what is not sorted yet. Not locked: the owner locks.

    It knows the first 8 bytes of each key; whether the whole key is the wanted one, the owner finds out.
    """

    def __init__(self) -> None:
        self._large, self._small, self._unsorted = NOTHING, NOTHING, list[_Sorted]()

    def add(self, number: int, first: int, words: Words) -> None:
        """Records ``first`` … of segment ``number`` have keys that begin with ``words``, ``(n,)``."""
        places = (number << 32) + np.arange(first, first + len(words), dtype=np.int64)
        self._unsorted.append(_Sorted(words[::-1].astype(np.uint64), places[::-1]))

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget the records of these segments."""
        self._sort()
        self._large, self._small = self._large.without(numbers), self._small.without(numbers)

    def clear(self) -> None:
        """Forget everything."""
        self._large, self._small, self._unsorted = NOTHING, NOTHING, []

    def candidates(self, words: Words, found: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], Places]]:
        """Where keys may be, round by round; newer records come before older ones.

        Args:
            words: first words of the wanted keys, ``(n,)``.
            found: ``(n,)``; the caller sets what it has found before it asks for the next round.

        Yields:
            Positions of wanted keys and a place for each: segment number << 32 | record.
        """
        self._sort()
        for part in (self._small, self._large):
            rest = np.flatnonzero(~found)
            at = part.words.searchsorted(words[rest])
            while rest.size:
                # a word that is not there leads to its successor or past the end
                here = at < len(part.words)
                rest, at = rest[here], at[here]
                same = part.words[at] == words[rest]
                rest, at = rest[same], at[same]
                if rest.size:
                    yield rest, part.places[at]
                    again = ~found[rest]
                    rest, at = rest[again], at[again] + 1

    def _sort(self) -> None:
        if self._unsorted:
            self._small = _Sorted.merge([*reversed(self._unsorted), self._small])
            self._unsorted.clear()
        if len(self._small.words) > max(SMALL, len(self._large.words) // 8):
            self._large, self._small = _Sorted.merge([self._small, self._large]), NOTHING

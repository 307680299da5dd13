"""The postings of BM25, and the exact best documents of a query from them, in numpy.

The terms of a query are taken in descending order of the most that each can add. Once the k-th best score so
far is out of reach of the terms that are left, no further document can be among the best: what is left is
then looked up for the few documents that can still be, and its postings, most of them as a rule, are
never read (MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995).

Impacts are float32 and sums float64: a sum is exact, so that no order of adding changes a bit, as long as
the impacts of a query spread over less than 2**28, which Lucene's idf keeps for up to some ten million texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARRAYS", "NumpyScorer", "Postings", "Scorer", "largest_impacts"]

#: A score short of the bar by less than this share may be a rounding error.
SLACK = 1e-9
#: Postings that must be left for it to pay to look whether they are needed.
SKIP = 4096
ARRAYS = ("starts", "rows", "impacts", "maxima")
Array = NDArray[Any]
NOTHING = (np.zeros(0, np.int64), np.zeros(0))


def largest_impacts(starts: Array, impacts: Array) -> NDArray[np.float32]:
    """The largest of each term's ``impacts``, 0 for a term without any; shape ``(n_terms,)``."""
    largest = np.zeros(len(starts) - 1, np.float32)
    held = np.flatnonzero(starts[1:] > starts[:-1])
    if held.size:
        largest[held] = np.maximum.reduceat(impacts, starts[held])
    return largest


class Postings:
    """Term ``t`` stands in the documents ``rows[starts[t]:starts[t + 1]]``, ascending, and adds ``impacts``.

    Attributes:
        starts: int64 ``(n_terms + 1,)``.
        rows: int32 ``(n_postings,)``, row numbers of documents.
        impacts: float32 ``(n_postings,)``, above 0.
        maxima: float32 ``(n_terms,)``, the largest impact of each term.
        n_rows: number of documents.
    """

    def __init__(self, arrays: Mapping[str, Array], n_rows: int) -> None:
        self.arrays, self.n_rows = {name: arrays[name] for name in ARRAYS}, n_rows
        self.starts, self.rows, self.impacts, self.maxima = self.arrays.values()
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self._starts, self._maxima = self.starts.data, self.maxima.data

    def __reduce__(self) -> tuple[Any, ...]:
        return Postings, (self.arrays, self.n_rows)

    def span(self, term: int) -> tuple[int, int]:
        """Where the postings of ``term`` start and stop."""
        return self._starts[term], self._starts[term + 1]

    def size(self, term: int) -> int:
        """In how many documents ``term`` stands."""
        return self._starts[term + 1] - self._starts[term]

    def bound(self, term: int) -> float:
        """The most that ``term`` adds to any document."""
        return float(self._maxima[term])


class Scorer(Protocol):
    """Finds the best documents of a query; all give the same rows and the same scores."""

    #: What computes, as a result records it.
    engine: str

    def best(self, found: Sequence[tuple[int, int]], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """The best ``k`` rows (int64) and their scores (float64): score descending, then row ascending.

        Args:
            found: the query's terms that are indexed, each once, and how often each is asked for.
            k: from 1.
            allowed: bool ``(n_rows,)``; None for all.
        """
        ...


class NumpyScorer:
    """Scores added up in one array as long as the corpus; a query touches the rows of its postings only."""

    engine = "numpy"

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        # Arrays of zeros, one for each thread that searches at the same time: taking and giving back are
        # atomic. One that an interrupted query may have left unclean is not given back.
        self._idle: list[Array] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyScorer, (self.postings,)

    def best(self, found: Sequence[tuple[int, int]], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """As of :class:`Scorer`."""
        if not found:
            return NOTHING
        if len(found) == 1:
            rows, values = self._read(*found[0], allowed)
            return _cut(rows, values.astype(np.float64), k)
        try:
            sums = self._idle.pop()
        except IndexError:
            sums = np.zeros(self.postings.n_rows)
        size = sum(self.postings.size(term) for term, _ in found)
        if size < 2 * SKIP:
            rows, scores = self._add_all(found, allowed, sums)
        else:
            rows, scores = self._add_needed(found, size, k, allowed, sums)
        self._idle.append(sums)
        return _cut(rows, scores, k)

    def _read(self, term: int, count: int, allowed: Array | None) -> tuple[Array, Array]:
        """Rows (int64, which numpy indexes with) and what the term adds to each (float32; float64 if asked twice)."""
        start, stop = self.postings.span(term)
        rows, values = self.postings.rows[start:stop].astype(np.int64), self.postings.impacts[start:stop]
        if allowed is not None:
            kept = allowed[rows]
            rows, values = rows[kept], values[kept]
        return rows, values if count == 1 else values * np.float64(count)

    def _add_all(
        self, found: Sequence[tuple[int, int]], allowed: Array | None, sums: Array
    ) -> tuple[Array, Array]:
        """Rows of all terms and their scores; a row that stands twice has 0 once. ``sums`` is left zero."""
        lists = []
        for term, count in found[:-1]:
            rows, values = self._read(term, count, allowed)
            sums[rows] = sums[rows] + values if lists else values
            lists.append(rows)
        return self._with_last(lists, *self._read(*found[-1], allowed), sums)

    def _add_needed(
        self, found: Sequence[tuple[int, int]], size: int, k: int, allowed: Array | None, sums: Array
    ) -> tuple[Array, Array]:
        """As :meth:`_add_all`, without some of the rows that are not among the best ``k``."""
        bounded = [(self.postings.bound(term) * count, term, count) for term, count in found]
        bounded.sort(reverse=True)
        left_bound = sum(bound for bound, _, _ in bounded)
        lists: list[Array] = []
        seen = 0
        for at, (bound, term, count) in enumerate(bounded[:-1]):
            rows, values = self._read(term, count, allowed)
            sums[rows] = sums[rows] + values if at else values
            lists.append(rows)
            left_bound, size, seen = left_bound - bound, size - self.postings.size(term), seen + rows.size
            if size >= max(SKIP, seen):
                at_least = self._kth(lists, k, sums)
                if at_least > left_bound * (1 + SLACK):
                    return self._finish(lists, bounded[at + 1 :], left_bound, at_least, sums)
        return self._with_last(lists, *self._read(*bounded[-1][1:], allowed), sums)

    @staticmethod
    def _kth(lists: Sequence[Array], k: int, sums: Array) -> float:
        """A score that at least ``k`` rows reach, 0 where that is not known; a row may stand in each list."""
        k *= len(lists)
        if sum(rows.size for rows in lists) < k:
            return 0.0
        scores = np.concatenate([sums[rows] for rows in lists])
        scores.partition(scores.size - k)
        return float(scores[-k])

    @staticmethod
    def _take(lists: Sequence[Array], sums: Array) -> list[Array]:
        """The sums of the rows of ``lists``, 0 where a row stands again; they are zero afterwards."""
        taken = []
        for rows in lists:
            taken.append(sums[rows])
            sums[rows] = 0.0
        return taken

    def _with_last(self, lists: list[Array], rows: Array, values: Array, sums: Array) -> tuple[Array, Array]:
        """As :meth:`_take`, with one more list, whose sums need not be written."""
        last = sums[rows] + values
        sums[rows] = 0.0
        return np.concatenate([*lists, rows]), np.concatenate([*self._take(lists, sums), last])

    def _finish(
        self,
        lists: Sequence[Array],
        left: Sequence[tuple[float, int, int]],
        left_bound: float,
        at_least: float,
        sums: Array,
    ) -> tuple[Array, Array]:
        """As :meth:`_take`, with the terms ``left`` looked up for rows that can still reach ``at_least``."""
        rows, scores = np.concatenate(lists), np.concatenate(self._take(lists, sums))
        for bound, term, count in left:
            near = (scores >= at_least - (left_bound + at_least) * SLACK - left_bound).nonzero()[0]
            rows, scores = rows[near], scores[near]
            start, stop = self.postings.span(term)
            listed = self.postings.rows[start:stop]
            places = listed.searchsorted(rows.astype(np.int32))
            places[places == listed.size] = 0
            hit = (listed[places] == rows).nonzero()[0]
            scores[hit] += self.postings.impacts[start:stop][places[hit]] * np.float64(count)
            left_bound -= bound
        return rows, scores


def _cut(rows: Array, scores: Array, k: int) -> tuple[Array, Array]:
    """The best ``k`` of distinct ``rows``, ordered; those of score 0 are copies or no hits."""
    threshold = 0.0
    if k < rows.size:
        parted = scores.copy()
        parted.partition(rows.size - k)
        threshold = parted[rows.size - k]
    near = (scores >= threshold if threshold > 0 else scores).nonzero()[0]
    rows, scores = rows[near], scores[near]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]

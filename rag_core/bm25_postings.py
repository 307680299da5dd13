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
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_core.packed import PackedStrings

__all__ = ["ARRAYS", "NumpyScorer", "Postings", "Scorer", "largest_impacts"]

#: A score short of the bar by less than this share may be a rounding error.
SLACK = 1e-9
#: Postings that must be left for it to pay to look whether they are needed.
SKIP = 4096
#: The k-th best score is seldom above this share of the most that one term adds: no use looking earlier.
LIKELY = 0.9
#: Up to so many postings, rows that stand in several lists are told apart by their places in all of them.
FEW = 2048
PLACES = np.arange(float(FEW))
PLACES.flags.writeable = False
ARRAYS = ("starts", "rows", "impacts", "maxima")
Array = NDArray[Any]
#: The most that it adds to a document, where its postings start and stop, how often it is asked for.
Term = tuple[float, int, int, int]
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
        terms: the term of each number.
        n_rows: number of documents.
    """

    def __init__(self, arrays: Mapping[str, Array], terms: PackedStrings, n_rows: int) -> None:
        self.arrays, self.terms, self.n_rows = {name: arrays[name] for name in ARRAYS}, terms, n_rows
        self.starts, self.rows, self.impacts, self.maxima = self.arrays.values()
        # A memoryview answers one element several times faster than an array, mapped ones above all.
        self.starts_view, self.maxima_view = self.starts.data, self.maxima.data

    def __reduce__(self) -> tuple[Any, ...]:
        return Postings, (self.arrays, self.terms, self.n_rows)

    def rows_of(self, term: int) -> Array:
        """The rows of the documents that hold ``term``, ascending."""
        return self.rows[self.starts_view[term] : self.starts_view[term + 1]]


class Scorer(Protocol):
    """Finds the best documents of a query; all give the same rows and the same scores."""

    #: What computes, as a result records it.
    engine: str

    def best(self, terms: Sequence[str], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """The best ``k`` rows (int64) and their scores (float64): score descending, then row ascending.

        Args:
            terms: the query's, as an analyser makes them: without a NUL, known or not; one that stands
                twice counts twice.
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

    def best(self, terms: Sequence[str], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """As of :class:`Scorer`."""
        counts: dict[int, int] = {}
        for number in self.postings.terms.positions(terms):
            counts[number] = counts.get(number, 0) + 1
        counts.pop(-1, None)
        return self._best(sorted(counts.items()), k, allowed)

    def _best(self, found: Sequence[tuple[int, int]], k: int, allowed: Array | None) -> tuple[Array, Array]:
        if not found:
            return NOTHING
        try:
            sums = self._idle.pop()
        except IndexError:
            sums = np.zeros(self.postings.n_rows)
        terms, left_bound, left = self._in_order(found)
        if left <= FEW:
            rows, scores = _once(sums, self._add(terms, allowed, sums)[0])
            self._idle.append(sums)
            return _cut(rows, scores, k)
        lists: list[Array] = []
        seen, added, at_least, worth = 0, 0, 0.0, LIKELY * terms[0][0]
        for at, (bound, start, stop, _) in enumerate(terms, 1):
            left_bound, left, seen = left_bound - bound, left - (stop - start), seen + (stop - start)
            if at < len(terms) and (left < max(SKIP, seen) or left_bound > worth):
                continue
            joined, ends = self._add(terms[added:at], allowed, sums)
            lists += [joined[start:stop] for start, stop in pairwise(ends)]
            added = at
            if at < len(terms):  # a row may stand in each list
                at_least = _reached(np.concatenate([sums.take(rows) for rows in lists]), k * at)
                if at_least > left_bound * (1 + SLACK):
                    break
        rows, scores = np.concatenate(lists), np.concatenate([_take(sums, rows) for rows in lists])
        self._idle.append(sums)
        for term in terms[added:]:
            near = (scores >= at_least * (1 - SLACK) - left_bound * (1 + SLACK)).nonzero()[0]
            rows, scores = rows[near], scores[near]
            self._look_up(term, rows, scores)
            left_bound -= term[0]
        return _cut(rows, scores, k)

    def _in_order(self, found: Sequence[tuple[int, int]]) -> tuple[list[Term], float, int]:
        """Terms in descending order of the most they add, the sum of that, and the number of postings."""
        starts, maxima = self.postings.starts_view, self.postings.maxima_view
        terms: list[Term] = [(maxima[t] * count, starts[t], starts[t + 1], count) for t, count in found]
        terms.sort(reverse=True)
        n_postings = sum([stop - start for _, start, stop, _ in terms])
        return terms, sum([bound for bound, _, _, _ in terms]), n_postings

    def _add(
        self, terms: Sequence[Term], allowed: Array | None, sums: Array
    ) -> tuple[NDArray[np.int64], list[int]]:
        """Add what ``terms`` give to ``sums``; the rows that they give to, and where those of each begin."""
        lists, values, ends, end = [], [], [0], 0
        for _, start, stop, count in terms:
            rows, given = self.postings.rows[start:stop], self.postings.impacts[start:stop]
            if allowed is not None:
                kept = allowed[rows]
                rows, given = rows[kept], given[kept]
            end += len(rows)
            ends.append(end)
            lists.append(rows)
            values.append(given if count == 1 else given * np.float64(count))
        joined = np.concatenate(lists, dtype=np.int64)
        np.add.at(sums, joined, np.concatenate(values, dtype=np.float64))
        return joined, ends

    def _look_up(self, term: Term, rows: Array, scores: Array) -> None:
        """Add what ``term`` gives to ``rows``, which may be in any order, to ``scores``."""
        _, start, stop, count = term
        listed = self.postings.rows[start:stop]
        places = listed.searchsorted(rows.astype(np.int32))
        places[places == listed.size] = 0
        hit = (listed[places] == rows).nonzero()[0]
        scores[hit] += self.postings.impacts[start:stop][places[hit]] * np.float64(count)


def _take(sums: Array, rows: Array) -> Array:
    """The sums of ``rows``, which are zero afterwards: a row of another list has its score once."""
    taken = sums.take(rows)
    sums[rows] = 0.0
    return taken


def _once(sums: Array, rows: Array) -> tuple[Array, Array]:
    """``rows`` and their sums, which are zero afterwards; of a row's several places one has its score."""
    scores, places = sums.take(rows), PLACES[: rows.size]
    sums[rows] = places  # the last one stays
    scores *= sums.take(rows) == places
    sums[rows] = 0.0
    return rows, scores


def _reached(scores: Array, n: int) -> float:
    """A score that at least ``n`` of ``scores`` reach, 0 where there are not so many; reorders ``scores``."""
    if scores.size < n:
        return 0.0
    scores.partition(scores.size - n)
    return float(scores[-n])


def _cut(rows: Array, scores: Array, k: int) -> tuple[Array, Array]:
    """The best ``k`` of ``rows``, ordered; a row may stand more than once, with a score above 0 once."""
    # The rarest terms' documents come first, and the best are mostly among them: their bar is nearly the bar.
    for head in (4 * k, None):
        if scores.size > 4 * k:
            near = (scores >= _reached(scores[:head].copy(), k)).nonzero()[0]
            rows, scores = rows.take(near), scores.take(near)
    order = np.lexsort((rows, -scores))[:k]
    rows, scores = rows[order], scores[order]
    hits = int(np.count_nonzero(scores))
    return rows[:hits], scores[:hits]

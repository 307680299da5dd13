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

from rag_core.packed import PackedStrings
from rag_core.packed_find import FREE

__all__ = ["ARRAYS", "NumpyScorer", "Postings", "Scorer", "largest_impacts"]

#: A score short of the bar by less than this share may be a rounding error.
SLACK = 1e-9
#: Up to so many postings are added up at once, and so many must be left for it to pay to look whether they
#: are needed.
FEW = 1 << 14
#: The k-th best score is seldom above this share of the most that one term adds: no use looking earlier.
LIKELY = 0.9
#: Seeking one document among postings costs about as much as reading this many of them.
LOOK_UP = 16
#: Of more entries, a sample tells first which are too low to be sorted out one by one.
SAMPLED = 1 << 14
#: Terms whose numbers are kept at hand: the words of queries come again.
KEPT = 1 << 14
ARRAYS = ("starts", "rows", "impacts", "maxima")
Array = NDArray[Any]
#: A term's number, where its postings are, and how often the query asks for it.
Asked = tuple[int, slice, int]
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
        # A memoryview answers one element several times faster than an array, mapped ones above all, and
        # cuts out a part in half the time.
        self.starts_view, self.maxima_view = self.starts.data, self.maxima.data
        self.rows_view, self.impacts_view = self.rows.data, self.impacts.data

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
        self.postings, self._find = postings, postings.terms.find
        self._numbers: dict[str, int] = {}
        # Arrays of zeros, one for each thread that searches at the same time: taking and giving back are
        # atomic. One that an interrupted query may have left unclean is not given back.
        self._idle: list[Array] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyScorer, (self.postings,)

    def best(self, terms: Sequence[str], k: int, allowed: Array | None) -> tuple[Array, Array]:
        """As of :class:`Scorer`."""
        asked = self._asked(terms)
        if not asked:
            return NOTHING
        try:
            sums = self._idle.pop()
        except IndexError:
            sums = np.zeros(self.postings.n_rows)
        if _n_postings(asked) <= FEW:
            rows = self._add(asked, allowed, sums)
        else:
            rows = self._add_what_counts(asked, k, allowed, sums)
        found = _best_of(rows, sums, k)
        sums[rows] = 0.0
        self._idle.append(sums)
        return found

    def _asked(self, terms: Sequence[str]) -> list[Asked]:
        """The terms that documents hold, each once, in the order of their numbers."""
        numbers, starts = self._numbers, self.postings.starts_view
        counts: dict[int, int] = {}
        for term in terms:
            number = numbers.get(term)  # an lru_cache or a __missing__ costs half as much as a search
            if number is None:
                number = self._look_up(term)
            counts[number] = counts[number] + 1 if number in counts else 1
        counts.pop(FREE, None)
        # sorted, so that the order of the query's words does not change the last bit of a sum
        return [
            (number, slice(starts[number], starts[number + 1]), counts[number]) for number in sorted(counts)
        ]

    def _look_up(self, term: str) -> int:
        """The number of ``term``, :data:`FREE` where no document holds it; kept."""
        if len(self._numbers) >= KEPT:
            self._numbers.clear()
        number = self._numbers[term] = self._find(term)
        return number

    def _add(self, asked: Sequence[Asked], allowed: Array | None, sums: Array) -> NDArray[np.int64]:
        """Add what the postings of ``asked`` give to ``sums``; the rows, list after list."""
        rows, impacts = self.postings.rows_view, self.postings.impacts_view
        spans = [span for _, span, _ in asked]
        # joined as bytes: np.concatenate takes longer where the lists are short
        joined = np.frombuffer(b"".join([rows[span] for span in spans]), np.int32).astype(np.int64)
        given = np.frombuffer(b"".join([impacts[span] for span in spans]), np.float32).astype(np.float64)
        counts = [count for _, _, count in asked]
        if max(counts) > 1:
            given *= np.repeat(np.array(counts, np.float64), [_n_postings([term]) for term in asked])
        if allowed is not None:
            kept = allowed.take(joined).nonzero()[0]
            joined, given = joined.take(kept), given.take(kept)
        np.add.at(sums, joined, given)
        return joined

    def _add_what_counts(
        self, asked: Sequence[Asked], k: int, allowed: Array | None, sums: Array
    ) -> NDArray[np.int64]:
        """Add up ``sums`` for all documents that can be among the best ``k``; their rows, some repeated."""
        maxima = self.postings.maxima_view
        terms = sorted([(maxima[term[0]] * term[2], term) for term in asked], reverse=True)
        lists: list[Array] = []
        added, seen, worth = 0, 0, LIKELY * terms[0][0]
        left_bound, left = sum([bound for bound, _ in terms]), _n_postings(asked)
        for at, (bound, term) in enumerate(terms, 1):
            size = _n_postings([term])
            left_bound, left, seen = left_bound - bound, left - size, seen + size
            if at < len(terms) and (left < max(FEW, seen) or left_bound > worth):
                continue
            lists.append(self._add([term for _, term in terms[added:at]], allowed, sums))
            added = at
            if at < len(terms):
                rows = np.concatenate(lists)
                scores = sums.take(rows)
                bar = _reached(scores.copy(), k * at)  # a row may stand in each list
                if bar > left_bound * (1 + SLACK):
                    near = scores >= bar * (1 - SLACK) - left_bound * (1 + SLACK)
                    sums[rows] = 0.0
                    rows = rows.compress(near)
                    sums[rows] = scores.compress(near)
                    for _, term in terms[at:]:
                        self._lift(term, rows, sums)
                    return rows
        return np.concatenate(lists)

    def _lift(self, asked: Asked, rows: NDArray[np.int64], sums: Array) -> None:
        """Add what the postings of ``asked`` give to ``rows``, the only ones whose ``sums`` are above 0."""
        _, span, count = asked
        listed, impacts = self.postings.rows[span], self.postings.impacts[span]
        if rows.size * LOOK_UP < listed.size:
            places = listed.searchsorted(rows.astype(np.int32))
            places[places == listed.size] = 0
            places = places[listed.take(places) == rows]
        else:
            places = sums.take(listed).nonzero()[0]
        # a place that stands twice gives the same sum twice
        sums[listed.take(places)] += impacts.take(places) * np.float64(count)


def _n_postings(asked: Sequence[Asked]) -> int:
    total: int = sum([span.stop - span.start for _, span, _ in asked])
    return total


def _reached(scores: Array, n: int) -> float:
    """A score that at least ``n`` of ``scores`` reach, 0 where there are not so many; reorders ``scores``."""
    if scores.size < n:
        return 0.0
    scores.partition(scores.size - n)
    reached: float = scores.item(-n)
    return reached


def _best_of(rows: NDArray[np.int64], sums: Array, k: int) -> tuple[Array, Array]:
    """The best ``k`` of ``rows``, of which some stand several times, by their ``sums``; ordered."""
    scores, wanted = sums.take(rows), 2 * k
    many = rows.size > SAMPLED
    sample = scores[:SAMPLED] if many else scores
    while True:  # the best entries, twice as many each time, until they hold k rows
        bar = _reached(sample.copy(), wanted)
        near = scores >= bar
        found = rows.compress(near)
        if many:
            left = scores.compress(near)
            bar = _reached(left.copy(), wanted)
            found = found.compress(left >= bar)
        found = _distinct(found)
        if found.size >= k or not bar:
            break
        wanted *= 2
    scores = sums[found]
    order = (-scores).argsort(kind="stable")[:k]  # the rows ascend: so they do where scores are equal
    return found[order], scores[order]


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """``rows``, each once, ascending; they are sorted. ``np.unique`` takes longer where they are few."""
    rows.sort()
    is_first = np.empty(rows.size, bool)
    is_first[:1] = True
    np.not_equal(rows[1:], rows[:-1], is_first[1:])
    return rows[is_first]

"""Runs and judgements reduced to the ranks of relevant documents: all that the metrics need to know."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import RankingError
from rag_core.types import Ranking

__all__ = [
    "BLOCK",
    "BLOCK_ROWS",
    "Floats",
    "Grades",
    "Ideal",
    "Ints",
    "Lists",
    "Ranks",
    "assemble",
    "counted",
    "evaluated_queries",
    "reduce",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Grades = Mapping[str, Mapping[str, int]]
#: Query id → what was found for it: a ranking, document ids best first, or document id → score.
Lists = Mapping[str, Ranking | Sequence[str]] | Mapping[str, Mapping[str, float]]
#: Of each relevant document found: query's row, rank and grade; then the documents per query.
_Found = tuple[Ints, Ints, Floats, Ints]

#: Up to this many relevant documents are looked up one by one; for more, one pass over the list is faster.
FEW = 8
#: Scores compared at once: they stay in a processor's cache.
BLOCK = 1 << 18
#: Lists put side by side at once; of unequal length the shorter ones are filled up.
BLOCK_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Ideal:
    """The best possible ranking of ``n`` queries.

    Attributes:
        relevant: (n,) int64, relevant documents in the judgements.
        query: (m,) int64, the query's row; ascending.
        rank: (m,) int64, from 1.
        gain: (m,) float64, grades; falling within a query.
        discounted: (m,) float64, ``gain / log2(rank + 1)``: once for any number of runs.
    """

    relevant: Ints
    query: Ints
    rank: Ints
    gain: Floats
    discounted: Floats

    @classmethod
    def of(cls, relevant: Ints, gains: Floats) -> Ideal:
        """From the number of relevant documents per query, and their grades one query after the other."""
        query = np.repeat(np.arange(len(relevant)), relevant)
        rank, gain = _positions(relevant), gains[np.lexsort((-gains, query))]
        return cls(relevant, query, rank, gain, gain / np.log2(rank + 1.0))


@dataclass(frozen=True, slots=True)
class Ranks:
    """Runs and judgements reduced to numbers, for ``n`` queries.

    Attributes:
        n: number of queries.
        query: (h,) int64, the query's row, of each relevant document found; ascending.
        rank: (h,) int64, its rank from 1; ascending within a query.
        gain: (h,) float64, its grade.
        nth: (h,) int64, how many relevant documents stand at its rank or above.
        retrieved: (n,) int64, documents in the ranking.
        ideal: the best possible ranking.
    """

    n: int
    query: Ints
    rank: Ints
    gain: Floats
    nth: Ints
    retrieved: Ints
    ideal: Ideal

    def total(self, query: Ints, values: Floats, keep: NDArray[np.bool_]) -> Floats:
        """Sum of ``values`` where ``keep``, per query: (n,) float64."""
        # float even when nothing is kept: bincount of no weights counts in integers
        return np.bincount(query[keep], values[keep], self.n).astype(np.float64)

    def found(self, k: int) -> Floats:
        """Relevant documents among the first ``k``: (n,) float64."""
        return np.bincount(self.query[self.rank <= k], minlength=self.n).astype(np.float64)


def evaluated_queries(relevance: Grades) -> tuple[str, ...]:
    """The queries that have a relevant document, sorted by id: the rows of every result."""
    return tuple(sorted(q for q, grades in relevance.items() if grades and max(grades.values()) >= 1))


def assemble(query: Ints, rank: Ints, gain: Floats, retrieved: Ints, ideal: Ideal) -> Ranks:
    """:class:`Ranks` from the relevant documents found, in any order."""
    # one key sorts faster than two: ranks are far below 2 ** 32, rows below 2 ** 31
    order = np.argsort((query << 32) + rank)
    query = query[order]
    n = len(ideal.relevant)
    found = np.bincount(query, minlength=n)
    return Ranks(n, query, rank[order], gain[order], _positions(found), retrieved, ideal)


def _positions(counts: Ints) -> Ints:
    """1, 2, … within each group of that many."""
    before = np.cumsum(counts) - counts
    return np.arange(1, int(counts.sum()) + 1) - np.repeat(before, counts)


def reduce(run: Lists, relevance: Grades) -> Ranks:
    """``run`` and ``relevance`` as numbers, over :func:`evaluated_queries`."""
    queries = evaluated_queries(relevance)
    wanted = [_relevant(relevance[query_id]) for query_id in queries]
    relevant = np.fromiter(map(len, wanted), np.int64, len(wanted))
    flat: list[int] = []
    for grades in wanted:
        flat += grades.values()
    gains = np.array(flat, np.float64)
    ideal = Ideal.of(relevant, gains)
    if isinstance(next(iter(run.values()), None), Mapping):
        lists = [cast("Mapping[str, float]", run.get(query_id, {})) for query_id in queries]
        return assemble(*_from_scores(lists, wanted, relevant, gains), ideal)
    return assemble(*_from_lists(queries, wanted, cast(Any, run)), ideal)


def _relevant(grades: Mapping[str, int]) -> Mapping[str, int]:
    if min(grades.values()) >= 1:
        return grades
    return {doc_id: grade for doc_id, grade in grades.items() if grade >= 1}


def _from_lists(
    queries: Sequence[str],
    wanted: Sequence[Mapping[str, int]],
    run: Mapping[str, Ranking | Sequence[str]],
) -> _Found:
    # flat lists of plain integers: numpy takes them in many times faster than a list of tuples
    places: list[int] = []
    gains: list[int] = []
    found, retrieved = ([0] * len(queries) for _ in range(2))
    for row, (query_id, grades) in enumerate(zip(queries, wanted)):
        ranking = run.get(query_id)
        if ranking is None:
            continue
        ids = ranking.doc_ids if isinstance(ranking, Ranking) else tuple(dict.fromkeys(ranking))
        retrieved[row] = len(ids)
        if len(grades) <= FEW:
            here: Collection[str] = set(grades).intersection(ids)
            places += map(ids.index, here)
        else:
            ordered = [(place, doc_id) for place, doc_id in enumerate(ids) if doc_id in grades]
            here = [doc_id for _, doc_id in ordered]
            places += [place for place, _ in ordered]
        gains += map(grades.__getitem__, here)
        found[row] = len(here)
    query, rank = np.repeat(np.arange(len(queries)), found), np.array(places, np.int64) + 1
    return query, rank, np.array(gains, np.float64), np.array(retrieved, np.int64)


def _from_scores(
    lists: Sequence[Mapping[str, float]], wanted: Sequence[Mapping[str, int]], relevant: Ints, gains: Floats
) -> _Found:
    """Without sorting: a document's rank is one more than the number of documents before it."""
    retrieved = np.fromiter(map(len, lists), np.int64, len(lists))
    everything = chain.from_iterable(scores.values() for scores in lists)
    values = np.fromiter(everything, np.float64, int(retrieved.sum()))
    if np.isnan(values).any():
        raise RankingError("a score is NaN; accepted: a number")
    looked_up: list[float | None] = []
    for grades, scores in zip(wanted, lists):
        looked_up += map(scores.get, grades)
    sought = np.array(looked_up, np.float64)  # what is missing is NaN there
    here = np.flatnonzero(~np.isnan(sought))
    own, query = sought[here], np.repeat(np.arange(len(lists)), relevant)[here]
    before, equal = _before(values, retrieved, query, own)
    tied = np.flatnonzero(equal > 1).tolist()
    names = [doc_id for grades in wanted for doc_id in grades] if tied else []
    for place in tied:
        doc_id, score = names[here[place]], own[place]
        others = (other for other, value in lists[query[place]].items() if value == score)
        before[place] += sum(other > doc_id for other in others)
    return query, before + 1, gains[here], retrieved


def _before(values: Floats, lengths: Ints, rows: Ints, own: Floats) -> tuple[Ints, Ints]:
    """:func:`counted` over lists of unequal length, one after the other in ``values``."""
    starts, edges = np.cumsum(lengths) - lengths, np.searchsorted(rows, np.arange(len(lengths) + 1))
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    first = 0
    while first < len(lengths):
        width = int(lengths[first : first + BLOCK_ROWS].max())
        last = min(len(lengths), first + max(1, min(BLOCK_ROWS, BLOCK // max(1, width))))
        sizes = lengths[first:last]
        matrix = np.full((last - first, width), -np.inf)
        matrix[np.arange(width) < sizes[:, None]] = values[starts[first] : starts[first] + sizes.sum()]
        mine = slice(edges[first], edges[last])
        parts.append(counted(matrix, rows[mine] - first, own[mine]))
        first = last
    higher, equal = (np.concatenate(side) for side in zip(*parts))
    return higher, equal


def counted(scores: NDArray[Any], rows: Ints, own: NDArray[Any]) -> tuple[Ints, Ints]:
    """How many scores of ``scores[rows[i]]`` are above ``own[i]``, and how many equal to it: (h,) each."""
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    step = max(1, BLOCK // max(1, scores.shape[1]))
    for first in range(0, len(rows), step):
        theirs, mine = scores[rows[first : first + step]], own[first : first + step, None]
        higher = np.count_nonzero(theirs > mine, axis=1)
        parts.append((higher, np.count_nonzero(theirs >= mine, axis=1) - higher))
    higher, equal = (np.concatenate(side) for side in zip(*parts))
    return higher, equal

"""Judgements and results as integer arrays: for callers that number their documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.ranks import BLOCK, BLOCK_ROWS, Floats, Grades, Ideal, Ints, Ranks, assemble, counted
from rag_core.errors import InvalidArgumentError

__all__ = ["UNKNOWN", "JudgedRows", "number_documents", "ranks_of"]

#: The number of a judged document that no row can hold.
UNKNOWN = -1


def number_documents(doc_ids: Iterable[str]) -> dict[str, int]:
    """Document id → number from 0, rising with the ids by code point: ties then fall as among strings."""
    return {doc_id: number for number, doc_id in enumerate(sorted(set(doc_ids)))}


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The relevant documents of ``n`` queries, ready to be sought in any number of runs.

    Attributes:
        ideal: the best possible ranking of each query.
        rows: (m,) int64, the query's row of each relevant document; ascending.
        docs: (m,) int64, its number. Documents without a number are in ``ideal`` alone.
        gains: (m,) float64, its grade.
    """

    ideal: Ideal
    rows: Ints
    docs: Ints
    gains: Floats

    @property
    def n(self) -> int:
        """How many queries."""
        return len(self.ideal.relevant)

    @property
    def evaluated(self) -> NDArray[np.bool_]:
        """(n,) bool: the queries that have a relevant document."""
        return self.ideal.relevant > 0

    @classmethod
    def of(cls, starts: ArrayLike, docs: ArrayLike, grades: ArrayLike) -> JudgedRows:
        """Judgements in compressed rows, as ``indptr``, ``indices`` and ``data`` of a sparse matrix.

        Args:
            starts: (n + 1,) integers: query ``i`` has the entries ``starts[i]`` to ``starts[i + 1]``.
            docs: (m,) integers, document numbers from 0; negative for one that no run can hold.
            grades: (m,) integers; relevant from 1 on, the others are left out.

        Raises:
            InvalidArgumentError: the three do not fit together, or a query judges a document twice.
        """
        edges = _integers(starts, "starts", 1)
        numbers, values = _integers(docs, "docs", 1), _integers(grades, "grades", 1)
        sizes = np.diff(edges)
        ends = (int(edges[0]), int(edges[-1])) if len(edges) else (0, -1)
        if ends != (0, len(numbers)) or len(values) != len(numbers) or (sizes < 0).any():
            raise InvalidArgumentError(
                f"starts run from {ends[0]} to {ends[1]} over {len(numbers)} documents and {len(values)} "
                "grades; accepted: 0 to that number, never falling, a grade for each document"
            )
        query = np.repeat(np.arange(len(sizes)), sizes)[values >= 1]
        numbers, values = numbers[values >= 1], values[values >= 1]
        relevant = np.bincount(query, minlength=len(sizes))
        known = numbers >= 0
        ideal, gains = Ideal.of(relevant, values.astype(np.float64)), values[known].astype(np.float64)
        rows, docs = query[known], numbers[known].astype(np.int64)
        _check_once(rows, docs)
        return cls(ideal, rows, docs, gains)

    @classmethod
    def from_grades(
        cls, relevance: Grades, query_ids: Sequence[str], number: Mapping[str, int]
    ) -> JudgedRows:
        """Judgements by id, a row for each of ``query_ids``; documents without a number are never found."""
        rows = [relevance.get(query_id, {}) for query_id in query_ids]
        return cls.of(
            np.cumsum([0, *map(len, rows)]),
            np.array([number.get(doc_id, UNKNOWN) for row in rows for doc_id in row], np.int64),
            np.array([grade for row in rows for grade in row.values()], np.int64),
        )


def ranks_of(doc_ids: ArrayLike, judged: JudgedRows, scores: ArrayLike | None = None) -> Ranks:
    """The ranks of relevant documents in rows of numbers; arguments as of :func:`.judging.judge_arrays`."""
    ids = _integers(doc_ids, "doc_ids", 2)
    if len(ids) != judged.n:
        raise InvalidArgumentError(f"{len(ids)} rows of documents; accepted: {judged.n}, one a judged query")
    retrieved, values = _filled(ids, scores)
    width = max(1, ids.shape[1])
    step = max(1, BLOCK // width)
    # of one type they compare several times faster; a number beyond the type stays as it is
    fits = judged.docs.max(initial=0) <= np.iinfo(ids.dtype).max
    docs = judged.docs.astype(ids.dtype, copy=False) if fits else judged.docs
    hits = [np.zeros(0, np.int64)]
    theirs, same = np.empty((step, ids.shape[1]), ids.dtype), np.empty((step, ids.shape[1]), np.bool_)
    for first in range(0, len(docs), step):
        part = slice(first, min(first + step, len(docs)))
        n = part.stop - first
        np.take(ids, judged.rows[part], axis=0, out=theirs[:n], mode="clip")
        np.equal(theirs[:n], docs[part, None], out=same[:n])
        hits.append(np.flatnonzero(same[:n]) + first * width)
    hit = np.concatenate(hits)
    own = hit // width  # by a constant, which is several times as fast as divmod
    place = hit - own * width
    query = judged.rows[own]
    if (own[1:] == own[:-1]).any():
        twice = int(own[1:][own[1:] == own[:-1]][0])
        raise InvalidArgumentError(
            f"document {docs[twice]} stands twice in row {judged.rows[twice]}; accepted: each once in a row"
        )
    rank = place + 1 if values is None else _ranked(values, ids, query, place)
    return assemble(query, rank, judged.gains[own], retrieved, judged.ideal)


def _ranked(values: NDArray[Any], ids: Ints, query: Ints, place: Ints) -> Ints:
    """Ranks by falling score, of equal scores the higher number first."""
    own = values[query, place]
    higher, equal = counted(values, query, own)
    for first in range(0, len(tied := np.flatnonzero(equal > 1)), BLOCK_ROWS):
        mine = tied[first : first + BLOCK_ROWS]
        same = values[query[mine]] == own[mine, None]
        after = ids[query[mine]] > ids[query[mine], place[mine]][:, None]
        higher[mine] += np.count_nonzero(same & after, axis=1)
    return higher + 1


def _filled(ids: Ints, scores: ArrayLike | None) -> tuple[Ints, NDArray[Any] | None]:
    """Documents per row, and the scores with what is no document last."""
    blank = ids < 0 if ids.size and ids.min() < 0 else None
    retrieved = np.full(len(ids), ids.shape[1], np.int64)
    if blank is not None:
        retrieved -= np.count_nonzero(blank, axis=1)
    if scores is None:
        if blank is not None and (blank[:, :-1] & ~blank[:, 1:]).any():
            raise InvalidArgumentError(
                "a negative number stands before a document; accepted: at the end of a row, or with scores"
            )
        return retrieved, None
    values = np.asarray(scores)
    if values.shape != ids.shape or values.dtype.kind not in "fiu":
        raise InvalidArgumentError(
            f"scores are {values.dtype} of shape {values.shape}; accepted: numbers of shape {ids.shape}"
        )
    if blank is not None:
        values = np.where(blank, -np.inf, values)
    if np.isnan(values).any():
        raise InvalidArgumentError("a score is NaN; accepted: a number")
    return retrieved, values


def _check_once(rows: Ints, docs: Ints) -> None:
    order = np.lexsort((docs, rows))
    rows, docs = rows[order], docs[order]
    same = np.flatnonzero((rows[1:] == rows[:-1]) & (docs[1:] == docs[:-1]))
    if len(same):
        raise InvalidArgumentError(
            f"query {rows[same[0]]} judges document {docs[same[0]]} twice; accepted: one grade each"
        )


def _integers(values: ArrayLike, name: str, ndim: int) -> Ints:
    found = np.asarray(values)
    if not found.size and found.ndim == ndim:
        found = found.astype(np.int64)
    if found.ndim != ndim or found.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"{name} is {found.dtype} of shape {found.shape}; accepted: integers with {ndim} "
            f"dimension{'s' if ndim > 1 else ''}"
        )
    return found

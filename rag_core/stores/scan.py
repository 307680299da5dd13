"""Which rows of a matrix may be among the nearest: the matrix product, and as little beside it as possible.

What is found here are candidates, a few more than are asked for; scores and order are settled by
:func:`best_of`. So the answer is the same whichever kernel multiplied, for one query or for many.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_core.packed import PackedStrings
from rag_core.protocols import Vectors
from rag_core.stores.parallel import in_parts
from rag_core.stores.rows import ROUNDING, rescored
from rag_core.types import EMPTY_RANKING, Ranking

__all__ = ["Rows", "best_of", "near", "near_many", "threshold"]

Rows = NDArray[np.int64]
#: Scores of which the greatest stands for all while the threshold is looked for.
GROUP = 64
#: Rows whose scores for a batch of queries are looked through at a time, bytes of rows copied at a time,
#: queries in a batch.
BLOCK_ROWS, COPIED_BYTES, BATCH = 1 << 14, 1 << 24, 64
#: Rows of one product: the scores of more leave the cache while it is made, which takes a fifteenth longer.
PRODUCT_ROWS = 1 << 12
#: Bytes of rows that one thread multiplies by one query at a time: with half of that, taking turns at the
#: interpreter costs a fifth of the scan.
SCANNED_BYTES = 1 << 21
#: A filter that leaves less than this share of the rows has them copied out and multiplied alone.
GATHERED_SHARE = 0.125
#: Candidates whose rows are read at a time.
RESCORED_ROWS = 1 << 12


def threshold(scores: NDArray[np.float32], k: int) -> float:
    """A score that at least ``k`` of ``scores`` reach, and few more: no more than the ``k``-th best.

    The ``k``-th best of the maxima of groups is one, since each of ``k`` groups has a score that reaches it.
    Where the groups would be few it is the ``k``-th best itself. Needs ``1 <= k <= len(scores)``.
    """
    n = len(scores) // GROUP
    if n >= 4 * k:
        # neighbours fall into different groups, and the maximum runs along contiguous memory
        scores = scores[: n * GROUP].reshape(GROUP, n).max(axis=0)
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def near(vectors: Vectors, unit: Vectors, k: int, allowed: Rows | None = None) -> Rows:
    """Rows that hold the ``k`` nearest to ``unit``, ascending; ``allowed``: of these rows alone."""
    if allowed is None:
        scores = _products(vectors, unit, None)
    elif len(allowed) < GATHERED_SHARE * len(vectors):
        scores = _products(vectors, unit, allowed)
    else:
        scores = _products(vectors, unit, None)[allowed]
    if k >= len(scores):
        found = np.arange(len(scores))
    else:
        found = np.flatnonzero(scores >= threshold(scores, k) - ROUNDING)
    return found if allowed is None else allowed[found]


def _products(vectors: Vectors, unit: Vectors, rows: Rows | None) -> NDArray[np.float32]:
    """``vectors @ unit``, or of ``rows`` alone, a part at a time.

    In threads of our own: those of a BLAS wait for one another at work, which costs up to 40 times the scan
    where something else holds a processor. On a free machine both are as fast as the memory.
    """
    scores = np.empty(len(vectors) if rows is None else len(rows), np.float32)

    def work(start: int, stop: int) -> None:
        part = vectors[start:stop] if rows is None else vectors[rows[start:stop]]
        np.vecdot(part, unit, out=scores[start:stop])

    in_parts(len(scores), max(1, SCANNED_BYTES // (int(vectors.shape[1]) * vectors.itemsize)), work)
    return scores


def near_many(vectors: Vectors, units: Vectors, k: int, allowed: Rows | None = None) -> list[Rows]:
    """:func:`near` for each row of ``units`` ``(q, dim)``: one product of matrices a block of rows.

    Memory: the scores of one block for at most 64 queries, and what has passed the threshold so far.
    """
    return [
        rows
        for start in range(0, len(units), BATCH)
        for rows in _batch(vectors, units[start : start + BATCH], k, allowed)
    ]


def _batch(vectors: Vectors, units: Vectors, k: int, allowed: Rows | None) -> list[Rows]:
    n_queries, n = len(units), len(vectors) if allowed is None else len(allowed)
    step = BLOCK_ROWS if allowed is None else min(BLOCK_ROWS, _rows_at_once(vectors))
    by_column = np.ascontiguousarray(units.T)
    room = np.empty((min(step, n), n_queries), np.float32)
    best = np.full((0, n_queries), -np.inf, np.float32)
    held: list[tuple[Rows, Rows, NDArray[np.float32]]] = []
    for start in range(0, n, step):
        part = slice(start, start + step)
        block = vectors[part] if allowed is None else vectors[allowed[part]]
        scores = room[: len(block)]
        for at in range(0, len(block), PRODUCT_ROWS):
            np.matmul(block[at : at + PRODUCT_ROWS], by_column, out=scores[at : at + PRODUCT_ROWS])
        best = _raised(best, scores, k)
        least = best.min(axis=0) if len(best) == k else np.full(n_queries, -np.inf, np.float32)
        # a flat search, and the division after it, take a tenth of the time of np.nonzero
        passed, query = np.divmod(np.flatnonzero(scores >= least - np.float32(ROUNDING)), n_queries)
        places = passed + start if allowed is None else allowed[passed + start]
        held.append((query, places, scores[passed, query]))
    query, places, found = (np.concatenate(parts) for parts in zip(*held))
    if len(best) == k:
        is_near = found >= (best.min(axis=0) - np.float32(ROUNDING))[query]
        query, places = query[is_near], places[is_near]
    order = np.argsort(query, kind="stable")
    ends = np.searchsorted(query[order], np.arange(n_queries + 1))
    return [places[order[a:b]] for a, b in pairwise(ends)]


def _raised(best: NDArray[np.float32], scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Scores of up to ``k`` different rows seen so far for each query: the ``k``-th best is no less than the
    least of them. Of a block only the maxima of groups take part, as in :func:`threshold`."""
    group = GROUP if len(scores) // GROUP >= 4 * k else 1
    n = len(scores) // group
    maxima = scores[: n * group].reshape(group, n, -1).max(axis=0) if group > 1 else scores
    both = np.concatenate([best, maxima])
    return both if len(both) <= k else np.partition(both, len(both) - k, axis=0)[-k:]


def _rows_at_once(vectors: Vectors) -> int:
    return max(1, COPIED_BYTES // (int(vectors.shape[1]) * vectors.itemsize))


def best_of(ids: PackedStrings, vectors: Vectors, rows: Rows, unit: Vectors, k: int) -> Ranking:
    """The best ``k`` of ``rows`` by their dot products with ``unit`` in float64; see :func:`rescored`.

    ``ids[row]`` is the id of a row. A block of rows is read at a time, however many there are.
    """
    found = EMPTY_RANKING
    for start in range(0, len(rows), RESCORED_ROWS):
        part = rows[start : start + RESCORED_ROWS]
        more = rescored(ids.take(part), vectors[part], unit, k)
        pairs = (pair for one in (found, more) for pair in zip(one.doc_ids, one.scores))
        found = more if start == 0 else Ranking.from_scores(pairs, k)
    return found

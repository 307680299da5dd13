"""From term numbers to postings: one sort groups them, then each is weighed by Lucene's formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.bm25_postings import largest_impacts

__all__ = ["BLOCK", "Weigher", "counted", "postings"]

#: Postings worked out at a time.
BLOCK = 1 << 18
Array = NDArray[Any]


class Weigher:
    """What a term adds to the score of a text; see :mod:`rag_core.bm25` for the formula."""

    def __init__(self, lengths: NDArray[np.int32], k1: float, b: float) -> None:
        """``lengths``: terms of every text."""
        average = float(lengths.mean()) if lengths.any() else 1.0
        self._n = len(lengths)
        norm = lengths.astype(np.float64)  # k1 * (1 - b + b * lengths / average), in place
        norm *= b
        norm /= average
        norm += 1 - b
        norm *= k1
        self._norm = norm

    def idf(self, df: Array) -> NDArray[np.float64]:
        """Of terms that ``df`` texts hold."""
        found: NDArray[np.float64] = np.log1p((self._n - df + 0.5) / (df + 0.5))
        return found

    def impacts(self, idf: Array, tf: Array, texts: Array) -> NDArray[np.float64]:
        """Of terms that stand ``tf`` times in ``texts``."""
        times = tf.astype(np.float64)
        found: NDArray[np.float64] = idf * times / (times + self._norm[texts])
        return found


def counted(
    ids: NDArray[np.integer[Any]], lengths: NDArray[np.int32], n_terms: int
) -> tuple[NDArray[np.int64], Iterator[tuple[Array, Array, Array]]]:
    """Texts given as term numbers, grouped by term, then by text.

    Args:
        ids: term numbers of all texts, one text after the other, from 0 to ``n_terms - 1``.
        lengths: terms per text.

    Returns:
        ``starts`` int64 ``(n_terms + 1,)``, where the postings of each term begin; and the postings in
        blocks: term numbers, text numbers, and how often the one stands in the other.
    """
    n = max(len(lengths), 1)
    keys = ids.astype(np.int64)
    keys *= n
    keys += np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    keys.sort()  # one integer sort groups by term, then by text
    is_first = np.ones(keys.size + 1, bool)  # and one past the end
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:-1])
    first = np.flatnonzero(is_first)
    starts = np.searchsorted(first, np.searchsorted(keys, np.arange(n_terms + 1) * n)).astype(np.int64)

    def blocks() -> Iterator[tuple[Array, Array, Array]]:
        # temporary arrays of full size would cost more, in fresh memory, than the arithmetic
        for low in range(0, len(first) - 1, BLOCK):
            bounds = first[low : low + BLOCK + 1]
            terms, texts = np.divmod(keys[bounds[:-1]], n)
            yield terms, texts, np.diff(bounds)

    return starts, blocks()


def postings(
    ids: NDArray[np.integer[Any]], lengths: NDArray[np.int32], n_terms: int, k1: float, b: float
) -> dict[str, Array]:
    """The inverted index of texts given as of :func:`counted`.

    Returns:
        The arrays of :class:`rag_core.bm25_postings.Postings`.
    """
    starts, blocks = counted(ids, lengths, n_terms)
    weigher = Weigher(lengths, k1, b)
    idf = weigher.idf(np.diff(starts))
    rows, impacts = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), np.float32)
    low = 0
    for terms, texts, tf in blocks:
        block = slice(low, low + len(terms))
        rows[block], impacts[block] = texts, weigher.impacts(idf[terms], tf, texts)
        low += len(terms)
    maxima = largest_impacts(starts, impacts)
    return {"starts": starts, "rows": rows, "impacts": impacts, "maxima": maxima}

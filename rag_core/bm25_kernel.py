"""From a query's words to its best documents by BM25, in one call, as numba compiles it.

Functions of numbers and arrays alone: :mod:`rag_core.bm25_numba` compiles them, and as plain Python they give
the same answers. Documents are scored a window at a time, whose scores stay in the processor's cache. The
terms are in descending order of the most that each can add; once the k-th best score so far is out of reach
of the last terms together, documents that hold only those are left out, and their postings are read only
where a window has a document that can still be among the best (MaxScore, by windows).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["HELPERS", "best_documents"]

#: Documents a window: 128 KB of scores. 4,096 to 65,536 measure alike.
WINDOW = 16_384
#: Looking up one document costs about as much as reading this many postings.
LOOK_UP = 16
#: A score short of the bar by less than this share may be a rounding error.
SLACK = 1e-9
Array = NDArray[Any]


def _crc_table() -> NDArray[np.int64]:
    """What each byte does to a CRC-32: the polynomial of zlib, eight bits at a time."""
    codes = np.arange(256)
    for _ in range(8):
        codes = codes >> 1 ^ (codes & 1) * 0xEDB88320
    return codes


CRC = _crc_table()


def number_of(
    words: Array, start: int, stop: int, place: int, blob: Array, offsets: Array, places: Array
) -> int:
    """The number of the term ``words[start:stop]``, -1 if it is not indexed; it is at ``place`` or behind."""
    while places[place] >= 0:
        number = int(places[place])
        low = offsets[number]
        if offsets[number + 1] - low == stop - start:
            at = start
            while at < stop and words[at] == blob[low + at - start]:
                at += 1
            if at == stop:
                return number
        place += 1
    return -1


def found_terms(
    words: Array, blob: Array, offsets: Array, places: Array, home_mask: int
) -> tuple[Array, Array]:
    """The numbers (int64) of the words that are indexed, each once, and how often each is asked for."""
    n_words = 1
    for byte in words:
        n_words += byte == 0
    numbers, counts = np.empty(n_words, np.int64), np.zeros(n_words, np.float64)
    n, start, code = 0, 0, 0xFFFFFFFF
    for stop in range(len(words) + 1):
        if stop < len(words) and words[stop] != 0:
            code = CRC[(code ^ np.int64(words[stop])) & 0xFF] ^ code >> 8
            continue
        number = number_of(words, start, stop, (code ^ 0xFFFFFFFF) & home_mask, blob, offsets, places)
        start, code = stop + 1, 0xFFFFFFFF
        if number >= 0:
            at = 0
            while at < n and numbers[at] != number:
                at += 1
            numbers[at] = number
            counts[at] += 1.0
            n = max(n, at + 1)
    return numbers[:n], counts[:n]


def by_bound(terms: Array, counts: Array, maxima: Array) -> Array:
    """Sort ``terms`` and their ``counts`` by the most that each adds, descending; those bounds."""
    bounds = np.empty(len(terms), np.float64)
    for t in range(len(terms)):
        bound, term, count = maxima[terms[t]] * counts[t], terms[t], counts[t]
        at = t
        while at > 0 and (bounds[at - 1] < bound or (bounds[at - 1] == bound and terms[at - 1] > term)):
            bounds[at], terms[at], counts[at] = bounds[at - 1], terms[at - 1], counts[at - 1]
            at -= 1
        bounds[at], terms[at], counts[at] = bound, term, count
    return bounds


def first_from(rows: Array, low: int, high: int, wanted: int) -> int:
    """The first place from ``low`` whose row is at least ``wanted``, else ``high``; in growing steps."""
    if low >= high or rows[low] >= wanted:
        return low
    step = 1
    while low + step < high and rows[low + step] < wanted:
        low += step
        step *= 2
    high = min(high, low + step)
    low += 1
    while low < high:
        middle = (low + high) >> 1
        if rows[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def sink(scores: Array, rows: Array, at: int, size: int) -> None:
    """Let the entry ``at`` sink to its place in a heap whose root is the worst: lowest score, highest row."""
    score, row = scores[at], rows[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and (
            scores[child + 1] < scores[child]
            or (scores[child + 1] == scores[child] and rows[child + 1] > rows[child])
        ):
            child += 1
        if score < scores[child] or (score == scores[child] and row > rows[child]):
            break
        scores[at], rows[at] = scores[child], rows[child]
        at = child
    scores[at], rows[at] = score, row


def keep(sums: Array, touched: Array, n_touched: int, bar: float) -> int:
    """Move touched documents whose sum reaches ``bar`` to the front, zero the others; how many stay."""
    kept = 0
    for i in range(n_touched):
        document = touched[i]
        if sums[document] >= bar:
            touched[kept] = document
            kept += 1
        else:
            sums[document] = 0.0
    return kept


#: What :func:`best_documents` calls.
HELPERS = (number_of, found_terms, by_bound, first_from, sink, keep)


def best_documents(
    starts: Array,
    rows: Array,
    impacts: Array,
    maxima: Array,
    blob: Array,
    offsets: Array,
    places: Array,
    words: Array,
    allowed: Array,
    sums: Array,
    touched: Array,
    home_mask: int,
    n_rows: int,
    k: int,
) -> tuple[Array, Array]:
    """The best ``k`` rows (int64) and scores (float64): score descending, then row ascending.

    Args:
        starts, rows, impacts, maxima: as of :class:`rag_core.bm25_postings.Postings`.
        blob, offsets, places, home_mask: the indexed terms, as of :class:`rag_core.packed.PackedStrings`.
        words: uint8, the query's terms in UTF-8, in any order, a zero between two.
        allowed: bool ``(n_rows,)``, or empty for all.
        sums: float64, zeros for as many documents as make a window; zeros again afterwards.
        touched: int32, one longer; of any content.
    """
    terms, counts = found_terms(words, blob, offsets, places, home_mask)
    bounds = by_bound(terms, counts, maxima)
    n, window = len(terms), len(sums)
    # reach[t] is what the terms from t on add at most
    reach = np.zeros(n + 1, np.float64)
    at_posting, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    size = 0
    for t in range(n - 1, -1, -1):
        reach[t] = reach[t + 1] + bounds[t] * (1 + SLACK)
        at_posting[t], ends[t] = starts[terms[t]], starts[terms[t] + 1]
        size += ends[t] - at_posting[t]
    k = min(k, size)
    best_rows, best_scores = np.empty(k, np.int64), np.empty(k, np.float64)
    filtered = len(allowed) > 0
    n_best, needed, bar = 0, n, 0.0  # the terms from `needed` on cannot lift a document over the bar alone
    while True:
        base = n_rows
        for t in range(needed):
            if at_posting[t] < ends[t]:
                base = min(base, int(rows[at_posting[t]]))
        if base >= n_rows:
            break
        stop = base + window
        n_touched = 0
        for t in range(needed):
            at, end, count = at_posting[t], ends[t], counts[t]
            while at < end and rows[at] < stop:
                document = rows[at] - base
                before = sums[document]
                touched[n_touched] = document
                n_touched += before == 0.0
                sums[document] = before + impacts[at] * count
                at += 1
            at_posting[t] = at
        if filtered:
            for i in range(n_touched):
                if not allowed[base + touched[i]]:
                    sums[touched[i]] = -1.0  # below every bar
        if filtered or needed < n:
            n_touched = keep(sums, touched, n_touched, max(bar * (1 - SLACK) - reach[needed], 0.0))
        for t in range(needed, n):
            if n_touched == 0:
                break
            low = first_from(rows, at_posting[t], ends[t], base)
            high = first_from(rows, low, ends[t], stop)
            at_posting[t], count = high, counts[t]
            if n_touched * LOOK_UP < high - low:
                for i in range(n_touched):
                    document = touched[i]
                    at = first_from(rows, low, high, base + document)
                    if at < high and rows[at] == base + document:
                        sums[document] += impacts[at] * count
            else:
                for at in range(low, high):
                    document = rows[at] - base
                    before = sums[document]
                    sums[document] = before + (impacts[at] * count if before > 0.0 else 0.0)
            n_touched = keep(sums, touched, n_touched, bar * (1 - SLACK) - reach[t + 1])
        for i in range(n_touched):
            document = touched[i]
            score, row = sums[document], base + document
            sums[document] = 0.0
            if n_best < k:
                best_scores[n_best], best_rows[n_best] = score, row
                n_best += 1
                if n_best == k:
                    for at in range(k // 2 - 1, -1, -1):
                        sink(best_scores, best_rows, at, k)
                    bar = best_scores[0]
            elif score > bar or (score == bar and row < best_rows[0]):
                best_scores[0], best_rows[0] = score, row
                sink(best_scores, best_rows, 0, k)
                bar = best_scores[0]
        while n_best == k and needed > 0 and reach[needed - 1] < bar * (1 - SLACK):
            needed -= 1
    if n_best < k:
        for at in range(n_best // 2 - 1, -1, -1):
            sink(best_scores, best_rows, at, n_best)
    for last in range(n_best - 1, 0, -1):  # the worst of what is left goes to its end
        score, row = best_scores[0], best_rows[0]
        best_scores[0], best_rows[0] = best_scores[last], best_rows[last]
        best_scores[last], best_rows[last] = score, row
        sink(best_scores, best_rows, 0, last)
    return best_rows[:n_best], best_scores[:n_best]

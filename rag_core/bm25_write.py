"""A BM25 index written from a stream of documents, in memory that does not grow with them.

Texts are analysed a block at a time. The postings of a block, by its own terms in order, go to an unnamed
file; the blocks are then merged term by term, and a posting is weighed when the last block has said how many
documents hold its term (single-pass in-memory indexing: Heinz and Zobel, "Efficient single-pass index
construction for text databases", JASIST 2003). What stays is 12 bytes a document: the length of its text,
and what that makes of it. The files are those that :meth:`rag_core.bm25.BM25.build` and ``save`` write, bit
for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25_counts import Weigher, counted
from rag_core.bm25_postings import largest_impacts
from rag_core.errors import InvalidArgumentError
from rag_core.packed import PackedStrings
from rag_core.packed_write import ArrayWriter, StringsWriter
from rag_core.spill import Merged, Run, Spill, merge, write_run
from rag_core.types import Document

__all__ = ["write_arrays"]

#: Characters and documents of a block.
BLOCK_CHARS, BLOCK_TEXTS = 1 << 21, 1 << 13
#: Postings weighed at a time.
WINDOW = 1 << 18
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Block:
    """The postings of a block of texts, in the spill; ``rows`` and ``counts`` by term, then by text."""

    terms: Run
    starts: int
    rows: int
    counts: int


def write_arrays(
    folder: Path, documents: Iterable[Document], analyser: Analyser, k1: float, b: float
) -> dict[str, int]:
    """Write all arrays of the index of ``documents`` into ``folder``, which exists; returns its counts.

    Args:
        documents: in descending order of id, each once.

    Raises:
        InvalidArgumentError: they come in another order.
        OSError: the disk is full or refuses.
    """
    with Spill(folder) as spill:
        blocks, lengths = list[_Block](), [np.zeros(0, np.int32)]
        n_given = n_filled = 0
        with StringsWriter(folder, "doc_ids") as ids, ArrayWriter(folder / "metadata.npy", np.uint8) as told:
            for given, part in _parts(documents):
                n_given += given
                ids.append([document.doc_id.encode("utf-8", "surrogatepass") for document in part])
                told.append(_metadata(part, is_first=not n_filled))
                block, n_terms = _analysed(part, analyser, n_filled, spill)
                blocks.append(block)
                lengths.append(n_terms)
                n_filled += len(part)
            told.append(np.frombuffer(b"]" if n_filled else b"[]", np.uint8))
        weigher = Weigher(np.concatenate(lengths), k1, b)
        del lengths
        with _Arrays(folder, weigher) as arrays:
            for merged in merge([block.terms for block in blocks]):
                arrays.add(merged, blocks, spill)
            n_terms_of_all = arrays.n_terms
    terms = PackedStrings.open(folder, "terms")
    terms.hashed().save_places(folder, "terms")
    terms.let_go()
    return {"n_documents": n_filled, "n_empty": n_given - n_filled, "n_terms": n_terms_of_all}


def _parts(documents: Iterable[Document]) -> Iterator[tuple[int, list[Document]]]:
    """How many documents there are since the last part, and those of them that hold a text."""
    part, given, chars, last = list[Document](), 0, 0, None
    for document in documents:
        if last is not None and document.doc_id >= last:
            raise InvalidArgumentError(
                f"BM25: document {document.doc_id!r} comes behind {last!r}; "
                "accepted: ids in descending order, each once"
            )
        last, given = document.doc_id, given + 1
        if document.is_empty:
            continue
        part.append(document)
        chars += len(document.title) + len(document.text)
        if chars >= BLOCK_CHARS or len(part) >= BLOCK_TEXTS:
            yield given, part
            part, given, chars = [], 0, 0
    if part or given:
        yield given, part


def _metadata(part: Sequence[Document], *, is_first: bool) -> Array:
    """A part of one JSON list, of which the others follow."""
    texts = [json.dumps(dict(document.metadata)) for document in part]
    begin = "" if not texts else "[" if is_first else ", "
    return np.frombuffer((begin + ", ".join(texts)).encode(), np.uint8)


def _analysed(
    part: Sequence[Document], analyser: Analyser, first_row: int, spill: Spill
) -> tuple[_Block, NDArray[np.int32]]:
    """Write the postings of ``part``, whose rows begin at ``first_row``; also the terms of each text."""
    languages = [document.metadata.get("lang") for document in part]
    found = analyser.analyse_many([document.indexed_text for document in part], languages)
    encoded = [term.encode() for term in found.terms]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    renumbered = np.empty(len(order), np.int32)
    renumbered[order] = np.arange(len(order))
    starts, parts = counted(renumbered[found.ids], found.lengths, len(order))
    rows, counts = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), np.int32)
    low = 0
    for _, texts, tf in parts:
        rows[low : low + len(tf)], counts[low : low + len(tf)] = texts, tf
        low += len(tf)
    rows += np.int32(first_row)
    terms = write_run(spill, [encoded[i] for i in order])
    return _Block(terms, spill.write(starts), spill.write(rows), spill.write(counts)), found.lengths


class _Arrays:
    """The arrays of the whole, written term by term."""

    def __init__(self, folder: Path, weigher: Weigher) -> None:
        self._weigher, self._open = weigher, ExitStack()
        self.n_terms, self._n_postings = 0, 0
        with ExitStack() as opened:  # what is open when a file cannot be made is closed
            kinds = {"starts": np.int64, "rows": np.int32, "impacts": np.float32, "maxima": np.float32}
            self._arrays = {
                name: opened.enter_context(ArrayWriter(folder / f"{name}.npy", kind))
                for name, kind in kinds.items()
            }
            self._terms = opened.enter_context(StringsWriter(folder, "terms"))
            self._open = opened.pop_all()
        self._arrays["starts"].append(np.zeros(1, np.int64))

    def __enter__(self) -> _Arrays:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def add(self, merged: Merged, blocks: Sequence[_Block], spill: Spill) -> None:
        """Write the terms of ``merged``, which hold all that is known of each."""
        strings = merged.strings
        is_new = np.ones(len(strings), bool)
        is_new[1:] = [a != b for a, b in zip(strings[1:], strings)]
        first = np.flatnonzero(is_new)
        self._terms.append([strings[i] for i in first.tolist()])
        terms = np.empty(len(strings), np.int64)  # by place: which of the terms at hand it is
        terms[merged.order] = np.cumsum(is_new) - 1
        lists: list[_Lists] = []
        low = 0
        for number, start, stop in merged.parts:
            block = blocks[number]
            starts = spill.read(block.starts, np.int64, start, stop + 1)
            lists.append(_Lists(block, terms[low : low + stop - start], starts))
            low += stop - start
        df = np.zeros(len(first), np.int64)
        for part in lists:
            df[part.terms] += np.diff(part.starts)  # a term stands once in a block
        ends = np.cumsum(df)
        self._arrays["starts"].append(ends + self._n_postings)
        self._weigh(lists, df, ends, spill)
        self._n_postings += int(ends[-1])
        self.n_terms += len(first)

    def _weigh(self, lists: Sequence[_Lists], df: Array, ends: Array, spill: Spill) -> None:
        """Weigh the postings, as many terms at a time as a window holds."""
        idf, low = self._weigher.idf(df), 0
        while low < len(df):
            reach = ends[low] - df[low] + WINDOW
            high = max(low + 1, int(np.searchsorted(ends, reach, "right")))
            if high == low + 1:
                self._weigh_one(lists, low, idf[low], spill)
            else:
                parts = [part.between(low, high, spill) for part in lists]
                terms, rows, counts = (np.concatenate(column) for column in zip(*parts))
                order = np.argsort(terms, kind="stable")  # blocks are in the order of their rows
                terms, rows, counts = terms[order], rows[order], counts[order]
                impacts = self._put(rows, idf[terms], counts)
                starts = np.concatenate([[0], np.cumsum(df[low:high])])
                self._arrays["maxima"].append(largest_impacts(starts, impacts))
            low = high

    def _weigh_one(self, lists: Sequence[_Lists], term: int, idf: float, spill: Spill) -> None:
        """A term that may stand in every text: a window at a time."""
        largest = np.float32(0)
        for part in lists:
            for rows, counts in part.windows(term, spill):
                largest = max(largest, self._put(rows, np.full(len(rows), idf), counts).max())
        self._arrays["maxima"].append(np.array([largest], np.float32))

    def _put(self, rows: Array, idf: Array, counts: Array) -> NDArray[np.float32]:
        impacts = self._weigher.impacts(idf, counts, rows).astype(np.float32)
        self._arrays["rows"].append(rows)
        self._arrays["impacts"].append(impacts)
        return impacts


@dataclass(frozen=True, slots=True)
class _Lists:
    """The postings that a block has of the terms at hand: ``starts[i]:starts[i + 1]`` are of ``terms[i]``."""

    block: _Block
    terms: NDArray[np.int64]
    starts: NDArray[np.int64]

    def between(self, low: int, high: int, spill: Spill) -> tuple[Array, Array, Array]:
        """Terms, rows and counts of the postings of terms ``low`` to ``high``."""
        first, last = np.searchsorted(self.terms, (low, high))
        start, stop = int(self.starts[first]), int(self.starts[last])
        terms = np.repeat(self.terms[first:last], np.diff(self.starts[first : last + 1]))
        return terms, *self._read(start, stop, spill)

    def windows(self, term: int, spill: Spill) -> Iterator[tuple[Array, Array]]:
        """Rows and counts of ``term``, in parts."""
        first, last = np.searchsorted(self.terms, (term, term + 1))
        end = int(self.starts[last])
        for start in range(int(self.starts[first]), end, WINDOW):
            yield self._read(start, min(end, start + WINDOW), spill)

    def _read(self, start: int, stop: int, spill: Spill) -> tuple[Array, Array]:
        rows = spill.read(self.block.rows, np.int32, start, stop)
        return rows, spill.read(self.block.counts, np.int32, start, stop)

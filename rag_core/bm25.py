"""BM25 over an inverted index in numpy arrays: a query touches the postings of its own terms only.

The score is that of Lucene (and of bm25s, method ``lucene``)::

    sum over query terms of  idf(t) * tf / (tf + k1 * (1 - b + b * dl / avgdl)),
    idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5))

which is never negative. A term that the query holds twice counts twice. Documents that share no term
with the query are never hits. Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
Beyond", 2009; Kamphuis and others, "Which BM25 do you mean?", ECIR 2020, for the variants.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25_counts import postings
from rag_core.bm25_numba import NumbaScorer
from rag_core.bm25_postings import ARRAYS, NumpyScorer, Postings, Scorer, largest_impacts
from rag_core.bm25_write import write_arrays
from rag_core.errors import InvalidArgumentError, StoreError, UnknownNameError
from rag_core.filters import compile_where
from rag_core.fusion.legs import Evidence
from rag_core.packed import PackedStrings, map_array, write_array
from rag_core.registry import nearest
from rag_core.types import Document, Query, Ranking, Run, check_k

__all__ = ["BM25"]

FORMAT = 1
MANIFEST = "bm25.json"
#: Filters whose answers are kept, one byte a document each.
KEPT_MASKS = 64
#: Best documents among which the one that holds most of a query is looked for.
COVERING = 3
NO_ROWS = np.zeros(0, np.int32)
#: What adds up and picks the best; the answers are the same.
SCORERS: Mapping[str, Callable[[Postings], Scorer]] = {"numpy": NumpyScorer, "numba": NumbaScorer}
Array = NDArray[Any]


class BM25:
    """The lexical retriever. Made by :meth:`build` or :meth:`open`."""

    name = "bm25"

    def __init__(
        self,
        analyser: Analyser,
        k1: float,
        b: float,
        terms: PackedStrings,
        doc_ids: PackedStrings,
        arrays: Mapping[str, Array],
        counts: Mapping[str, int],
        metadata: Sequence[Mapping[str, Any]] | Array,
        engine: str | None = None,
    ) -> None:
        self.analyser, self.k1, self.b = analyser, k1, b
        self._terms, self._doc_ids = terms, doc_ids
        self._postings = Postings(arrays, terms, counts["n_documents"])
        self._scorer = _scorer_of(engine)(self._postings)
        self._counts = dict(counts)
        self._metadata = metadata  # as an array: JSON, parsed when a filter first asks for it
        self._masks: OrderedDict[str, Array] = OrderedDict()

    @classmethod
    def build(
        cls,
        documents: Iterable[Document],
        analyser: Analyser | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        engine: str | None = None,
    ) -> BM25:
        """Index ``documents``; the language of each is its ``metadata["lang"]`` where it has one.

        An empty document is counted and never a hit; the averages are over the others.

        Args:
            engine: what works out the answers, which are the same: ``numpy``, or ``numba`` (extra ``fast``;
                half a second to start, and several, once, to compile); None for ``RAG_BM25_ENGINE``, else
                numpy.

        Raises:
            InvalidArgumentError: ``k1`` below 0, ``b`` outside 0 to 1, or an id that stands twice.
            UnknownNameError: no such engine.
            MissingExtraError: ``numba`` is asked for and not installed.
        """
        _scorer_of(engine)  # a wrong name is told before the work
        if not k1 >= 0 or not 0 <= b <= 1:
            raise InvalidArgumentError(f"BM25: k1 is {k1}, b is {b}; accepted: k1 from 0, b from 0 to 1")
        analyser = analyser or Analyser.for_languages(("en", "es", "pt"))
        given = list(documents)
        # Rows in descending order of id: among equal scores a smaller row is then the better rank.
        filled = sorted((d for d in given if not d.is_empty), key=lambda d: d.doc_id, reverse=True)
        if len({d.doc_id for d in given}) != len(given):
            twice = next(doc_id for doc_id, n in Counter(d.doc_id for d in given).items() if n > 1)
            raise InvalidArgumentError(f"BM25: document id {twice!r} stands twice; ids must be distinct")
        languages = [d.metadata.get("lang") for d in filled]
        analysed = analyser.analyse_many([d.indexed_text for d in filled], languages)
        order = sorted(range(len(analysed.terms)), key=lambda i: analysed.terms[i].encode())
        terms = PackedStrings.pack([analysed.terms[i] for i in order]).hashed()
        renumbered = np.empty(len(order), np.int64)
        renumbered[order] = np.arange(len(order))
        arrays = postings(renumbered[analysed.ids], analysed.lengths, len(order), k1, b)
        counts = {"n_documents": len(filled), "n_empty": len(given) - len(filled), "n_terms": len(order)}
        doc_ids = PackedStrings.pack([d.doc_id for d in filled])
        return cls(analyser, k1, b, terms, doc_ids, arrays, counts, [d.metadata for d in filled], engine)

    @property
    def n_empty(self) -> int:
        """Documents given that had nothing to index."""
        return self._counts["n_empty"]

    def __len__(self) -> int:
        return self._counts["n_documents"]

    def describe(self) -> dict[str, Any]:
        """What a result must record to be repeated."""
        return {
            "engine": self.name,
            "scorer": self._scorer.engine,
            "analyser": self.analyser.name,
            "k1": self.k1,
            "b": self.b,
            "idf": "lucene: ln(1 + (N - n + 0.5) / (n + 0.5))",
            **self._counts,
        }

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` documents of each query; its language is ``metadata["lang"]`` where it has one."""
        check_k(k)
        mask = self._mask(where) if where else None
        rankings = {q.query_id: self.top(q.text, k, q.metadata.get("lang"), mask) for q in queries}
        return Run(self.name, rankings)

    def top(self, text: str, k: int, language: str | None = None, allowed: Array | None = None) -> Ranking:
        """The best ``k`` documents for ``text``; fewer when fewer share a term with it.

        Args:
            allowed: bool ``(n_documents,)`` in row order, as made for a filter; None for all.

        Raises:
            InvalidArgumentError: ``k`` below 1.
        """
        check_k(k)
        terms = self.analyser.analyse(text, language, as_query=True)
        rows, scores = self._scorer.best(terms, k, allowed)
        # distinct rows in descending order of their ids: the order is the ranking's already
        return Ranking._ordered(self._doc_ids.take(rows), scores.tolist())

    def evidence(self, query: Query, ranking: Ranking, where: Mapping[str, Any] | None = None) -> Evidence:
        """What the postings say of ``query`` and the first three of ``ranking``, for adaptive fusion.

        Args:
            ranking: as :meth:`search` found it, with the same ``where``.
        """
        terms = set(self.analyser.analyse(query.text, query.metadata.get("lang"), as_query=True))
        numbers = sorted(map(self._terms.find, terms))
        tops = [self._row(doc_id) for doc_id in ranking.doc_ids[:COVERING]]
        held, mass = [0.0] * len(tops), 0.0
        for number in numbers:
            rows = self._postings.rows_of(number) if number >= 0 else NO_ROWS
            idf = math.log1p((len(self) - rows.size + 0.5) / (rows.size + 0.5))
            mass += idf
            places = np.searchsorted(rows, tops) if rows.size else ()
            for top, (row, place) in enumerate(zip(tops, places)):
                if place < rows.size and rows[place] == row:
                    held[top] += idf
        coverage = max(held, default=0.0) / mass if mass else 0.0
        return Evidence(coverage, int(self._mask(where).sum()) if where else len(self))

    def _row(self, doc_id: str) -> int:
        """The row of ``doc_id``, -1 where it has none; ids descend."""
        wanted = doc_id.encode("utf-8", "surrogatepass")
        row = bisect_left(range(len(self)), True, key=lambda at: self._id_bytes(at) <= wanted)
        return row if row < len(self) and self._id_bytes(row) == wanted else -1

    def _id_bytes(self, row: int) -> bytes:
        return self._doc_ids[row].encode("utf-8", "surrogatepass")

    def _mask(self, where: Mapping[str, Any]) -> Array:
        key = repr(where)  # tells 1 from "1", which JSON keys would not
        mask = self._masks.get(key)
        if mask is None:
            matches = compile_where(where)
            mask = np.fromiter(map(matches, self._read_metadata()), bool, len(self))
            self._masks[key] = mask
            if len(self._masks) > KEPT_MASKS:
                self._masks.popitem(last=False)
        return mask

    def _read_metadata(self) -> Sequence[Mapping[str, Any]]:
        if isinstance(self._metadata, np.ndarray):
            self._metadata = json.loads(self._metadata.tobytes())
        return self._metadata  # type: ignore[return-value]

    def save(self, folder: Path) -> None:
        """Write the index to ``folder``, whole or not at all; an index that is there is replaced.

        The arrays go into a subfolder of their own, then the manifest that names it is replaced in one
        rename: a reader or a crash sees the old index or the new one. One process at a time may save to
        a folder; indexes that are open stay usable.
        """

        def fill(data: Path) -> Mapping[str, int]:
            metadata = json.dumps([dict(m) for m in self._read_metadata()])
            write_array(data / "metadata.npy", np.frombuffer(metadata.encode(), np.uint8))
            for name, array in self._postings.arrays.items():
                write_array(data / f"{name}.npy", array)
            self._terms.save(data, "terms")
            self._doc_ids.save(data, "doc_ids")
            return self._counts

        _save(folder, self.analyser, self.k1, self.b, fill)

    @classmethod
    def write(
        cls,
        folder: Path,
        documents: Iterable[Document],
        analyser: Analyser,
        k1: float = 1.2,
        b: float = 0.75,
    ) -> None:
        """Write the index of ``documents`` to ``folder``: the files of :meth:`build` and :meth:`save`.

        The documents are gone through once and none is kept: memory grows by 12 bytes a document.

        Args:
            documents: in descending order of id, each once.

        Raises:
            InvalidArgumentError: they come in another order.
            OSError: the disk is full or refuses.
        """
        _save(folder, analyser, k1, b, lambda data: write_arrays(data, documents, analyser, k1, b))

    @classmethod
    def open(cls, folder: Path, engine: str | None = None) -> BM25:
        """Open an index that :meth:`save` wrote; the arrays are memory-mapped.

        Args:
            engine: as of :meth:`build`.

        Raises:
            StoreError: no index there, or a file is missing or damaged.
            UnknownNameError: no such engine.
            MissingExtraError: ``numba`` is asked for and not installed.
        """
        try:
            described = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if described["format"] != FORMAT:
                raise StoreError(f"{folder}: BM25 format {described['format']!r}; accepted: {FORMAT}")
            data, counts = folder / described["data"], described["counts"]
            arrays = {name: map_array(data / f"{name}.npy") for name in ARRAYS[:3]}
            terms, doc_ids = PackedStrings.open(data, "terms"), PackedStrings.open(data, "doc_ids")
            starts, impacts, size = arrays["starts"], arrays["impacts"], len(arrays["rows"])
            held = data / "maxima.npy"  # which an index of an earlier version lacks
            maxima = map_array(held) if held.exists() else largest_impacts(starts, impacts)
            arrays["maxima"] = maxima
            found = (len(terms), len(doc_ids), len(starts) - 1, len(maxima), int(starts[-1]), len(impacts))
            wanted = (
                *(counts[name] for name in ("n_terms", "n_documents", "n_terms", "n_terms")),
                size,
                size,
            )
            if found != wanted:
                raise ValueError(f"its files hold {found} entries where {wanted} belong")
            parts = (
                Analyser.from_config(described["analyser"]),
                described["k1"],
                described["b"],
                terms,
                doc_ids,
                arrays,
                counts,
                map_array(data / "metadata.npy"),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"{folder} holds no BM25 index: {error.filename} is missing") from error
        except (ValueError, TypeError, KeyError, IndexError, EOFError) as error:
            raise StoreError(f"{folder} is damaged: {error}; build the index again") from error
        return cls(*parts, engine)


def _scorer_of(name: str | None) -> Callable[[Postings], Scorer]:
    chosen = os.environ.get("RAG_BM25_ENGINE", "").strip() or "numpy" if name is None else name
    if chosen not in SCORERS:
        raise UnknownNameError(
            f"unknown engine {chosen!r} of BM25{nearest(chosen, SCORERS)}; accepted: {', '.join(SCORERS)}"
        )
    return SCORERS[chosen]


def _save(
    folder: Path, analyser: Analyser, k1: float, b: float, fill: Callable[[Path], Mapping[str, int]]
) -> None:
    """See :meth:`BM25.save`; ``fill`` writes the arrays into a folder and returns the counts."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"data-{secrets.token_hex(8)}"
    manifest = folder / f"{data.name}.json"
    try:
        data.mkdir()
        counts = fill(data)
        described = {
            "format": FORMAT,
            "data": data.name,
            "k1": k1,
            "b": b,
            "analyser": analyser.config(),
            "counts": dict(counts),
        }
        with manifest.open("w", encoding="utf-8") as stream:
            json.dump(described, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(manifest, folder / MANIFEST)
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        manifest.unlink(missing_ok=True)
        raise
    for other in folder.glob("data-*"):  # the index replaced, and what a killed process left
        if other.is_dir() and other != data:
            shutil.rmtree(other, ignore_errors=True)
        elif other.suffix == ".json":
            other.unlink(missing_ok=True)

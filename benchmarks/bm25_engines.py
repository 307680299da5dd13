"""The engines of the BM25 benchmark, each built on the same tokens with the same k1 and b, then opened."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bm25_corpus import Corpus

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.bm25_counts import postings
from rag_core.packed import PackedStrings
from rag_core.types import Document

K1, B, TOP = 1.2, 0.75, 50
OPENED = 5
#: Larger corpora are indexed from term numbers alone by ours.
FROM_TEXTS = 200_000


@dataclass(frozen=True, slots=True)
class Engine:
    """Something that answers a text of words, spaces between, with the ids of its best ``TOP`` documents.

    Attributes:
        build_s: seconds from term numbers, or from texts where ``from_texts``; None: not built for this row.
        open_s: seconds from files on disk to ready; None where it was not opened.
        start_s: seconds of loading and compiling code, once a process; in no other figure.
    """

    name: str
    ask: Callable[[str], Any]
    build_s: float | None = None
    from_texts: bool = False
    open_s: float | None = None
    start_s: float | None = None


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    before = time.perf_counter()
    made = call()
    return made, time.perf_counter() - before


def opened(call: Callable[[], Any]) -> tuple[Any, float]:
    tries = [timed(call) for _ in range(OPENED)]
    return tries[-1][0], statistics.median(seconds for _, seconds in tries)


def names(corpus: Corpus) -> list[str]:
    """The documents' ids."""
    return [f"d{i:08}" for i in range(len(corpus))]


def ours(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """In memory from texts, then mapped with both scorers."""
    _, from_ids_s = timed(lambda: postings(corpus.ids, corpus.lengths, len(corpus.words), K1, B))
    if len(corpus) > FROM_TEXTS:
        from_numbers(corpus).save(folder)
        yield from reopened(folder, from_ids_s)
        return
    documents = [Document(name, " ".join(tokens)) for name, tokens in zip(names(corpus), corpus.tokens())]
    built, from_texts_s = timed(lambda: BM25.build(documents, Analyser.raw(), K1, B, engine="numpy"))
    built.save(folder)
    yield Engine("numpy, built", lambda text: built.top(text, TOP), from_texts_s, True)
    yield from reopened(folder, from_ids_s)


def from_numbers(corpus: Corpus) -> BM25:
    """An index of the corpus without its texts, which would take minutes to write out and to read."""
    order = sorted(range(len(corpus.words)), key=lambda number: corpus.words[number].encode())
    renumbered = np.empty(len(order), np.int64)
    renumbered[order] = np.arange(len(order))
    arrays = postings(renumbered[corpus.ids], corpus.lengths, len(order), K1, B)
    terms = PackedStrings.pack([corpus.words[number] for number in order]).hashed()
    doc_ids = PackedStrings.pack(names(corpus)[::-1])
    counts = {"n_documents": len(corpus), "n_empty": 0, "n_terms": len(order)}
    return BM25(Analyser.raw(), K1, B, terms, doc_ids, arrays, counts, [{}] * len(corpus), "numpy")


def reopened(folder: Path, from_ids_s: float) -> Iterator[Engine]:
    """Our index in ``folder`` with both scorers."""
    mapped, open_s = opened(lambda: BM25.open(folder, engine="numpy"))
    yield Engine("numpy, mapped", lambda text: mapped.top(text, TOP), from_ids_s, open_s=open_s)
    try:
        from rag_core.bm25_numba import compiled

        _, start_s = timed(compiled)
    except ImportError as error:
        print(f"left out: numba: {error}")
        return
    fast, open_s = opened(lambda: BM25.open(folder, engine="numba"))
    yield Engine("numba, mapped", lambda text: fast.top(text, TOP), open_s=open_s, start_s=start_s)


def with_bm25s(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """Its public ``retrieve`` by numpy and by numba, and its scores alone, which rank nothing."""
    import bm25s

    ids = np.array(names(corpus), object)  # which answers an array of numbers faster than a list
    tokenised = bm25s.tokenization.Tokenized(
        ids=np.split(corpus.ids, np.cumsum(corpus.lengths)[:-1]),
        vocab={word: i for i, word in enumerate(corpus.words)},
    )
    for backend in ("numpy", "numba"):
        engine = bm25s.BM25(method="lucene", k1=K1, b=B, backend=backend)
        start_s = None
        if backend == "numba":
            small = bm25s.BM25(method="lucene", k1=K1, b=B, backend=backend)
            small.index([["a", "b"], ["a"], ["c"]], show_progress=False)
            _, start_s = timed(lambda e=small: e.retrieve([["a"]], k=1, show_progress=False))
        _, build_s = timed(lambda e=engine: e.index(tokenised, show_progress=False))
        engine.save(folder / backend)
        # opened twice: in memory it answers faster than mapped, so that is what is asked
        _, open_s = opened(lambda b=backend: bm25s.BM25.load(folder / b, mmap=True))

        def ask(text: str, engine: Any = engine) -> Any:
            found = engine.retrieve([text.split()], k=TOP, show_progress=False, n_threads=0)
            return ids.take(found.documents[0]).tolist()

        yield Engine(f"bm25s, {backend}", ask, build_s, open_s=open_s, start_s=start_s)
        if backend == "numpy":
            yield Engine("bm25s, scores only", lambda text, e=engine: e.get_scores(text.split()))


def with_tantivy(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """With the documents' numbers from a column, and from terms, without numbers, as its users can not."""
    import tantivy

    ids = names(corpus)
    folder.mkdir(parents=True)
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="whitespace", index_option="freq")
    builder.add_integer_field("number", stored=False, fast=True)
    schema = builder.build()

    def build() -> None:
        writer = tantivy.Index(schema, path=str(folder)).writer(512_000_000, 1)
        for number, tokens in enumerate(corpus.tokens()):
            writer.add_document(tantivy.Document(text=" ".join(tokens), number=number))
        writer.commit()
        writer.wait_merging_threads()

    _, build_s = timed(build)
    index, open_s = opened(lambda: tantivy.Index.open(str(folder)))
    searcher = index.searcher()

    def ask(text: str) -> Any:
        hits = searcher.search(index.parse_query(text, ["text"]), TOP, count=False).hits
        return [ids[n] for n in searcher.fast_field_values("number", [address for _, address in hits])]

    def search(text: str) -> Any:
        terms = [tantivy.Query.term_query(schema, "text", word, index_option="freq") for word in text.split()]
        wanted = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return searcher.search(wanted, TOP, count=False).hits

    yield Engine(f"tantivy, {searcher.num_segments} segment(s)", ask, build_s, True, open_s)
    yield Engine("tantivy, search only", search)


def with_rank_bm25(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    import rank_bm25

    ids = names(corpus)
    engine, build_s = timed(lambda: rank_bm25.BM25Okapi(list(corpus.tokens()), k1=K1, b=B))

    def ask(text: str) -> Any:
        scores = engine.get_scores(text.split())
        best = np.argpartition(-scores, TOP)[:TOP]
        return [ids[number] for number in best[np.argsort(-scores[best])].tolist()]

    yield Engine("rank_bm25", ask, build_s)


ENGINES: dict[str, Callable[[Corpus, Path], Iterator[Engine]]] = {
    "bm25": ours,
    "bm25s": with_bm25s,
    "tantivy": with_tantivy,
    "rank_bm25": with_rank_bm25,
}

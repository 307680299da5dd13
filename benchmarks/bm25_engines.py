"""The engines of the BM25 benchmark, each built on the same tokens with the same k1 and b, and opened again."""

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
from rag_core.bm25 import BM25, postings
from rag_core.types import Document

K1, B, TOP = 1.2, 0.75, 50
OPENED = 5


@dataclass(frozen=True, slots=True)
class Engine:
    """Something that answers a query of words with its best ``TOP`` documents.

    Attributes:
        build_s: seconds from term numbers, or from texts where ``from_texts``; None where another row has them.
        open_s: seconds from files on disk to ready; None where it was not opened.
        start_s: seconds of loading and compiling code, once a process; in no other figure.
    """

    name: str
    ask: Callable[[list[str]], Any]
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


def ours(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """In memory from texts, then mapped with both scorers."""
    _, from_ids_s = timed(lambda: postings(corpus.ids, corpus.lengths, len(corpus.words), K1, B))
    documents = [Document(f"d{i:08}", " ".join(tokens)) for i, tokens in enumerate(corpus.tokens())]
    built, from_texts_s = timed(lambda: BM25.build(documents, Analyser.raw(), K1, B, engine="numpy"))
    built.save(folder)
    yield Engine("numpy, built", lambda query: built.top(" ".join(query), TOP), from_texts_s, True)
    mapped, open_s = opened(lambda: BM25.open(folder, engine="numpy"))
    yield Engine("numpy, mapped", lambda query: mapped.top(" ".join(query), TOP), from_ids_s, open_s=open_s)
    try:
        from rag_core.bm25_numba import compiled

        _, start_s = timed(compiled)
    except ImportError as error:
        print(f"left out: numba: {error}")
        return
    fast, open_s = opened(lambda: BM25.open(folder, engine="numba"))
    yield Engine(
        "numba, mapped", lambda query: fast.top(" ".join(query), TOP), open_s=open_s, start_s=start_s
    )


def with_bm25s(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """Its public ``retrieve`` by numpy and by numba, and its scores alone, which rank nothing."""
    import bm25s

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

        def ask(query: list[str], engine: Any = engine) -> Any:
            return engine.retrieve([query], k=TOP, show_progress=False, n_threads=0)

        yield Engine(f"bm25s, {backend}", ask, build_s, open_s=open_s, start_s=start_s)
        if backend == "numpy":
            yield Engine("bm25s, scores only", engine.get_scores)


def with_tantivy(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    """One segment; a query of terms, no parsing; with the documents' numbers from a column, and without."""
    import tantivy

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
    searcher, open_s = opened(lambda: tantivy.Index.open(str(folder)).searcher())

    def search(query: list[str]) -> Any:
        terms = [tantivy.Query.term_query(schema, "text", word, index_option="freq") for word in query]
        wanted = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return searcher.search(wanted, TOP, count=False).hits

    def ask(query: list[str]) -> Any:
        return searcher.fast_field_values("number", [address for _, address in search(query)])

    yield Engine(f"tantivy, {searcher.num_segments} segment(s)", ask, build_s, True, open_s)
    yield Engine("tantivy, no ids", search)


def with_rank_bm25(corpus: Corpus, folder: Path) -> Iterator[Engine]:
    import rank_bm25

    engine, build_s = timed(lambda: rank_bm25.BM25Okapi(list(corpus.tokens()), k1=K1, b=B))

    def ask(query: list[str]) -> Any:
        scores = engine.get_scores(query)
        best = np.argpartition(-scores, TOP)[:TOP]
        return best[np.argsort(-scores[best])]

    yield Engine("rank_bm25", ask, build_s)


ENGINES: dict[str, Callable[[Corpus, Path], Iterator[Engine]]] = {
    "bm25": ours,
    "bm25s": with_bm25s,
    "tantivy": with_tantivy,
    "rank_bm25": with_rank_bm25,
}

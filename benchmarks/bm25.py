"""Query time and build rate of our BM25 beside bm25s and rank_bm25, on one made-up corpus in one process.

    python benchmarks/bm25.py                      # 100,000 documents
    python benchmarks/bm25.py --docs 1000000 --engines bm25,bm25s

The corpus is Zipfian (words drawn with probability 1/rank, about 100 a document), the queries hold five
words drawn from documents, and every engine gets the same tokens, k1 and b. Ours also answers from an
index written to disk and mapped. "bm25s" is its public ``retrieve``, most of whose time goes into picking
the best of all documents; "scores only" leaves that out and ranks nothing. Absolute times depend on the
machine; the ratios are what to read.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25, postings
from rag_core.types import Document

K1, B, TOP = 1.2, 0.75, 50
VOCABULARY, WORDS_A_DOCUMENT, TERMS_A_QUERY = 100_000, 100, 5


@dataclass(frozen=True, slots=True)
class Corpus:
    """Term numbers of all documents, one after the other, and the words they stand for."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int32]
    words: list[str]

    @classmethod
    def make(cls, n_documents: int, seed: int = 0) -> Corpus:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(WORDS_A_DOCUMENT // 2, WORDS_A_DOCUMENT * 3 // 2, n_documents).astype(np.int32)
        share = 1 / np.arange(1, VOCABULARY + 1)
        ids = np.searchsorted(np.cumsum(share / share.sum()), rng.random(int(lengths.sum())))
        return cls(np.minimum(ids, VOCABULARY - 1), lengths, [f"w{i}" for i in range(VOCABULARY)])

    def tokens(self) -> list[list[str]]:
        ends = np.cumsum(self.lengths)
        return [[self.words[i] for i in self.ids[e - n : e].tolist()] for e, n in zip(ends, self.lengths)]

    def queries(self, count: int, seed: int = 1) -> list[list[str]]:
        """Distinct words of one document each, without the hundred most common (stop words)."""
        rng = np.random.default_rng(seed)
        ends = np.cumsum(self.lengths)
        made: list[list[str]] = []
        while len(made) < count:
            document = int(rng.integers(len(self.lengths)))
            own = np.unique(self.ids[ends[document] - self.lengths[document] : ends[document]])
            own = own[own >= 100]
            if own.size >= TERMS_A_QUERY:
                made.append([self.words[i] for i in rng.choice(own, TERMS_A_QUERY, replace=False)])
        return made


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times in seconds, rates in documents per second."""

    engine: str
    p50_s: float
    build_per_s: float | None = None
    open_s: float | None = None


def p50_s(ask: Callable[[list[str]], Any], queries: Sequence[list[str]], budget_s: float) -> float:
    """Median seconds of one query, after warming up, within about ``budget_s`` seconds."""
    for query in queries[:3]:
        ask(query)
    seconds: list[float] = []
    started = time.perf_counter()
    for query in queries:
        before = time.perf_counter()
        ask(query)
        seconds.append(time.perf_counter() - before)
        if len(seconds) >= 10 and time.perf_counter() - started > budget_s:
            break
    return statistics.median(seconds)


def ours(corpus: Corpus, queries: Sequence[list[str]], budget_s: float) -> list[Row]:
    before = time.perf_counter()
    postings(corpus.ids, corpus.lengths, VOCABULARY, K1, B)
    from_ids_s = time.perf_counter() - before
    texts = [" ".join(tokens) for tokens in corpus.tokens()]
    documents = [Document(f"d{i:08}", text) for i, text in enumerate(texts)]
    before = time.perf_counter()
    index = BM25.build(documents, Analyser.raw(), K1, B)
    from_texts_s = time.perf_counter() - before
    n = len(documents)
    del documents, texts
    memory_s = p50_s(lambda query: index.top(" ".join(query), TOP), queries, budget_s)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "bm25")
        opening = []
        for _ in range(5):
            before = time.perf_counter()
            mapped = BM25.open(Path(folder) / "bm25")
            opening.append(time.perf_counter() - before)
        mapped_s = p50_s(lambda query: mapped.top(" ".join(query), TOP), queries, budget_s)
    return [
        Row("rag_core, in memory", memory_s, n / from_ids_s),
        Row("rag_core, mapped", mapped_s, None, statistics.median(opening)),
        Row("rag_core, from texts", memory_s, n / from_texts_s),
    ]


def with_bm25s(corpus: Corpus, queries: Sequence[list[str]], budget_s: float) -> list[Row]:
    import bm25s

    tokenised = bm25s.tokenization.Tokenized(
        ids=np.split(corpus.ids, np.cumsum(corpus.lengths)[:-1]),
        vocab={word: i for i, word in enumerate(corpus.words)},
    )
    engine = bm25s.BM25(method="lucene", k1=K1, b=B)
    before = time.perf_counter()
    engine.index(tokenised, show_progress=False)
    built_s = time.perf_counter() - before

    def ask(query: list[str]) -> Any:
        return engine.retrieve([query], k=TOP, show_progress=False, n_threads=0)

    return [
        Row("bm25s (numpy)", p50_s(ask, queries, budget_s), len(corpus.lengths) / built_s),
        Row("bm25s, scores only", p50_s(engine.get_scores, queries, budget_s)),
    ]


def with_rank_bm25(corpus: Corpus, queries: Sequence[list[str]], budget_s: float) -> list[Row]:
    import rank_bm25

    tokens = corpus.tokens()
    before = time.perf_counter()
    engine = rank_bm25.BM25Okapi(tokens, k1=K1, b=B)
    built_s = time.perf_counter() - before

    def ask(query: list[str]) -> Any:
        scores = engine.get_scores(query)
        best = np.argpartition(-scores, TOP)[:TOP]
        return best[np.argsort(-scores[best])]

    return [Row("rank_bm25", p50_s(ask, queries, budget_s), len(tokens) / built_s)]


ENGINES = {"bm25": ours, "bm25s": with_bm25s, "rank_bm25": with_rank_bm25}


def table(rows: Sequence[Row]) -> str:
    """``rows`` in columns; ratios are to the first row, above 1 where that one is better."""
    first = rows[0]
    lines = [f"{'engine':<22}{'query p50':>12}{'ratio':>9}{'build docs/s':>15}{'ratio':>9}{'open':>11}"]
    for row in rows:
        built = f"{row.build_per_s:>15,.0f}" if row.build_per_s else f"{'':>15}"
        slower = (
            f"{first.build_per_s / row.build_per_s:>8.1f}x"
            if first.build_per_s and row.build_per_s
            else f"{'':>9}"
        )
        opened = f"{row.open_s * 1e3:>8.2f} ms" if row.open_s else ""
        times = f"{row.p50_s * 1e3:>9.3f} ms{row.p50_s / first.p50_s:>8.1f}x"
        lines.append(f"{row.engine:<22}{times}{built}{slower}{opened}".rstrip())
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--docs", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--engines", default=",".join(ENGINES), help="of " + ", ".join(ENGINES))
    parser.add_argument("--budget-s", type=float, default=10.0, help="seconds of queries per engine")
    options = parser.parse_args(argv)
    corpus = Corpus.make(options.docs)
    queries = corpus.queries(options.queries)
    print(f"{options.docs:,} documents, {corpus.ids.size:,} tokens, {TERMS_A_QUERY} terms, top {TOP}")
    rows = [
        row for name in options.engines.split(",") for row in ENGINES[name](corpus, queries, options.budget_s)
    ]
    print(table(rows))


if __name__ == "__main__":
    main()

"""Query time, build rate and opening of our BM25 beside bm25s, tantivy and rank_bm25, in one process.

    python benchmarks/bm25.py                      # 10,000 and 100,000 documents
    python benchmarks/bm25.py --docs 1000000 --engines bm25,bm25s,tantivy

The corpus is Zipfian (words drawn with probability 1/rank, about 100 a document), the queries hold five
words drawn from documents, and every engine gets the same tokens, k1 and b. In each round every engine
answers the same queries, none of which returns in a later round, so that a busy machine slows all alike; a
ratio is the median of the rounds' ratios of medians. A query is a text and its answer ids: the peers split
at spaces and look ids up in a list or an array, whichever costs them less. "scores only" ranks nothing;
"search only" gets terms, and does not say which documents the hits are. The time to load and compile code
("start") is in no other figure. What is not installed is left out and said. Absolute times depend on the
machine; the ratios are what to read.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bm25_corpus import TERMS_A_QUERY, Corpus
from bm25_engines import ENGINES, TOP, Engine

ROUNDS = 7
WARMING = 5


def seconds_of(engine: Engine, queries: Sequence[str], budget_s: float) -> list[float]:
    """Seconds of each query, of as many as ``budget_s`` allows, ten at least."""
    seconds: list[float] = []
    started = time.perf_counter()
    for query in queries:
        before = time.perf_counter()
        engine.ask(query)
        seconds.append(time.perf_counter() - before)
        if len(seconds) >= 10 and time.perf_counter() - started > budget_s:
            break
    return seconds


def measure(engines: Sequence[Engine], corpus: Corpus, count: int, budget_s: float) -> list[list[float]]:
    """The median seconds of a query, by engine and round."""
    for engine in engines:
        for query in corpus.queries(WARMING, seed=2):
            engine.ask(query)
    medians: list[list[float]] = [[] for _ in engines]
    for queries in (corpus.queries(count, seed=3 + number) for number in range(ROUNDS)):
        for engine, own in zip(engines, medians):
            own.append(statistics.median(seconds_of(engine, queries, budget_s)))
    return medians


def table(engines: Sequence[Engine], medians: Sequence[Sequence[float]], n_documents: int) -> str:
    """In columns; ``x numpy`` and ``x numba`` are times as long as our mapped index takes."""
    bases = [i for i, engine in enumerate(engines) if engine.name in ("numpy, mapped", "numba, mapped")]
    heads = "".join(f"{'x ' + engines[i].name.partition(',')[0]:>9}" for i in bases)
    lines = [f"{'engine':<23}{'query p50':>12}{heads}{'build docs/s':>15}{'open':>11}{'start':>9}"]
    for engine, own in zip(engines, medians):
        line = f"{engine.name:<23}{statistics.median(own) * 1e3:>9.3f} ms"
        for base in bases:
            line += f"{statistics.median(a / b for a, b in zip(own, medians[base])):>8.2f}x"
        line += (
            f"{n_documents / engine.build_s:>13,.0f} {'t' if engine.from_texts else 'n'}"
            if (engine.build_s)
            else f"{'':>15}"
        )
        line += f"{engine.open_s * 1e3:>8.2f} ms" if engine.open_s is not None else f"{'':>11}"
        line += f"{engine.start_s:>7.1f} s" if engine.start_s is not None else ""
        lines.append(line.rstrip())
    return "\n".join([*lines, "build: n from term numbers, t from texts (tokenised by the engine)"])


def run(n_documents: int, names: Sequence[str], count: int, budget_s: float) -> str:
    corpus = Corpus.make(n_documents)
    engines: list[Engine] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                engines += ENGINES[name](corpus, Path(folder) / name)
            except ImportError as error:
                print(f"left out: {name}: {error}")
        print(f"\n{n_documents:,} documents, {corpus.ids.size:,} tokens, {TERMS_A_QUERY} terms, top {TOP}")
        return table(engines, measure(engines, corpus, count, budget_s), n_documents)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--docs", default="10000,100000", help="numbers of documents, separated by commas")
    parser.add_argument("--queries", type=int, default=200, help=f"of each of {ROUNDS} rounds")
    parser.add_argument("--engines", default=",".join(ENGINES), help="of " + ", ".join(ENGINES))
    parser.add_argument("--budget-s", type=float, default=1.0, help="seconds of queries per engine and round")
    options = parser.parse_args(argv)
    for size in options.docs.split(","):
        print(run(int(size), options.engines.split(","), options.queries, options.budget_s))


if __name__ == "__main__":
    main()

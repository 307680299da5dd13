"""``hybrid_search`` end to end on 300,000 chunks: a budget by stage, and the time to build the index.

    python benchmarks/hybrid.py                                  # maxsim as the reranker, offline
    python benchmarks/hybrid.py --reranker cross-encoder --path FOLDER --pool 25
    python benchmarks/hybrid.py --quick                          # 20,000 chunks

Texts are words of BERT's vocabulary, drawn with a probability of 1 / rank, so BM25 and the reranker do the
work that real chunks of that length make them do. Embedding them all with a model would take hours: the
documents' vectors are random rows of length 1, made from a seed. The query is embedded by the real model.
So **times are real, and what is found by vectors means nothing**. The reranker's cache is off: every
candidate is read anew.

Each query is searched with pools of ``--pool`` candidates in turn and once without the reranker. Absolute
times depend on the machine and its load; the load is printed, and CPU is the processor time of all threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers._bert import VOCABULARY
from rag_core import Document, get_embedder, get_reranker
from rag_core.devices import usable_cpus
from rag_core.fingerprint import Fingerprint
from rag_core.index import Index
from rag_core.protocols import EmbedProvider, Reranker, Role, Vectors

QUERY_WORDS = 8
STAGES = ("embed", "vector", "bm25", "fusion", "texts", "rerank", "hits")


class SeededDocuments:
    """Queries by ``real``; documents as random rows, the same for the same run of calls."""

    def __init__(self, real: EmbedProvider, seed: int = 7) -> None:
        self._real, self._rng = real, np.random.default_rng(seed)
        self.name, self.model, self.target = f"seeded+{real.name}", real.model, real.target
        self.is_local, self.dim, self.max_tokens = True, real.dim, real.max_tokens
        self.fingerprint = Fingerprint("seeded", real.model, "1", real.dim, "fp32", "none")

    def is_available(self) -> bool:
        return self._real.is_available()

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        if role == "query":
            return self._real.embed(texts, role="query")
        rows = self._rng.standard_normal((len(texts), self.dim), np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._real.count_tokens(texts)


class Texts:
    """Words drawn with a probability of 1 / rank."""

    def __init__(self, seed: int = 3) -> None:
        self._rng = np.random.default_rng(seed)
        words = VOCABULARY.read_text(encoding="utf-8").splitlines()
        self._words = np.array(
            [word for word in words if word.isascii() and word.isalpha() and len(word) > 1]
        )
        self._rng.shuffle(self._words)
        share = 1 / np.arange(1, len(self._words) + 1)
        self._upto = np.cumsum(share / share.sum())

    def of(self, n_words: int) -> str:
        places = np.searchsorted(self._upto, self._rng.random(n_words))
        return " ".join(self._words[np.minimum(places, len(self._words) - 1)].tolist())

    def documents(self, n: int, n_words: int) -> Iterator[Document]:
        for number in range(n):
            length = n_words // 2 + number % n_words
            yield Document(f"c{number:07}", self.of(length), f"Chunk {number}", {"part": number % 20})


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(values, 100 * share))


def show(title: str, searches: Sequence[dict[str, float]]) -> None:
    print(f"\n{title}, {len(searches)} queries")
    print(f"{'stage':<10}{'p50':>12}{'p95':>12}{'share of p50':>15}")
    whole = percentile([one["all"] for one in searches], 0.5)
    for stage in (*STAGES, "all", "CPU"):
        if values := [one[stage] for one in searches if stage in one]:
            p50, p95 = percentile(values, 0.5), percentile(values, 0.95)
            print(f"{stage:<10}{p50 * 1e3:>9.3g} ms{p95 * 1e3:>9.3g} ms{p50 / whole:>14.0%}")


def measure(
    index: Index, queries: Sequence[str], pools: Sequence[int], rerankers: Sequence[Reranker | None]
) -> None:
    kept: dict[tuple[bool, int], list[dict[str, float]]] = {}
    for number, query in enumerate(queries):
        for reranker in rerankers:
            for pool in pools if reranker else pools[-1:]:
                index.reranker = reranker
                started, cpu = time.perf_counter(), time.process_time()
                result = index.hybrid_search(query, candidate_pool=pool)
                whole = {"all": time.perf_counter() - started, "CPU": time.process_time() - cpu}
                if result.warnings:
                    raise SystemExit("; ".join(result.warnings))
                if number >= 2:  # the first two load and compile
                    kept.setdefault((reranker is not None, pool), []).append({**result.seconds, **whole})
    for (reranked, pool), searches in kept.items():
        show(f"pool {pool}, {'reranked' if reranked else 'not reranked'}", searches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chunks", type=int, default=300_000)
    parser.add_argument("--words", type=int, default=100, help="mean words of a chunk, about as many tokens")
    parser.add_argument("--quick", action="store_true", help="20,000 chunks")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--pool", type=int, action="append", help="25 and 50; repeatable")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--reranker", default="maxsim")
    parser.add_argument("--path", help="folder of the reranker's model")
    parser.add_argument("--store", default="flat", help="for example 'flat?scan=int8'")
    parser.add_argument("--batch", type=int, default=1024, help="texts a batch of the ingest")
    options = parser.parse_args()
    n = 20_000 if options.quick else options.chunks
    embedder = SeededDocuments(get_embedder(options.embedder))
    reranker = get_reranker(options.reranker, **({"path": options.path} if options.path else {}))
    if forget := getattr(reranker, "without_cache", None):
        forget()
    texts = Texts()
    documents = list(texts.documents(n, options.words))
    with tempfile.TemporaryDirectory() as folder:
        reached: dict[str, float] = {}
        started = time.perf_counter()
        index = Index.create(Path(folder) / "index", embedder, store=options.store)
        index.ingest(
            documents,
            batch=options.batch,
            progress=lambda stage, done, total: reached.update({stage: time.perf_counter()}),
        )
        built_s = time.perf_counter() - started
        size_mb = index.stats()["size_bytes"] / 1e6
        tokens = statistics.fmean(embedder.count_tokens([document.text for document in documents[:200]]))
        told = ", ".join(f"{stage!r} {at - started:.3g} s" for stage, at in reached.items())
        print(f"{n:,} chunks of about {tokens:.0f} tokens in {options.store}: {size_mb:.0f} MB")
        print(f"built in {built_s:.3g} s without a model; the last step of {told}")
        print("documents' vectors are random, queries are embedded: times mean something, hits do not")
        print(f"embedder {embedder.model}; reranker {reranker.fingerprint}")
        print(f"{usable_cpus()} processors, load of the last minute {os.getloadavg()[0]:.1f}")
        queries = [texts.of(QUERY_WORDS) for _ in range(options.queries + 2)]
        measure(index, queries, sorted(options.pool or [25, 50]), [None, reranker])
        index.close()


if __name__ == "__main__":
    main()

"""What the Ray engine brings and costs: throughput by workers, memory of the driver by size of the corpus.

    python benchmarks/scale.py throughput --passages 2000 --provider minilm
    python benchmarks/scale.py memory --sizes 10000,100000,1000000 --words 12

Throughput: a cluster of two nodes with one CPU each, on this machine; the same passages by one worker and by
two, in turn, rounds times. Loading the model is part of each run and is told apart. Memory: an embedder that
costs nothing; the largest resident set of the driver before the first document, when the last vector is
there, and when the version is committed, each size in a process of its own; then what each passage adds, from
the smallest size to the largest. The store is LanceDB, whose index of vectors is built by a process of the
node: "node" is the largest resident set of that, 0 where no index was built.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness.environment import peak_rss_bytes
from rag_core import Document, get_embedder
from rag_core.index import Index
from rag_core.scale import EmbedJob, RayEngine, ShardReport
from rag_core.scale.engine import SHARD

WORDS = [f"word{number}" for number in range(5000)]
MIB = 1 << 20


class Passages:
    """``n`` passages of ``words`` words, made anew each time they are gone through; none is kept."""

    def __init__(self, n: int, words: int) -> None:
        self.n, self.words = n, words

    def __iter__(self) -> Iterator[Document]:
        rng = random.Random(7)
        for number in range(self.n):
            yield Document(f"p{number:09d}", f"{' '.join(rng.choices(WORDS, k=self.words))} {number}")


class Watched(RayEngine):
    """Notes when the first and the last report came, and peaks of memory: then, and of a node's process."""

    first_s = last_s = 0.0
    rss_bytes = node_bytes = 0

    def run(self, job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        for report in super().run(job, n_shards):
            self.last_s = time.perf_counter()
            self.first_s = self.first_s or self.last_s
            yield report
        self.rss_bytes = peak_rss_bytes()

    def elsewhere(self, call: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            noted = Path(folder) / "bytes"
            super().elsewhere(partial(_noting, call, noted))
            self.node_bytes = int(noted.read_text())


def _noting(call: Callable[[], None], noted: Path) -> None:
    call()
    noted.write_text(str(peak_rss_bytes()))


def cluster(nodes: int) -> Any:
    """``nodes`` nodes of one CPU each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = {"num_cpus": 1, "object_store_memory": 128 * MIB, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=node)
        for _ in range(nodes - 1):
            made.add_node(num_cpus=1, object_store_memory=128 * MIB)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    return made


def throughput(provider: str, passages: int, words: int, rounds: int, shard: int) -> None:
    cluster(2)
    embedder = get_embedder(provider)
    print(f"{passages} passages of {words} words, {provider}, shards of {shard} texts, {os.cpu_count()} CPUs")
    print(f"{'workers':>8} {'round':>6} {'passages/s':>11} {'s to first':>11} {'digest':>14}")
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(rounds):
            for workers in (1, 2):
                engine = Watched(provider, workers=workers, shard_texts=shard)
                index = Index.create(Path(folder) / f"{round_}-{workers}", embedder)
                started = time.perf_counter()
                index.ingest(Passages(passages, words), engine=engine)
                # the first reports of all workers came after the model was loaded and a shard embedded
                rate = (passages - workers * shard) / (engine.last_s - engine.first_s)
                rates[workers].append(rate)
                print(
                    f"{workers:>8} {round_:>6} {rate:>11.4g} {engine.first_s - started:>11.3g} "
                    f"{index.digest()[:12]:>14}",
                    flush=True,
                )
                index.close()
    best = {workers: max(found) for workers, found in rates.items()}
    print(f"two workers against one, best rounds: {best[2] / best[1]:.3g} times the passages a second")


def memory_of(passages: int, words: int, store: str, *, commits: bool) -> None:
    """One size, in this process; prints one line."""
    made = cluster(1)
    embedder = get_embedder("fake")
    peaks = [peak_rss_bytes()]
    engine = Watched("fake", workers=1)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "i", embedder, store=store if commits else "flat")
        if commits:
            index.ingest(Passages(passages, words), engine=engine)
        else:
            _embed_only(index, engine, Passages(passages, words))
    peaks.append(engine.rss_bytes)
    if commits:
        peaks += [peak_rss_bytes(), engine.node_bytes]
    seconds = time.perf_counter() - started
    print(passages, *peaks, seconds, flush=True)
    leave(made)


class _Enough(Exception):  # noqa: N818
    pass


def leave(made: Any) -> None:
    import ray

    ray.shutdown()
    made.shutdown()


def _embed_only(index: Index, engine: Watched, passages: Passages) -> None:
    real = engine.run

    def run(job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        yield from real(job, n_shards)
        raise _Enough

    engine.run = run  # type: ignore[method-assign]
    try:
        index.ingest(passages, engine=engine)
    except _Enough:
        return


def memory(sizes: list[int], words: int, store: str, *, commits: bool) -> None:
    print(
        f"largest resident set of the driver, MiB; {words} words a passage, shards of {SHARD} texts, {store}"
    )
    stages = ["before", "embedded", *(["committed", "node"] if commits else [])]
    print(f"{'passages':>10}" + "".join(f"{stage:>11}" for stage in stages) + f"{'seconds':>9}", flush=True)
    found: list[list[float]] = []
    for size in sizes:
        command = [sys.executable, __file__, "memory-of", "--passages", str(size), "--words", str(words)]
        command += ["--store", store, *([] if commits else ["--embed-only"])]
        line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        found.append([float(value) for value in line])
        cells = "".join(f"{value / MIB:>11.4g}" for value in found[-1][1:-1])
        print(f"{size:>10}{cells}{found[-1][-1]:>9.3g}", flush=True)
    least, most = min(found), max(found)
    if most[0] > least[0]:
        for stage, low, high in zip(stages[1:], least[2:-1], most[2:-1]):
            grown = (high - low) / (most[0] - least[0])
            print(f"{stage}: {grown:.3g} bytes a passage from {least[0]:,.0f} to {most[0]:,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("throughput", "memory", "memory-of"))
    parser.add_argument("--provider", default="minilm")
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--shard", type=int, default=128)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--store", default="lancedb", help="Of the index whose commit is measured.")
    parser.add_argument("--embed-only", action="store_true", help="Stop before the version is committed.")
    given = parser.parse_args()
    if given.what == "throughput":
        throughput(given.provider, given.passages, given.words, given.rounds, given.shard)
    elif given.what == "memory":
        sizes = [int(size) for size in given.sizes.split(",")]
        memory(sizes, given.words, given.store, commits=not given.embed_only)
    else:
        memory_of(given.passages, given.words, given.store, commits=not given.embed_only)


if __name__ == "__main__":
    main()

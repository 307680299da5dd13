"""Exact search: the plain matrix product, ours, faiss and usearch on the same rows in one process.

    python benchmarks/vectors.py                            # 100,000 x 1024, then 1,000,000 x 384
    python benchmarks/vectors.py --quick                    # 20,000 x 384
    python benchmarks/vectors.py --shape 1000000x384 --memory

Rows lie around centres, as texts of many topics do, and half of their cosines lie close together. Engines
take turns, query by query and in an order that changes (threads of one still hold a processor while the next
begins), so that what else the machine does hits all of them; a ratio is the median of an engine's times over
that of the plain product (``rows @ query`` and nothing else, which ranks nothing), below 1 where it is
faster. faiss's batches are searched as its package ships them, in blocks of its own through a
product that its wheel builds without the machine's wide registers: read that column as the wheel's, not as
the library's. Recall is the share of the exact top 50 that the look through bytes finds.

``--memory`` starts a process of its own that opens the store and searches it plain, in a batch, with a
filter, after an update and after a deletion, and prints what it holds beside the mapped files (Linux).

Where OPENBLAS_CORETYPE or OPENBLAS_L2_SIZE are set, numpy is slower than on a machine where they are not:
unset both for this command alone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors
from rag_core.stores import create_store, open_store
from rag_core.stores.flat import FlatStore
from rag_core.stores.kernels import has_int8_kernels

DEPTH, BATCH, CENTRES, BLOCK = 50, 64, 2000, 1 << 16
FILTER = {"part": 3}
Ask = Callable[[Vectors], Any]


def blocks(n: int, dim: int, seed: int) -> Iterator[Vectors]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((CENTRES, dim), np.float32) + 1
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        rows = centres[rng.integers(0, CENTRES, size)] + 0.9 * rng.standard_normal((size, dim), np.float32)
        yield np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def fill(path: Path, scan: str, n: int, dim: int) -> FlatStore:
    identity = Fingerprint("benchmark", "clusters", "1", dim, "fp32", "none")
    store = create_store(f"flat?scan={scan}", path, identity)
    assert isinstance(store, FlatStore)
    rows = np.concatenate(list(blocks(n, dim, 1)))
    store.upsert([f"d{row:07}" for row in range(n)], rows, [{"part": row % 20} for row in range(n)])
    return store


def engines(exact: FlatStore, coded: FlatStore, rows: Vectors) -> tuple[dict[str, Ask], dict[str, Ask]]:
    """Name -> what answers one query, and what answers a batch; the plain product first."""
    one: dict[str, Ask] = {"numpy product": lambda q: rows @ q, "ours": lambda q: exact.search(q, DEPTH)}
    many: dict[str, Ask] = {
        "numpy product": lambda q: rows @ q.T,
        "ours": lambda q: exact.search_many(q, DEPTH),
    }
    if has_int8_kernels():
        one["ours, int8"] = lambda q: coded.search(q, DEPTH)
    if faiss := _imported("faiss"):
        flat = faiss.IndexFlatIP(rows.shape[1])
        flat.add(rows)
        one["faiss IndexFlatIP"] = lambda q: flat.search(q[None], DEPTH)
        many["faiss IndexFlatIP"] = lambda q: flat.search(q, DEPTH)
    if _imported("usearch"):
        search = importlib.import_module("usearch.index")
        metric = search.MetricKind.IP
        one["usearch exact"] = lambda q: search.search(rows, q, DEPTH, metric, exact=True)
        many["usearch exact"] = lambda q: search.search(rows, q, DEPTH, metric, exact=True)
    return one, many


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name}: not installed, left out")
        return None


def turns(asked: dict[str, Ask], inputs: Sequence[Vectors], budget_s: float) -> dict[str, list[float]]:
    """Seconds of every call; all engines answer one input before the next."""
    for ask in asked.values():
        ask(inputs[0])
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    order, rng = list(asked), random.Random(0)
    started = time.perf_counter()
    for given in inputs:
        rng.shuffle(order)
        for name in order:
            before = time.perf_counter()
            asked[name](given)
            seconds[name].append(time.perf_counter() - before)
        if time.perf_counter() - started > budget_s and len(seconds["ours"]) >= 5:
            break
    return seconds


def show(title: str, seconds: dict[str, list[float]], n_bytes: int) -> None:
    base = seconds["numpy product"]
    print(f"\n{title}, {len(base)} rounds")
    print(f"{'engine':<20}{'median':>12}{'least':>12}{'ratio':>8}{'GB/s':>8}")
    for name, found in seconds.items():
        median, least = statistics.median(found), min(found)
        ratio = median / statistics.median(base)
        rate = (
            f"{n_bytes / median / 1e9:>8.1f}" if "int8" not in name else f"{n_bytes / 4 / median / 1e9:>8.1f}"
        )
        print(f"{name:<20}{median * 1e3:>9.3g} ms{least * 1e3:>9.3g} ms{ratio:>7.2f}x{rate}")


def compare(n: int, dim: int, rounds: int, budget_s: float, folder: Path) -> None:
    started = time.perf_counter()
    coded, exact = fill(folder, "int8", n, dim), FlatStore.open(folder)
    exact._codes = None  # the same files, searched as the option "exact" searches them
    print(f"\n== {n:,} x {dim}, top {DEPTH}; store written in {time.perf_counter() - started:.3g} s ==")
    rows = exact._vectors
    queries = np.concatenate(list(blocks(max(rounds, BATCH) + rounds, dim, 2)))
    one, many = engines(exact, coded, rows)
    show("one query", turns(one, queries[:rounds], budget_s), rows.nbytes)
    batches = [queries[start : start + BATCH] for start in range(0, rounds) if start + BATCH <= len(queries)]
    show(f"batch of {BATCH}", turns(many, batches, budget_s), rows.nbytes)
    wanted = exact.search_many(queries[:BATCH], DEPTH)
    alone = [exact.search(query, DEPTH) for query in queries[:10]]
    print(f"\na batch answers as its queries one by one: {alone == wanted[:10]}")
    if has_int8_kernels():
        found = [coded.search(query, DEPTH) for query in queries[:BATCH]]
        recall = statistics.fmean(len({*a.doc_ids} & {*b.doc_ids}) / DEPTH for a, b in zip(wanted, found))
        print(f"int8: recall@{DEPTH} {recall:.4f}, same ids and scores on "
              f"{sum(a == b for a, b in zip(wanted, found))} of {BATCH} queries")  # fmt: skip


def held() -> dict[str, float]:
    """Megabytes of this process: its own, and of files that are mapped."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return {name: int(sizes[f"Rss{name}"].split()[0]) * 1024 / 1e6 for name in ("Anon", "File")}


def peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmHWM"].split()[0]) * 1024 / 1e6


def memory(path: Path) -> None:
    """What a process that searches the store in ``path`` holds; ``own`` is the highest seen so far."""
    store = open_store("flat", path)
    assert isinstance(store, FlatStore)
    n, dim = store._vectors.shape
    files_mb = sum(file.stat().st_size for file in path.iterdir()) / 1e6
    print(f"\nmemory, {n:,} x {dim}, scan={store.scan}: files {files_mb:.0f} MB")
    print(f"{'after':<34}{'own':>10}{'mapped':>10}{'peak of both':>15}")
    queries = np.concatenate(list(blocks(BATCH, dim, 2)))

    def say(what: str) -> None:
        now = held()
        print(f"{what:<34}{now['Anon']:>7.0f} MB{now['File']:>7.0f} MB{peak_mb():>12.0f} MB", flush=True)

    say("opening")
    for query in queries[:5]:
        store.search(query, DEPTH)
    say("5 queries")
    store.search_many(queries, DEPTH)
    say(f"a batch of {BATCH}")
    store.search(queries[0], DEPTH, FILTER)
    store.search_many(queries, DEPTH, FILTER)
    say("one query and a batch, filtered")
    store.upsert(["d0000005", "new"], queries[:2], [{"part": 3}] * 2)
    store.search(queries[0], DEPTH)
    say("an update of 2 rows, a query")
    store.delete(["d0000005", "d0000009"])
    store.search(queries[0], DEPTH, FILTER)
    say("a deletion, a filtered query")


def kernel() -> str:
    controls = _imported("threadpoolctl")
    found = controls.threadpool_info() if controls else []
    told = [f"{one['internal_api']} {one.get('architecture')}, {one['num_threads']} threads" for one in found]
    set_here = [
        f"{name}={os.environ[name]}"
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
        if name in os.environ
    ]
    slower = f"; {', '.join(set_here)} set: numpy is slower than it could be" if set_here else ""
    return f"numpy {np.__version__}: {'; '.join(told) or 'kernel not told'}{slower}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", action="append", help="ROWSxWIDTH; repeatable")
    parser.add_argument("--quick", action="store_true", help="20,000 x 384")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--budget-s", type=float, default=40.0, help="seconds of queries, and of batches")
    parser.add_argument("--memory", action="store_true", help="memory alone")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        memory(options.memory_of)
        return
    shapes = options.shape or (["20000x384"] if options.quick else ["100000x1024", "1000000x384"])
    print(kernel())
    for shape in shapes:
        n, dim = map(int, shape.lower().split("x"))
        with tempfile.TemporaryDirectory() as folder:
            if not options.memory:
                compare(n, dim, options.rounds, options.budget_s, Path(folder))
                continue
            for scan in ("exact", "int8"):
                fill(Path(folder) / scan, scan, n, dim).close()
                own = [sys.executable, __file__, "--memory-of", str(Path(folder) / scan)]
                subprocess.run(own, check=True)


if __name__ == "__main__":
    main()

"""One measurement of ``store_scale.py`` in a process of its own: a store is built, or one is asked."""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store

WARMING, DEPTH = 10, 10
#: Scores this close to the last of the exact top are as good as it: their order is one of rounding.
ROUNDING = 1e-6
SAMPLED_S = 0.05


class PeakMemory:
    """The most anonymous memory (bytes) that the process held, looked at every 50 ms; Linux only.

    Mapped files are left out: the system gives their pages back when it needs them.
    """

    def __init__(self) -> None:
        self.before = self.peak = anonymous_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLED_S):
            self.peak = max(self.peak, anonymous_bytes())

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous_bytes())


def anonymous_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def cpu_s() -> float:
    """Seconds of processor time of all threads so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def clocked(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What ``call`` returns, its seconds on the clock, and of processor time."""
    wall, cpu = time.perf_counter(), cpu_s()
    made = call()
    return made, time.perf_counter() - wall, cpu_s() - cpu


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def build(spec: str, folder: Path, vectors: Path, n: int) -> dict[str, float]:
    """All ``n`` rows in one call, as a rebuild or a bulk load does; the index is trained on all of them."""
    rows = np.load(vectors, mmap_mode="r")[:n]
    identity = Fingerprint("benchmark", "mixture", "1", rows.shape[1], "fp32", "none")
    ids, metadata = [f"d{row:09}" for row in range(n)], [{"part": row % 20} for row in range(n)]
    store = create_store(spec, folder, identity)
    with PeakMemory() as memory:
        _, wall, cpu = clocked(lambda: store.upsert(ids, rows, metadata))
    store.close()
    return {
        "build_s": wall,
        "build_cpu_s": cpu,
        "build_peak_bytes": memory.peak - memory.before,
        "bytes": folder_bytes(folder),
    }


def ask(spec: str, folder: Path, queries: Path, truth: Path, budget_s: float) -> dict[str, Any]:
    """Queries one after the other on the store as it was opened; those in ``budget_s``, 20 at least."""
    asked, bars = np.load(queries), np.load(truth)
    memory = PeakMemory()
    with memory:
        store, open_s, _ = clocked(lambda: open_store(spec.partition("?")[0], folder))
        for query in asked[-WARMING:]:  # those are not measured
            store.search(query, DEPTH)
        samples_s, cpus_s, shares = [], [], []
        for query, bar in zip(asked[:-WARMING], bars):
            found, wall, cpu = clocked(lambda q=query: store.search(q, DEPTH))  # type: ignore[misc]
            samples_s.append(wall)
            cpus_s.append(cpu)
            shares.append(sum(score >= bar - ROUNDING for score in found.scores) / DEPTH)
            if len(samples_s) >= 20 and sum(samples_s) > budget_s:
                break
    store.close()
    return {
        "open_s": open_s,
        "samples_s": samples_s,
        "query_cpu_s": float(np.mean(cpus_s)),
        "shares": shares,
        "query_peak_bytes": memory.peak - memory.before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["build", "ask"])
    for name in ("--folder", "--vectors", "--queries", "--truth"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--store")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--budget-s", type=float)
    options = parser.parse_args()
    found = (
        build(options.store, options.folder, options.vectors, options.rows)
        if options.stage == "build"
        else ask(options.store, options.folder, options.queries, options.truth, options.budget_s)
    )
    print(json.dumps({**found, "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()

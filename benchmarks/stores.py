"""Vector stores beside the exact one: time to write and to search, and what they find of its top 10.

    python benchmarks/stores.py                    # 20,000 rows in every store of the table that is installed
    python benchmarks/stores.py --rows 100000 --store 'lancedb?index=hnsw_sq' --store 'lancedb?index=ivf_pq'

Rows are 384 wide and lie around 1,000 centres, as texts of many topics do; queries come from the same
centres. Each search is made plain and with a filter that a twentieth of the rows satisfy. Ratios are to
``flat`` in the same process: absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rag_core.errors import ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors, VectorStore
from rag_core.stores import STORES, check_store, create_store
from rag_core.types import Ranking

DIM, CENTRES, DEPTH, QUERIES = 384, 1000, 10, 100
FILTER = {"part": 3}


class Asked(NamedTuple):
    """Median seconds of a search, and the answers."""

    median_s: float
    rankings: list[Ranking]

    def recall(self, exact: Asked) -> float:
        pairs = zip(exact.rankings, self.rankings)
        return statistics.fmean(len({*a.doc_ids} & {*b.doc_ids}) / max(1, len(a)) for a, b in pairs)


def clustered(n: int, seed: int) -> Vectors:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((CENTRES, DIM))
    rows = centres[rng.integers(0, CENTRES, n)] + 0.9 * rng.standard_normal((n, DIM))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def ask(store: VectorStore, queries: Vectors, where: Mapping[str, Any] | None) -> Asked:
    for query in queries[:5]:
        store.search(query, DEPTH, where)
    rankings, samples_s = [], []
    for query in queries:
        started = time.perf_counter()
        rankings.append(store.search(query, DEPTH, where))
        samples_s.append(time.perf_counter() - started)
    return Asked(statistics.median(samples_s), rankings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--store", action="append", help="beside flat; repeatable")
    options = parser.parse_args()
    rows, queries = clustered(options.rows, 1), clustered(QUERIES, 2)
    ids = [f"d{row}" for row in range(options.rows)]
    metadata = [{"part": row % 20} for row in range(options.rows)]
    identity = Fingerprint("benchmark", "clusters", "1", DIM, "fp32", "none")
    first: tuple[float, Asked, Asked] | None = None
    print(f"{options.rows} x {DIM}; ratios and recall@{DEPTH} to flat")
    for name in ["flat", *(options.store or [name for name in STORES if name != "flat"])]:
        try:
            check_store(name)
        except ProviderUnavailableError as error:
            print(f"{name}: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            store = create_store(name, Path(folder) / "store", identity)
            started = time.perf_counter()
            store.upsert(ids, rows, metadata)
            write_s = time.perf_counter() - started
            plain, filtered = ask(store, queries, None), ask(store, queries, FILTER)
            store.close()
        first = first or (write_s, plain, filtered)
        shown = [
            f"{what} {asked.median_s * 1e3:.3g} ms ({asked.median_s / exact.median_s:.2f}x, "
            f"recall {asked.recall(exact):.3f})"
            for what, asked, exact in (("search", plain, first[1]), ("filtered", filtered, first[2]))
        ]
        print(f"{name}: write {write_s:.3g} s ({write_s / first[0]:.1f}x), {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()

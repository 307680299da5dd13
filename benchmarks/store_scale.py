"""Vector stores as they grow: time to build, recall, latency and bytes from 10,000 rows to a million.

    python benchmarks/store_scale.py --out scale                   # 10k, 30k, 100k, 300k, 1M x 384
    python benchmarks/store_scale.py --out scale --sizes 10000,30000 --stores 'flat,lancedb?index=hnsw_sq'
    python benchmarks/store_scale.py --out scale --vectors FILE.npy   # real vectors, the last are queries
    python benchmarks/store_scale.py --out scale --draw            # table and plot of what is there

Rows come from the mixture of ``scale_vectors.py``, whose figures are like those of a text model's vectors;
real vectors of that number are not in the repository, and few real ones repeated with noise would have
neighbours that are copies, which no corpus has. Each store is built in one process and asked in another;
recall@10 is the share of the exact top 10 (a product over all rows in float32, rows within 1e-6 of the
tenth count) with a bootstrap interval over the queries. Latency is one query after the other; p50 has an
interval from order statistics. Memory is anonymous memory beyond what the process held before: mapped
files, whose pages the system takes back, are left out. Bytes are those of the store's folder, the float32
rows, ids, metadata and index together.

A cell (store, rows) that ``--out`` already has is kept: the same command goes on where it was ended. Cells
go from small to large until ``--limit-s`` is used up; what did not finish is "not measured", with the
reason. Where other programs share the processors seconds grow; processor seconds stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scale_vectors import Mixture, read_rows, write_rows
from store_scale_cell import DEPTH, WARMING
from store_scale_plot import draw, table

from harness.results import write_atomic
from harness.significance import bootstrap_interval
from rag_core.errors import RagCoreError
from rag_core.protocols import Vectors

SIZES, STORES = "10000,30000,100000,300000,1000000", "flat,lancedb?index=ivf_pq,lancedb?index=hnsw_sq"
CELL = Path(__file__).with_name("store_scale_cell.py")


def exact_bars(rows: Vectors, queries: Vectors) -> Vectors:
    """The cosine of the tenth nearest row of each query, over all rows."""
    best = np.full((len(queries), DEPTH), -2, np.float32)
    for start in range(0, len(rows), 1 << 15):
        scores = queries @ np.asarray(rows[start : start + (1 << 15)]).T
        both = np.concatenate([best, scores], axis=1)
        best = np.partition(both, both.shape[1] - DEPTH, axis=1)[:, -DEPTH:]
    return np.asarray(best.min(axis=1))


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % of the median, from order statistics (binomial, by its normal approximation)."""
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * n**0.5
    return ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, int(n / 2 + reach))]


def call(stage: str, limit_s: float, **given: object) -> dict[str, Any]:
    """What a process of ``store_scale_cell.py`` prints.

    Raises:
        RuntimeError: it failed, with the last line that it said, or took longer than ``limit_s``.
    """
    command = [sys.executable, str(CELL), stage]
    for name, value in given.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{stage}: not ended after {limit_s:.0f} s") from error
    if ended.returncode:
        last = (ended.stderr.strip() or f"status {ended.returncode}").splitlines()[-1]
        raise RuntimeError(f"{stage}: {last}")
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def cell(store: str, n: int, files: dict[str, Path], ends_s: float, budget_s: float) -> dict[str, Any]:
    """One row of the result: build, then ask."""
    folder = files["folder"]
    shutil.rmtree(folder, ignore_errors=True)
    try:
        left_s = ends_s - time.monotonic()
        built = call("build", left_s, store=store, folder=folder, vectors=files["vectors"], rows=n)
        given = {"queries": files["queries"], "truth": files["truth"], "budget_s": budget_s}
        asked = call("ask", ends_s - time.monotonic(), store=store, folder=folder, **given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    samples, shares = asked.pop("samples_s"), asked.pop("shares")
    return {
        "store": store,
        "rows": n,
        **built,
        **asked,
        "queries": len(samples),
        "bytes_per_vector": built["bytes"] / n,
        "p50_s": float(np.median(samples)),
        "p50_interval_s": median_interval(samples),
        "p95_s": float(np.quantile(samples, 0.95)),
        "recall": float(np.mean(shares)),
        "recall_interval": bootstrap_interval(shares),
        "load_average": [built["load_average"], asked["load_average"]],
    }


def machine() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"python": platform.python_version(), "processors": os.cpu_count()}
    for package in ("numpy", "lancedb"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def load(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The result so far, or a new one; it ends where the one that is there has other settings."""
    if not path.exists():
        return {"settings": settings, "machine": machine(), "cells": [], "not_measured": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["settings"] != settings:
        raise SystemExit(f"{path} holds {found['settings']}, asked is {settings}: choose another --out")
    found["not_measured"] = []
    return found


def measure(options: argparse.Namespace, result: dict[str, Any], path: Path) -> None:
    sizes, stores = sorted(map(int, options.sizes.split(","))), options.stores.split(",")
    ends_s = time.monotonic() + options.limit_s
    files = {name: options.out / f"{name}.npy" for name in ("vectors", "queries", "truth")}
    files["folder"] = options.out / "store"
    if options.vectors:
        rows = read_rows(options.vectors)
        sizes = [n for n in sizes if n <= len(rows) - options.queries - WARMING] or [len(rows) // 2]
        files["vectors"], queries = options.vectors, np.array(rows[len(rows) - options.queries - WARMING :])
    else:
        mixture = Mixture(options.width)
        write_rows(files["vectors"], mixture, sizes[-1])
        queries = mixture.queries(options.queries + WARMING)
    np.save(files["queries"], queries)
    done = {(found["store"], found["rows"]) for found in result["cells"]}
    for n in sizes:
        wanted = [store for store in stores if (store, n) not in done]
        if wanted:
            np.save(files["truth"], exact_bars(np.load(files["vectors"], mmap_mode="r")[:n], queries))
        for store in wanted:
            print(f"{n:,} rows, {store} …", file=sys.stderr, flush=True)
            try:
                result["cells"].append(cell(store, n, files, ends_s, options.budget_s))
            except RuntimeError as error:
                result["not_measured"].append({"store": store, "rows": n, "reason": str(error)})
                print(f"  {error}", file=sys.stderr, flush=True)
            write_atomic(path, json.dumps(result, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of result, plot and vectors")
    parser.add_argument("--sizes", default=SIZES, help="rows, separated by commas")
    parser.add_argument("--stores", default=STORES, help="separated by commas")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--vectors", type=Path, help=".npy of float32 (n, width) instead of the mixture")
    parser.add_argument("--limit-s", type=float, default=3600, help="no cell begins or goes on after it")
    parser.add_argument("--budget-s", type=float, default=60, help="seconds of queries of a cell")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "store_scale.json"
    if options.draw:
        result = json.loads(path.read_text(encoding="utf-8"))
    else:
        source = options.vectors.name if options.vectors else "mixture"
        settings = {"vectors": source, "width": options.width, "queries": options.queries, "depth": DEPTH}
        result = load(path, settings)
        try:
            measure(options, result, path)
        except RagCoreError as error:
            raise SystemExit(f"store_scale: {error}") from error
    print(table(result))
    for written in draw(result, options.out):
        print(f"written: {written}")


if __name__ == "__main__":
    main()

"""The speed and agreement of every dtype of a provider here, as lines for ``providers/data/dtypes.json``.

Run ``python benchmarks/dtypes.py`` (``--provider minilm --provider e5-small``, ``--engine torch``). Each
dtype has its own process, dtypes take turns for ``--rounds`` rounds, and the median round counts. Speeds are
printed as ratios to fp32: absolute times depend on the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from providers import EMBEDDERS
from providers._bert import VOCABULARY
from providers._dtypes import agreement, cpu_features
from providers._sentences import SENTENCES
from rag_core.registry import load_attribute

QUERIES = 40
DTYPES = {
    ("minilm", "onnxruntime"): ("fp32", "fp16", "q8", "int8"),
    ("minilm", "torch"): ("fp32", "bf16"),
    ("e5-small", "onnxruntime"): ("fp32", "q8", "q4"),
}


def passages(n: int) -> list[str]:
    """Passages of 1 to 200 words, most of them short, as in a mixed corpus."""
    choose = random.Random(1)
    words = [w for w in VOCABULARY.read_text(encoding="utf-8").split() if w.isalpha() and len(w) > 3]
    return [" ".join(choose.choices(words, k=int(200 * choose.random() ** 2) + 1)) for _ in range(n)]


def measure(provider: str, engine: str, dtype: str, threads: int, n: int) -> dict[str, Any]:
    spec = next(each for each in EMBEDDERS if (each.name, each.target) == (provider, "cpu"))
    embedder = load_attribute(spec.load)(spec, engine=engine, dtype=dtype, threads=threads)
    texts = passages(n)
    queries = [" ".join(text.split()[:8]) for text in texts if len(text.split()) >= 8][:QUERIES]
    vectors = embedder.embed(SENTENCES)
    embedder.embed(queries[:2], role="query")
    started = perf_counter()
    embedder.embed(texts)
    bulk_s = perf_counter() - started
    times_s = []
    for query in queries:
        started = perf_counter()
        embedder.embed([query], role="query")
        times_s.append(perf_counter() - started)
    return {
        "bulk_s": bulk_s,
        "query_s": statistics.median(times_s),
        "vectors": vectors.astype(float).tolist(),
    }


def lines(provider: str, engine: str, rounds: int, threads: int, n: int) -> list[dict[str, Any]]:
    dtypes = DTYPES[provider, engine]
    found: dict[str, list[dict[str, Any]]] = {dtype: [] for dtype in dtypes}
    for _ in range(rounds):
        for dtype in dtypes:
            one = ["--one", dtype, "--provider", provider, "--engine", engine]
            command = [sys.executable, __file__, *one, "--threads", str(threads), "--passages", str(n)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[dtype].append(json.loads(done.stdout.splitlines()[-1]))

    def ratio(dtype: str, key: str) -> float:
        return round(statistics.median(a[key] / b[key] for a, b in zip(found["fp32"], found[dtype])), 2)

    reference = np.array(found["fp32"][0]["vectors"])
    return [
        {
            "engine": engine,
            "target": "cpu",
            "features": cpu_features(),
            "dtype": dtype,
            "bulk": ratio(dtype, "bulk_s"),
            "query": ratio(dtype, "query_s"),
            "min_cosine": round(agreement(np.array(found[dtype][0]["vectors"]), reference), 5),
            "where": f"{provider}, {n} passages, {threads} threads, {engine} {version(engine)}",
        }
        for dtype in dtypes
        if dtype != "fp32"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", action="append", choices=sorted({name for name, _ in DTYPES}))
    parser.add_argument("--engine", default="onnxruntime", choices=sorted({name for _, name in DTYPES}))
    parser.add_argument("--passages", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.provider or ["minilm"]
    if options.one:
        print(json.dumps(measure(names[0], options.engine, options.one, options.threads, options.passages)))
        return
    for name in names:
        for line in lines(name, options.engine, options.rounds, options.threads, options.passages):
            print(json.dumps(line))


if __name__ == "__main__":
    main()

"""What the measuring adds to the calls of a provider: time per document, per query, over all, and memory.

A provider that works for a known time on every text (it spins on the clock, so that it needs a core as a
model does) is measured as a process of `bench run` measures it and by a bare loop over the same calls, in
this process, in interleaved rounds. Overhead of the figures: of the corpus the documents per second that the
result names, of a query the fastest, each over the bare loop's (on a shared machine the median of a call is
that of the machine). Overhead of the whole: the CPU seconds spent outside what is measured, the provider's
calls and the store's searches, from the first line of the measuring to its last, over the seconds inside the
provider; CPU seconds, because the clock also counts what others do.

    python benchmarks/overhead.py --rounds 5 --document-ms 2 --query-ms 4
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from harness.config import RunSpec
from harness.datasets import load_dataset
from harness.environment import peak_rss_bytes
from harness.measure import CHUNK, measure_provider
from harness.results import CellKey, strict
from rag_core.embedding import BaseEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import EMBEDDERS, Spec

DIM = 64


def spin(seconds: float) -> None:
    """Keep a core busy for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Spinner(BaseEmbedder):
    """Vectors that depend on a text's characters, after a known time per text."""

    #: Seconds by the clock, and of the CPU, spent inside the calls of the newest one.
    inside_s = inside_cpu_s = 0.0

    def __init__(self, document_s: float, query_s: float) -> None:
        super().__init__(Fingerprint("spinner", "spinner", "1", DIM, "fp32", "mean"))
        self.document_s, self.query_s = document_s, query_s
        Spinner.inside_s = Spinner.inside_cpu_s = 0.0

    def embed(self, texts: Sequence[str], *, role: Role) -> Vectors:
        started, cpu = time.perf_counter(), time.process_time()
        try:
            return super().embed(texts, role=role)
        finally:
            Spinner.inside_s += time.perf_counter() - started
            Spinner.inside_cpu_s += time.process_time() - cpu

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        spin(len(texts) * (self.query_s if role == "query" else self.document_s))
        rows = np.zeros((len(texts), DIM), np.float32)
        for place, text in enumerate(texts):
            rows[place, [ord(c) % DIM for c in text[:200]]] = 1
            rows[place, 0] += 1
        return rows


def load(spec: object, document_s: str = "0", query_s: str = "0") -> Spinner:
    """The provider, with the seconds that its spec string names."""
    return Spinner(float(document_s), float(query_s))


def bare(
    documents: Sequence[str], queries: Sequence[str], document_s: float, query_s: float
) -> tuple[float, float]:
    """Documents per second and the fastest query, without the harness."""
    embedder = Spinner(document_s, query_s)
    embedder.embed([queries[0]], role="query")
    started = time.perf_counter()
    for first in range(0, len(documents), CHUNK):
        embedder.embed(list(documents[first : first + CHUNK]), role="document")
    corpus_s = time.perf_counter() - started
    each = []
    for query in queries:
        started = time.perf_counter()
        embedder.embed([query], role="query")
        each.append(time.perf_counter() - started)
    return len(documents) / corpus_s, min(each)


def measured(data: str, document_s: float, query_s: float) -> tuple[float, float, float]:
    """Documents per second and the fastest query as the result has them, and the overhead of the whole."""
    provider = f"spinner@cpu?document_s={document_s}&query_s={query_s}"
    spec = RunSpec(data=data, providers=(provider,), pipelines=("vector",))
    cells: list[dict[str, Any]] = []

    def emit(event: str, **values: Any) -> None:
        if event == "cell":
            cells.append(json.loads(json.dumps(strict(values["cell"]))))

    with tempfile.TemporaryDirectory() as folder:
        job = {
            "kind": "provider", "provider": provider, "spec": spec.as_dict(), "data": data, "work": folder,
            "runs": folder, "vectors": f"{folder}/vectors.npz", "needs_lexical": False, "spent_usd": 0.0,
            "cells": [asdict(CellKey(data, "spinner", "cpu", "-", "flat", "vector", "-"))],
        }  # fmt: skip
        started = time.process_time()
        measure_provider(job, emit)
        outside_s = time.process_time() - started - Spinner.inside_cpu_s
    (cell,) = cells
    searched = cell["stages"]["vector"]
    outside_s -= sum(searched["samples_s"]) + sum(searched["warmup_s"])
    embed = min(cell["stages"]["embed"]["samples_s"])
    return cell["speed"]["docs_per_s"], embed, outside_s / Spinner.inside_s


def overheads(rounds: int, data: str, document_s: float, query_s: float) -> dict[str, list[float]]:
    """Overhead of each round as a fraction: ``documents``, ``query`` and ``whole``."""
    if not any(spec.name == "spinner" for spec in EMBEDDERS):
        EMBEDDERS.add(Spec("spinner", "spinner", "cpu", DIM, f"{__name__}:load"))
    dataset = load_dataset(data)
    documents = [document.indexed_text for document in dataset.documents if not document.is_empty]
    queries = [query.text for query in dataset.queries]
    found: dict[str, list[float]] = {"documents": [], "query": [], "whole": []}
    for _ in range(rounds):
        rate, each = bare(documents, queries, document_s, query_s)
        got_rate, got_each, whole = measured(data, document_s, query_s)
        for name, value in (
            ("documents", rate / got_rate - 1),
            ("query", got_each / each - 1),
            ("whole", whole),
        ):
            found[name].append(value)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--document-ms", type=float, default=2.0)
    parser.add_argument("--query-ms", type=float, default=4.0)
    parser.add_argument("--data", default="civic")
    asked = parser.parse_args(arguments)
    before = peak_rss_bytes()
    found = overheads(asked.rounds, asked.data, asked.document_ms / 1e3, asked.query_ms / 1e3)
    print(
        f"{asked.data}, {asked.document_ms} ms a document, {asked.query_ms} ms a query, {asked.rounds} rounds"
    )
    for name, values in found.items():
        shown = ", ".join(f"{100 * value:+.2f}" for value in values)
        print(f"  overhead, {name:<9}: median {100 * statistics.median(values):+.2f} % ({shown})")
    grown = peak_rss_bytes() - before
    print(f"  memory: {before / 1e6:.0f} MB with the modules loaded, {grown / 1e6:.0f} MB more at the peak")


if __name__ == "__main__":
    main()

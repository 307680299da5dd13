"""How long `bench report` takes on a large result, and how large its page is.

    python benchmarks/report.py [--systems 20] [--queries 1000] [--keep FOLDER]

The result is made from a seed: lists of 100 documents a query, judged by the metrics of this project, with
texts beside them. Only the time and size of the report are of interest, not its figures.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.config import DEFAULT_METRICS, RunSpec
from harness.datasets import Dataset
from harness.formats.trec import write_run
from harness.judging import judge
from harness.metrics import Metric
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, StageTimes, file_name
from harness.runner import dataset_record
from harness.significance import mean_interval
from harness.texts import write_texts
from harness.timing import summary_s
from rag_core.types import Document, Qrel, Query, Ranking, Run

COMMAND = "from harness.cli import main; main()"
DOCUMENTS = 20_000
WORDS = ["harbour", "permit", "ferry", "library", "pension", "bicycle", "market", "tax", "school", "garden"]


def make_dataset(queries: int) -> Dataset:
    """Texts of some 60 words and three relevant documents a query."""
    generator = np.random.default_rng(0)
    documents = tuple(
        Document(f"doc-{i:05d}", " ".join(generator.choice(WORDS, 60)), title=f"Section {i}")
        for i in range(DOCUMENTS)
    )
    asked = tuple(
        Query(f"q{i:04d}", " ".join(generator.choice(WORDS, 9)), {"lang": ("en", "es", "pt")[i % 3]})
        for i in range(queries)
    )
    judged = tuple(
        Qrel(query.query_id, documents[int(place)].doc_id, grade + 1)
        for query in asked
        for grade, place in enumerate(generator.choice(DOCUMENTS, 3, replace=False))
    )
    return Dataset("synthetic", documents, asked, judged)


def keys(systems: int) -> list[CellKey]:
    """A BM25 cell, the baseline, then vector and hybrid of as many models as are needed."""
    base = CellKey("synthetic", "bm25", "cpu", "-", "-", "bm25", "-")
    made = [base, replace(base, provider="fake", dtype="fp32", store="flat", pipeline="hybrid", fusion="rrf")]
    for number in range(systems):
        for pipeline in ("vector", "hybrid"):
            made.append(replace(made[1], provider=f"model-{number:02d}", pipeline=pipeline, fusion=""))
    return made[:systems]


def make_result(folder: Path, systems: int, queries: int) -> None:
    """A result folder with runs and texts."""
    dataset = make_dataset(queries)
    spec = RunSpec(data="synthetic", providers=("fake",))
    metrics = [Metric.parse(name) for name in DEFAULT_METRICS]
    document = ResultDocument(
        "synthetic",
        "complete",
        "2026-11-30T06:00:00Z",
        spec.as_dict(),
        spec.digest,
        dataset_record(dataset),
        {},
    )
    for number, key in enumerate(keys(systems)):
        document.cells.append(_cell(key, number, dataset, metrics, folder))
    document.baseline = document.cells[1].key.cell_id
    document.write(folder / "result.json")
    write_texts(dataset, document, folder)


def _cell(key: CellKey, number: int, dataset: Dataset, metrics: list[Metric], folder: Path) -> CellResult:
    generator = np.random.default_rng(number)
    skill = 0.25 + 0.6 * generator.random()
    rankings = {}
    for query in dataset.queries:
        found = [f"doc-{i:05d}" for i in generator.choice(DOCUMENTS, 100, replace=False)]
        for doc_id in dataset.relevance.get(query.query_id, {}):
            if generator.random() < skill and doc_id not in found:
                found[int(generator.exponential(6)) % 100] = doc_id
        found = list(dict.fromkeys(found))
        rankings[query.query_id] = Ranking.from_scores({d: 100.0 - i for i, d in enumerate(found)})
    run = Run(key.cell_id, rankings)
    judged = judge(run, dataset, metrics)
    write_run(run, folder / "runs" / f"{file_name(key)}.run", key.cell_id)
    results = {}
    for metric in metrics:
        values = judged.values[str(metric)]
        low, high = mean_interval(values, binary=metric.binary)
        results[str(metric)] = MetricResult(judged.means[str(metric)], low, high, values.tolist())
    slow = 10 ** generator.uniform(-4, -1)
    stages = {
        name: StageTimes((seconds * generator.lognormal(0, 0.2, len(rankings))).tolist(), [seconds * 3])
        for name, seconds in (("embed", slow), ("vector", 3e-4), ("bm25", 2e-4))
    }
    total = np.sum([stage.samples_s for stage in stages.values()], axis=0).tolist()
    speed = {**summary_s(total), "docs_per_s": 5 / slow, "peak_rss_bytes": 3e8, "load_s": 1.0}
    return CellResult(
        key, "ok", metrics=results, speed=speed, stages=stages, total_s=total, counts=dict(judged.counts)
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--systems", type=int, default=20)
    options.add_argument("--queries", type=int, default=1000)
    options.add_argument("--keep", type=Path, help="folder for the result")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        make_result(folder, chosen.systems, chosen.queries)
        times, cpu_times = [], []
        for _ in range(5):
            begin, before = time.perf_counter(), cpu_s()
            subprocess.run(
                [sys.executable, "-c", COMMAND, "report", str(folder)], check=True, capture_output=True
            )
            times.append(round(time.perf_counter() - begin, 2))
            cpu_times.append(round(cpu_s() - before, 2))
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
        print(json.dumps({"report_s": times, "cpu_s": cpu_times, "bytes": sizes}, indent=1))


def cpu_s() -> float:
    """Seconds of CPU that ended children took, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

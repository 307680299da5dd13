"""NDCG@10 of whole runs of the harness on the reference data sets, beside figures measured by other means.

    python benchmarks/reference_run.py                      # every set found, about 6 minutes on 2 CPUs
    python benchmarks/reference_run.py xquad-es-en faquad-pt

The reference: bm25s (lucene) with the stemmer and stop words of the text's language, e5-small from the same
4-bit weights, all-MiniLM-L6-v2, rank fusion with k = 60 over the top 100 of BM25 and e5-small. The harness
runs with --pool 100. A difference above 0.015 is marked. Results stay in reports/reference, and a rerun
goes on from there.

The data lie in the folder ``shared/datasets`` beside the checkout, or in $RAG_SHARED/datasets.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from harness.config import RunSpec
from harness.runner import run

ROOT = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "datasets"
COLUMNS = ("bm25", "e5-small", "minilm", "rrf")
#: Set -> NDCG@10 of COLUMNS; LoCoMo searched within its conversation.
REFERENCE: Mapping[str, tuple[float, float, float, float]] = {
    "adi-en": (0.490, 0.439, 0.496, 0.476),
    "covidfaq-en": (0.526, 0.608, 0.566, 0.594),
    "cranfield-en": (0.526, 0.503, 0.502, 0.545),
    "faquad-pt": (0.915, 0.830, 0.525, 0.891),
    "xquad-es": (0.962, 0.958, 0.632, 0.970),
    "xquad-es-en": (0.525, 0.937, 0.501, 0.846),
    "locomo-en": (0.501, 0.406, 0.332, 0.457),
}
TOLERANCE = 0.015


def measure(name: str, out: Path) -> list[float]:
    """NDCG@10 of COLUMNS on one set."""
    spec = RunSpec(
        data=str(ROOT / name),
        providers=("e5-small@cpu", "minilm@cpu"),
        pipelines=("vector", "bm25", "hybrid"),
        metrics=("ndcg@10",),
        candidate_pool=100,
    )
    document = run(spec, out / name)
    found = {(c.key.provider, c.key.pipeline): c.mean("ndcg@10") for c in document.cells}
    cells = (("bm25", "bm25"), ("e5-small", "vector"), ("minilm", "vector"), ("e5-small", "hybrid"))
    return [float("nan") if (value := found[cell]) is None else value for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description="NDCG@10 of the harness beside reference figures.")
    parser.add_argument("sets", nargs="*", default=list(REFERENCE), help="names of data sets")
    parser.add_argument("--out", type=Path, default=Path("reports/reference"))
    arguments = parser.parse_args()
    print("ours / reference; * differs by more than", TOLERANCE)
    print(f"{'set':<13}" + "".join(f"{column:>17}" for column in COLUMNS))
    for name in arguments.sets:
        if not (ROOT / name).is_dir():
            print(f"{name:<13}  not found in {ROOT}")
            continue
        pairs = zip(measure(name, arguments.out), REFERENCE[name])
        shown = (f"{a:.3f} / {b:.3f}{' *' if abs(a - b) > TOLERANCE else '  '}" for a, b in pairs)
        print(f"{name:<13}" + "".join(f"{text:>17}" for text in shown), flush=True)


if __name__ == "__main__":
    main()

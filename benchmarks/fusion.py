"""Fusion methods beside the better leg, the best leg of each query, and each other; NDCG@10.

    python benchmarks/fusion.py                       # every set found, both vector legs
    python benchmarks/fusion.py --pool 50 faquad-pt
    python benchmarks/fusion.py --legs e5-small@cpu --json fusion.json

Settings: title and text indexed; BM25 with the analyser of the set's languages, k1 1.2, b 0.75; exact
cosines; the first 100 documents of each leg, 200 where ``adaptive`` reads them; within the query's scope
where a set has one; queries without a relevant document left out. ``convex`` weighs vectors 0.8 and BM25
0.2, as published; ``rrf`` has k = 60 and equal weights, ``rrf 2:1`` doubles the leg that is better on the
mean of the other sets.

``adaptive`` is the formula with the constant as shipped. ``left out`` is the same formula with the
constant chosen on all other sets, both vector legs, from GRID: the middle of those with which no set loses
more than 0.005 against its better leg (or, where each loses more somewhere, of those that lose least).
Sets made from the same texts are left out together. Intervals are paired bootstrap intervals over queries
(95 %).

The sets lie in ``shared/datasets`` beside the checkout, or in $RAG_SHARED/datasets; the golden set in
``fixtures``. Vectors are kept in --cache.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.datasets import Dataset, load_dataset
from harness.metrics import evaluate, evaluated_queries
from harness.significance import paired_difference
from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.factory import get_embedder
from rag_core.fusion import Fused, Leg, adaptive, convex, fuse, reading_depth
from rag_core.types import EMPTY_RANKING, Ranking

HERE = Path(__file__).resolve().parents[1]
ROOT = Path(os.environ.get("RAG_SHARED", HERE.parent / "shared")) / "datasets"
METRIC = "ndcg@10"
VECTOR_LEGS = ("e5-small@cpu", "minilm@cpu")
#: Values of the constant that are tried.
GRID = tuple(round(0.1 * tenths, 1) for tenths in range(10, 41))
#: A loss against the better leg that is borne.
BORNE = 0.005
METHODS = ("rrf", "rrf 2:1", "relative", "zscore", "convex", "adaptive", "left out")
Floats = NDArray[np.float64]


@dataclass
class Cell:
    """One set with one vector leg: values per judged query of every system."""

    data: str
    leg: str
    lists: dict[str, tuple[Leg, Leg]]
    grades: Mapping[str, Mapping[str, int]]
    values: dict[str, Floats]
    seconds_per_query: float = 0.0

    def judge(self, rankings: Mapping[str, Ranking]) -> Floats:
        return np.asarray(evaluate(rankings, self.grades, (METRIC,))[METRIC])

    @property
    def group(self) -> str:
        """Sets that share their texts."""
        return self.data.split("-")[0]

    @property
    def better(self) -> str:
        return max(("vector", "bm25"), key=lambda name: float(self.values[name].mean()))

    def gain(self, name: str) -> float:
        return float(self.values[name].mean() - self.values[self.better].mean())


def vectors_of(data: Dataset, provider: str, cache: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of the documents that are not empty, and of the queries; kept in ``cache``."""
    texts = [d.indexed_text for d in data.documents if not d.is_empty]
    embedder = get_embedder(provider)  # of one name two dtypes may come: the machine and the release decide
    path = cache / f"{data.name}-{data.hash[:12]}-{embedder.name}-{embedder.fingerprint.digest[:12]}.npz"
    if not path.exists():
        found = {
            "documents": embedder.embed(texts, role="document"),
            "queries": embedder.embed([q.text for q in data.queries], role="query"),
        }
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, **found)
    with np.load(path) as kept:
        return kept["documents"], kept["queries"]


def lists_of(data: Dataset, provider: str, pool: int, cache: Path) -> dict[str, tuple[Leg, Leg]]:
    """Query id -> the two legs, vector then BM25."""
    documents, queries = vectors_of(data, provider, cache)
    ids = np.array([d.doc_id for d in data.documents if not d.is_empty], object)
    scopes = np.array([d.metadata.get(data.scope) for d in data.documents if not d.is_empty], object)
    index = BM25.build(data.documents, Analyser.for_languages((*data.languages, *data.query_languages)))
    judged = set(evaluated_queries(data.relevance))
    lists = {}
    for query, vector in zip(data.queries, queries):
        if query.query_id not in judged:
            continue
        within = {data.scope: query.metadata[data.scope]} if data.scope in query.metadata else None
        rows = np.flatnonzero(scopes == query.metadata[data.scope]) if within else np.arange(len(ids))
        cosines = (documents[rows] @ vector).tolist()
        near = Ranking.from_scores(zip(ids[rows].tolist(), cosines), pool)
        words = index.search([query], pool, within).rankings.get(query.query_id, EMPTY_RANKING)
        lists[query.query_id] = (
            Leg("vector", near, depth=pool, floor=-1.0),
            Leg("bm25", words, index.evidence(query, words, within), pool),
        )
    return lists


def cut(legs: Sequence[Leg], depth: int) -> tuple[Leg, ...]:
    """The first ``depth`` documents of each leg, as an index that is asked for them gives."""
    return tuple(
        replace(leg, ranking=leg.ranking.top(depth) if len(leg.ranking) else leg.ranking, depth=depth)
        for leg in legs
    )


def fused(cell: Cell, call: Any, depth: int | None = None) -> Floats:
    found: dict[str, Fused] = {
        query_id: call(cut(legs, depth) if depth else legs) for query_id, legs in cell.lists.items()
    }
    return cell.judge({query_id: one.ranking for query_id, one in found.items()})


def measure(name: str, provider: str, pool: int, cache: Path) -> Cell:
    data = load_dataset(name)
    lists = lists_of(data, provider, reading_depth("adaptive", pool), cache)
    cell = Cell(data.name, provider.split("@")[0], lists, data.relevance, {})
    for position, leg in enumerate(("vector", "bm25")):
        cell.values[leg] = cell.judge(
            {q: cut(legs, pool)[position].ranking for q, legs in cell.lists.items()}
        )
    cell.values["oracle"] = np.maximum(cell.values["vector"], cell.values["bm25"])
    for method in ("rrf", "relative", "zscore"):
        cell.values[method] = fused(cell, lambda legs, method=method: fuse(legs, method), pool)
    cell.values["rrf v"] = fused(cell, lambda legs: fuse(legs, "rrf", weights=(2, 1)), pool)
    cell.values["rrf w"] = fused(cell, lambda legs: fuse(legs, "rrf", weights=(1, 2)), pool)
    cell.values["convex"] = fused(cell, lambda legs: convex(legs, (0.8, 0.2)), pool)
    started = time.perf_counter()
    cell.values["adaptive"] = fused(cell, adaptive)
    cell.seconds_per_query = (time.perf_counter() - started) / len(cell.lists)
    for spread in GRID:
        cell.values[f"spread {spread}"] = fused(cell, lambda legs, s=spread: adaptive(legs, spread=s))
    return cell


def choose(cells: Sequence[Cell]) -> float:
    """The middle of the constants that lose least beyond what is borne: the farthest from a loss."""
    lost = {s: round(sum(max(0.0, -BORNE - c.gain(f"spread {s}")) for c in cells), 9) for s in GRID}
    least = [spread for spread in GRID if lost[spread] == min(lost.values())]
    return least[(len(least) - 1) // 2]


def leave_out(cells: Sequence[Cell]) -> Iterator[tuple[str, float]]:
    """Choose what is chosen on the other sets, for each group of sets; yields the constants."""
    for group in dict.fromkeys(cell.group for cell in cells):
        others = [cell for cell in cells if cell.group != group] or list(cells)
        best = choose(others)
        for cell in (c for c in cells if c.group == group):
            cell.values["left out"] = cell.values[f"spread {best}"]
            same = [c for c in others if c.leg == cell.leg]
            lead = sum(float((c.values["vector"] - c.values["bm25"]).mean()) for c in same)
            cell.values["rrf 2:1"] = cell.values["rrf v" if lead > 0 else "rrf w"]
        yield group, best


def least_gains(cells: Sequence[Cell]) -> str:
    return ", ".join(f"{s} {min(c.gain(f'spread {s}') for c in cells):+.4f}" for s in GRID[::2])


def report(cells: Sequence[Cell]) -> None:
    print("NDCG@10; methods as difference to the better leg, * significantly below it, ! above")
    print(
        f"{'set':<13}{'leg':<9}{'vector':>7}{'bm25':>7}{'oracle':>8}" + "".join(f"{m:>10}" for m in METHODS)
    )
    for cell in cells:
        shown = []
        for method in METHODS:
            found = paired_difference(cell.values[method], cell.values[cell.better], seed=0)
            mark = "*" if found.high < 0 else "!" if found.low > 0 else " "
            shown.append(f"{found.mean:>+9.3f}{mark}")
        means = [float(cell.values[name].mean()) for name in ("vector", "bm25", "oracle")]
        print(
            f"{cell.data:<13}{cell.leg:<9}{means[0]:>7.3f}{means[1]:>7.3f}{means[2]:>8.3f}" + "".join(shown)
        )
    for leg in dict.fromkeys(cell.leg for cell in cells):
        same = [cell for cell in cells if cell.leg == leg]
        means = [float(np.mean([cell.values[name].mean() for cell in same])) for name in ("vector", "bm25")]
        top = float(np.mean([cell.values["oracle"].mean() for cell in same]))
        gains = "".join(f"{np.mean([c.gain(m) for c in same]):>+9.3f} " for m in METHODS)
        print(f"{'mean':<13}{leg:<9}{means[0]:>7.3f}{means[1]:>7.3f}{top:>8.3f}{gains}")
    print("\nleft out, with its interval:      to the better leg            to rrf")
    for cell in cells:
        shown = []
        for other in (cell.better, "rrf"):
            found = paired_difference(cell.values["left out"], cell.values[other], seed=0)
            shown.append(f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})")
        print(f"{cell.data:<13}{cell.leg:<9}  {'':<8}{shown[0]}   {shown[1]}")
    for leg in dict.fromkeys(cell.leg for cell in cells):
        same = [cell for cell in cells if cell.leg == leg]
        shown = [mean_of_means(same, other) for other in ("better", "rrf")]
        print(f"{'mean of sets':<13}{leg:<9}  {'':<8}{shown[0]}   {shown[1]}")
    slowest = max(cells, key=lambda cell: cell.seconds_per_query)
    print(f"\nadaptive: {1e6 * slowest.seconds_per_query:.0f} µs a query on {slowest.data}, judged")


def mean_of_means(cells: Sequence[Cell], other: str, resamples: int = 2000) -> str:
    """Mean over sets of the left-out differences; queries are drawn anew within each set."""
    random = np.random.default_rng(0)
    means = []
    drawn = np.zeros(resamples)
    for cell in cells:
        against = cell.values[cell.better if other == "better" else other]
        difference = cell.values["left out"] - against
        means.append(float(difference.mean()))
        n = len(difference)
        drawn += np.array([difference[random.integers(0, n, n)].mean() for _ in range(resamples)])
    low, high = np.quantile(drawn / len(cells), (0.025, 0.975))
    return f"{np.mean(means):+.3f} ({low:+.3f} to {high:+.3f})"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="*", help="names of data sets; all that are there by default")
    parser.add_argument("--legs", nargs="*", default=list(VECTOR_LEGS), help="vector providers")
    parser.add_argument(
        "--pool", type=int, default=100, help="documents of each leg; adaptive reads 200 at least"
    )
    parser.add_argument("--cache", type=Path, default=HERE / "reports" / "fusion-vectors")
    parser.add_argument("--json", type=Path, help="write values of every query there")
    options = parser.parse_args(argv)
    folders = [HERE / "fixtures" / "civic", *sorted(p.parent for p in ROOT.glob("*/dataset.json"))]
    chosen = [folder for folder in folders if not options.sets or folder.name in options.sets]
    if not chosen:
        parser.error(f"none of these sets in {ROOT} or fixtures; set RAG_SHARED to the folder with datasets/")
    cells = [
        measure(str(folder), leg, options.pool, options.cache) for leg in options.legs for folder in chosen
    ]
    picked = dict(leave_out(cells))
    report(cells)
    print(f"constant chosen by all sets: {choose(cells)}; by group left out: {picked}")
    print("least gain of a set by constant:", least_gains(cells))
    if options.json:
        values = [
            {"set": c.data, "leg": c.leg, "values": {m: c.values[m].tolist() for m in c.values}}
            for c in cells
        ]
        options.json.write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main()

"""BM25, vectors and fusion by kind of question and by words shared, beside the design's claim.

    python benchmarks/strata.py                               # LoCoMo and the cross-lingual set, e5-small
    python benchmarks/strata.py locomo-en --provider minilm@cpu

The design says (answer F1 on LoCoMo, in per cent): where a question shares no word with its evidence BM25
collapses and vectors hold, and rank fusion is above both. Here the same is asked of retrieval (NDCG@10, in
per cent), within the query's scope where a set has one; so it is the direction that can be compared, not
the size. Every figure stands beside its number of queries; differences are paired by query, with 95 %
bootstrap intervals; ``*`` is sure after Holm's correction over its table.

Splits: by the set's own category; by no word shared and some, where both have 20 queries; by thirds of the
share of shared words, each word weighted by its idf, and unweighted. Settings of the legs are those of
fusion.py, whose --cache holds the vectors. The sets lie in ``shared/datasets`` beside the checkout, or in
$RAG_SHARED/datasets.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fusion import HERE, ROOT, cut, lists_of

from harness.datasets import Dataset, load_dataset
from harness.metrics import evaluate
from harness.overlap import overlap_record
from harness.results import CellKey, CellResult, MetricResult, ResultDocument
from harness.runner import dataset_record
from harness.strata import LEAST_PER_SIDE, Part, Split, fusion_losses, share_split, stratify, words_split
from harness.tag_strata import scope_tag, tag_names, tag_strata
from rag_core.fusion import fuse, reading_depth
from rag_core.types import Ranking

METRIC = "ndcg@10"
SETS = ("locomo-en", "xquad-es-en")
FUSIONS = ("rrf", "adaptive")
#: The design's answer F1 on LoCoMo, in per cent: BM25, vectors, fusion.
DESIGN: Mapping[str, tuple[float, float, float | None]] = {
    "all queries": (23.6, 24.0, 28.1),
    "no word shared": (18.6, 24.3, None),
    "some shared": (29.3, 23.6, None),
}


def measured(data: Dataset, provider: str, pool: int, cache: Path) -> ResultDocument:
    """A result with four cells: BM25, vectors, and both fused in two ways."""
    lists = lists_of(data, provider, reading_depth("adaptive", pool), cache)
    name, _, target = provider.partition("@")
    words = CellKey(data.name, "bm25", "cpu", "-", "-", "bm25", "-")
    systems: dict[CellKey, dict[str, Ranking]] = {
        words: {query_id: legs[1].ranking for query_id, legs in lists.items()},
        CellKey(data.name, name, target, "-", "flat", "vector", "-"): {
            query_id: legs[0].ranking for query_id, legs in lists.items()
        },
    }
    for method in FUSIONS:
        key = CellKey(data.name, name, target, "-", "flat", "hybrid", "-", method)
        depth = reading_depth(method, pool)
        systems[key] = {q: fuse(cut(legs, depth), method).ranking for q, legs in lists.items()}
    cells = []
    for key, rankings in systems.items():
        values = evaluate(rankings, data.relevance, (METRIC,))[METRIC].tolist()
        mean = sum(values) / len(values)
        cells.append(CellResult(key, "ok", metrics={METRIC: MetricResult(mean, None, None, values)}))
    return ResultDocument(
        name=data.name,
        status="complete",
        created="",
        spec={"metrics": [METRIC], "seed": 0, "scope": data.scope},
        spec_digest="",
        dataset={**dataset_record(data), "query_overlap": overlap_record(data)},
        environment={},
        cells=cells,
    )


def splits(document: ResultDocument) -> Iterator[tuple[str, Split]]:
    """Every split that the set allows, with its heading."""
    tags = [tag for tag in tag_names(document) if tag != scope_tag(document)]
    for tag in tags:
        yield f"by {tag}", tag_strata(document, tag, METRIC)
    words, weighted, plain = words_split(document), share_split(document), share_split(document, "share")
    if words is not None:
        yield "by words shared with a relevant document", stratify(document, words, METRIC)
    if weighted is not None:
        yield "by share of words shared, each weighted by its idf", stratify(document, weighted, METRIC)
    if plain is not None:
        yield "by share of words shared, unweighted", stratify(document, plain, METRIC)


def label(key: CellKey) -> str:
    """``bm25``, ``e5-small``, ``rrf`` …"""
    return key.fusion if key.pipeline == "hybrid" else key.provider


def table(document: ResultDocument, heading: str, split: Split) -> list[str]:
    """A line for every part and system, and what fusion makes of its legs."""
    lines = [f"\n{heading}", f"{'':<24}{'n':>5}  {'system':<10}{'mean':>6}  difference from BM25"]
    for part in split.parts:
        for number, cell in enumerate(document.cells):
            own = cell.key.cell_id
            gap = part.versus.get(own)
            shown = ""
            if gap is not None:
                shown = f"{gap.mean:>+7.3f} ({gap.low:+.3f} to {gap.high:+.3f}){' *' if gap.sure else ''}"
            start = f"{part.name:<24}{part.n:>5}" if not number else " " * 29
            lines.append(f"{start}  {label(cell.key):<10}{part.means[own] or 0:>6.3f}{shown}")
    hybrids = [cell.key for cell in document.cells if cell.key.pipeline == "hybrid"]
    said = (kept(document, split, key) for key in hybrids)
    return [*lines, *(textwrap.fill(text, 80, subsequent_indent="    ") for text in said)]


def kept(document: ResultDocument, split: Split, hybrid: CellKey) -> str:
    """Whether fusion keeps what its better leg has on each part."""
    names = {cell.key.cell_id: label(cell.key) for cell in document.cells}
    lost = [
        f"{loss.versus.mean:+.3f} from {names[loss.leg]} on {loss.part.name}"
        for loss in fusion_losses(document, split, hybrid, METRIC)
        if loss.versus.sure and loss.versus.mean < 0
    ]
    if lost:
        return f"  {label(hybrid)} does not keep both: {'; '.join(lost)}"
    return f"  {label(hybrid)} keeps both: on no part surely below its better leg"


def beside_the_design(document: ResultDocument) -> list[str]:
    """The design's three rows and ours in per cent; where its split has too few queries, the outer thirds."""
    whole = Part("all queries", tuple(range(len(document.dataset["query_ids"]))))
    words, thirds = words_split(document), share_split(document)
    split = words or thirds
    chosen = (whole, *((split.parts[0], split.parts[-1]) if split else ()))
    rows = stratify(document, Split("words", chosen, 0, 0, 0), METRIC, compare=False).parts
    lines = [f"\n{'in per cent':<24}{'n':>5}  " + "".join(f"{label(c.key):>10}" for c in document.cells)]
    for part, (name, (bm25, vectors, fused)) in zip(rows, DESIGN.items()):
        means = "".join(f"{100 * (part.means[c.key.cell_id] or 0):>10.1f}" for c in document.cells)
        lines.append(f"{part.name:<24}{part.n:>5}  {means}")
        shown = f"{bm25:>10.1f}{vectors:>10.1f}{'' if fused is None else f'{fused:>10.1f}'}"
        lines.append(f"{f'  design (F1): {name}':<31}{shown}")
    if words is None and thirds is not None:
        text = (
            f"{thirds.n_none} queries share no word and {thirds.n_some} share one: with fewer than "
            f"{LEAST_PER_SIDE} on a side the lowest and highest third by idf-weighted share stand beside the "
            "design's split."
        )
        lines += textwrap.wrap(text, 80)
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help="names of data sets")
    parser.add_argument("--provider", default="e5-small@cpu", help="of the vectors")
    parser.add_argument("--pool", type=int, default=100, help="documents of each leg")
    parser.add_argument("--cache", type=Path, default=HERE / "reports" / "fusion-vectors")
    options = parser.parse_args(argv)
    for name in options.sets:
        if not (ROOT / name).is_dir():
            print(f"{name}: not found in {ROOT}; set RAG_SHARED to the folder with datasets/")
            continue
        document = measured(load_dataset(ROOT / name), options.provider, options.pool, options.cache)
        means = ", ".join(f"{label(c.key)} {c.mean(METRIC):.3f}" for c in document.cells)
        print(f"\n{name}, {len(document.dataset['query_ids'])} queries, NDCG@10:\n{means}")
        for heading, split in splits(document):
            print("\n".join(table(document, heading, split)), flush=True)
        print("\n".join(beside_the_design(document)), flush=True)


if __name__ == "__main__":
    main()

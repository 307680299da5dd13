"""What `adaptive` gains when its weights also choose how many candidates each leg gives; NDCG@10, recall@50.

    python benchmarks/fusion_pools.py
    python benchmarks/fusion_pools.py --pool 50 --cache reports/fusion-vectors civic faquad-pt

With ``pool`` candidates a leg as the budget, sets and vectors as in ``benchmarks/fusion.py``:

- ``rrf``: rank fusion of ``pool`` documents of each leg;
- ``pool``: ``adaptive`` of the same lists;
- ``read``: of lists of 200, as the library does: weights decide how many candidates come from which leg;
- ``allotted``: the same, but each leg may give only its share of 2 x ``pool`` documents by its weight, no leg
  with a weight fewer than ``pool`` / 5.

recall@50 is that of the fused list's first 50, what a reranker would be given.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fusion import HERE, ROOT, VECTOR_LEGS, Floats, cut, lists_of

from harness.datasets import load_dataset
from harness.metrics import evaluate
from harness.significance import paired_difference
from rag_core.fusion import Fused, Leg, adaptive, fuse, reading_depth
from rag_core.types import Ranking

METRICS = ("ndcg@10", "recall@50")
WAYS = ("rrf", "pool", "read", "allotted")


def allotted(found: Fused, legs: Sequence[Leg], pool: int) -> Ranking:
    """Of the fused list the documents that stand among those that each leg may give."""
    least = pool // 5
    shares = [max(least, round(2 * pool * weight)) if weight else 0 for weight in found.weights]
    most = shares.index(max(shares))
    shares[most] = 2 * pool - sum(share for place, share in enumerate(shares) if place != most)
    given = {d for leg, share in zip(legs, shares) for d in leg.ranking.doc_ids[:share]}
    pairs = zip(found.ranking.doc_ids, found.ranking.scores)
    return Ranking.from_scores((doc_id, score) for doc_id, score in pairs if doc_id in given)


def measure(name: str, provider: str, pool: int, cache: Path) -> dict[str, dict[str, Floats]]:
    data = load_dataset(name)
    made: dict[str, dict[str, Ranking]] = {way: {} for way in WAYS}
    for query_id, legs in lists_of(data, provider, reading_depth("adaptive", pool), cache).items():
        shallow, deep = cut(legs, pool), adaptive(legs)
        made["rrf"][query_id] = fuse(shallow, "rrf").ranking
        made["pool"][query_id] = adaptive(shallow).ranking
        made["read"][query_id] = deep.ranking
        made["allotted"][query_id] = allotted(deep, legs, pool)
    return {way: evaluate(found, data.relevance, METRICS) for way, found in made.items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="*", help="names of data sets; all that are there by default")
    parser.add_argument("--pool", type=int, default=50, help="documents of each leg")
    parser.add_argument("--cache", type=Path, default=HERE / "reports" / "fusion-vectors")
    options = parser.parse_args(argv)
    folders = [HERE / "fixtures" / "civic", *sorted(p.parent for p in ROOT.glob("*/dataset.json"))]
    chosen = [folder for folder in folders if not options.sets or folder.name in options.sets]
    print("nDCG@10 / recall@50; * nDCG@10 surely below `pool`, ! above")
    print(f"{'set':<13}{'leg':<9}" + "".join(f"{way:>17}" for way in WAYS))
    for provider in VECTOR_LEGS:
        leg = provider.split("@")[0]
        means: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for folder in chosen:
            values = measure(str(folder), provider, options.pool, options.cache)
            shown = []
            for way in WAYS:
                ndcg, recall = (values[way][metric] for metric in METRICS)
                gap = paired_difference(ndcg, values["pool"]["ndcg@10"])
                mark = "*" if gap.high < 0 else "!" if gap.low > 0 else " "
                means[way].append((float(ndcg.mean()), float(recall.mean())))
                shown.append(f"{ndcg.mean():>8.3f}{mark}/ {recall.mean():.3f} ")
            print(f"{folder.name:<13}{leg:<9}" + "".join(shown), flush=True)
        both = [np.mean(means[way], axis=0) for way in WAYS]
        print(f"{'mean':<13}{leg:<9}" + "".join(f"{n:>8.4f} / {r:.4f}" for n, r in both))


if __name__ == "__main__":
    main()

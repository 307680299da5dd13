"""Metrics of 10,000 queries with 100 results each: ours against pytrec_eval, in one process.

    python benchmarks/metrics.py [--queries 10000] [--depth 100] [--judged 5] [--rounds 5]

Both start from what a program has at hand: ours from rankings, pytrec_eval from a dict of scores. The values
are compared before any time is printed. The last row is our arithmetic alone, without looking up ids.
Absolute times depend on the machine; the ratio is the figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from harness.metrics import FAMILIES, Metric, evaluate, evaluated_queries, reduce
from rag_core.types import Ranking

METRICS = {
    "ndcg_cut_10": "ndcg@10",
    "P_5": "precision@5",
    "recall_10": "recall@10",
    "recip_rank": "mrr",
    "map_cut_100": "map@100",
    "success_5": "success@5",
}
ASKED = {"ndcg_cut.10", "P.5", "recall.10", "recip_rank", "map_cut.100", "success.5"}


def seconds(call: Callable[[], object], rounds: int) -> float:
    """Median seconds of ``rounds`` calls after one that is thrown away."""
    call()
    taken = []
    for _ in range(rounds):
        started = perf_counter()
        call()
        taken.append(perf_counter() - started)
    return median(taken)


def main() -> None:
    import pytrec_eval

    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("queries", 10_000), ("depth", 100), ("judged", 5), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    ids = [f"document-{i}" for i in range(20 * given.depth)]
    relevance: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    for number in range(given.queries):
        found = generator.choice(len(ids), given.depth, replace=False)
        judged = generator.choice(found, given.judged, replace=False).tolist()
        judged[-1] = int(generator.integers(len(ids)))  # most likely not found
        relevance[f"q{number}"] = {
            ids[i]: int(g) for i, g in zip(judged, generator.integers(1, 4, len(judged)))
        }
        scores[f"q{number}"] = {ids[i]: float(given.depth - rank) for rank, i in enumerate(found)}
    rankings = {query_id: Ranking.from_scores(found) for query_id, found in scores.items()}
    referee = pytrec_eval.RelevanceEvaluator(relevance, ASKED)

    expected, values = referee.evaluate(scores), evaluate(rankings, relevance, METRICS.values())
    worst = max(
        abs(values[ours][row] - expected[query_id][theirs])
        for row, query_id in enumerate(evaluated_queries(relevance))
        for theirs, ours in METRICS.items()
    )
    ranks = reduce(rankings, relevance)
    parsed = [Metric.parse(name) for name in METRICS.values()]
    ours_s = seconds(lambda: evaluate(rankings, relevance, parsed), given.rounds)
    arrays_s = seconds(
        lambda: [FAMILIES[m.family].compute(ranks, m.cutoff or 10**9) for m in parsed], given.rounds
    )
    theirs_s = seconds(lambda: referee.evaluate(scores), given.rounds)
    print(f"{given.queries} queries x {given.depth} results, {given.judged} judged, {len(METRICS)} metrics")
    print(f"largest difference of any value: {worst:.1e}")
    print(f"pytrec_eval                {theirs_s * 1e3:8.1f} ms")
    print(f"ours, from rankings        {ours_s * 1e3:8.1f} ms   {theirs_s / ours_s:.1f} times faster")
    print(f"ours, arithmetic alone     {arrays_s * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()

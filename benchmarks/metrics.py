"""Metrics of 10,000 queries with 100 results each: ours against pytrec_eval (and ranx), in one process.

    python benchmarks/metrics.py [--queries 10000] [--depth 100] [--judged 5] [--rounds 7] [--ranx]

All start from the same random run, each in the form that it takes: pytrec_eval and ours from dicts of
scores; ours from ranked lists as the harness holds them; ours from arrays of document numbers, ranked, and
unranked with scores. Judgements are prepared before the clock starts, for pytrec_eval likewise. Every value
is compared before any time is printed. Rounds are interleaved; a ratio is the median of the rounds' ratios.

ranx compiles for minutes in a fresh process: that is not counted. It is asked twice: ``evaluate(dict,
dict)``, and with its own Qrels and Run made from the dicts, as its documentation shows. It uses all cores,
the others one. Absolute times depend on the machine; the ratio is the figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from harness.judged_rows import JudgedRows, number_documents
from harness.judging import judge_arrays
from harness.metrics import Metric, evaluate, evaluated_queries
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
#: Seconds that a timed round of a call takes at least.
LEAST_S = 0.25
RANX = ["ndcg@10", "precision@5", "recall@10", "mrr", "map@100", "hit_rate@5"]


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, round by round, after one that is thrown away.

    A short call is repeated until it has taken as long as a long one and averaged: on a busy machine an
    interruption would otherwise spoil it altogether.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = perf_counter()
        call()
        repeats[name] = max(1, round(LEAST_S / (perf_counter() - started)))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = perf_counter()
            for _ in range(repeats[name]):
                call()
            taken[name].append((perf_counter() - started) / repeats[name])
    return taken


def main() -> None:
    import pytrec_eval

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, value in (("queries", 10_000), ("depth", 100), ("judged", 5), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ranx", action="store_true", help="also ranx, which must be installed")
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
    queries, numbers = evaluated_queries(relevance), number_documents(ids)
    rows = JudgedRows.from_grades(relevance, queries, numbers)
    ranked = np.array([[numbers[d] for d in rankings[q].doc_ids] for q in queries], np.int32)
    order = generator.permuted(np.tile(np.arange(given.depth), (len(queries), 1)), axis=1)
    shuffled = np.take_along_axis(ranked, order, axis=1)
    values = np.take_along_axis(np.array([rankings[q].scores for q in queries], np.float32), order, axis=1)
    parsed = [Metric.parse(name) for name in METRICS.values()]

    calls: dict[str, Callable[[], dict[str, object]]] = {
        "ours, from dicts of scores": lambda: dict(evaluate(scores, relevance, parsed)),
        "ours, from ranked lists": lambda: dict(evaluate(rankings, relevance, parsed)),
        "ours, from arrays": lambda: dict(judge_arrays(ranked, rows, parsed)),
        "ours, from arrays with scores": lambda: dict(judge_arrays(shuffled, rows, parsed, values)),
    }
    expected = referee.evaluate(scores)
    table = {
        ours: np.array([expected[query_id][theirs] for query_id in queries])
        for theirs, ours in METRICS.items()
    }
    print(f"{given.queries} queries x {given.depth} results, {given.judged} judged, {len(METRICS)} metrics")
    for name, call in calls.items():
        got = call()
        worst = max(float(np.abs(np.asarray(got[m]) - table[m]).max()) for m in table)
        print(f"{name:<31}largest difference from pytrec_eval {worst:.1e}")
    timed: dict[str, Callable[[], object]] = {"pytrec_eval": lambda: referee.evaluate(scores), **calls}
    if given.ranx:
        import ranx

        timed["ranx, dicts"] = lambda: ranx.evaluate(relevance, scores, RANX)
        timed["ranx, Qrels/Run"] = lambda: ranx.evaluate(ranx.Qrels(relevance), ranx.Run(scores), RANX)
    taken = interleaved(timed, given.rounds)
    peers = [name for name in taken if not name.startswith("ours")]
    print(f"\n{'times faster than':>48}\n{'':<31}{'ms':>8}" + "".join(f"{peer:>17}" for peer in peers))
    for name, times in taken.items():
        ratios = [median(b / a for a, b in zip(times, taken[peer])) for peer in peers]
        shown = "".join(f"{ratio:>17.3g}" for ratio in ratios) if name not in peers else ""
        print(f"{name:<31}{median(times) * 1e3:>8.3g}{shown}")


if __name__ == "__main__":
    main()

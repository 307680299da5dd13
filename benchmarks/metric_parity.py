"""Every metric against trec_eval's own C on random queries with heavy ties.

    python benchmarks/metric_parity.py [--queries 23500] [--seed 0]

Each query has its own number of results, judged and unjudged documents, grades from -1 to 4, and scores
from a handful of values, so that most documents are tied. Scores are exact in single precision, which
pytrec_eval rounds to. One query in twenty is missing from the run and one in twenty answers a query that
nobody judged. Ours is asked three ways: ranked lists, dicts of scores, arrays of document numbers.

trec_eval reads outside its arrays where all grades of a query are negative, and gives a query without a
relevant document no part in anything we report: such queries are made, and must be left out by ours.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import pytrec_eval

from harness.judged_rows import JudgedRows, number_documents
from harness.judging import judge_arrays
from harness.metrics import evaluate, evaluated_queries
from rag_core.types import Ranking

MEASURES = {
    "map": "map",
    "recip_rank": "mrr",
    "ndcg": "ndcg",
    "set_P": "precision",
    "set_recall": "recall",
    **{f"ndcg_cut_{k}": f"ndcg@{k}" for k in (1, 3, 5, 10, 100)},
    **{f"P_{k}": f"precision@{k}" for k in (1, 3, 5, 10, 100)},
    **{f"recall_{k}": f"recall@{k}" for k in (1, 3, 5, 10, 100)},
    **{f"map_cut_{k}": f"map@{k}" for k in (1, 3, 5, 10, 100)},
    **{f"success_{k}": f"success@{k}" for k in (1, 3, 5, 10, 100)},
}
_CUT = ("ndcg_cut", "P", "recall", "map_cut", "success")
ASKED = {"map", "recip_rank", "ndcg", "set_P", "set_recall"} | {f"{name}.1,3,5,10,100" for name in _CUT}
WAYS = ("ranked lists", "dicts of scores", "arrays")
LETTERS = ["a", "B", "é", "z", "9", "10", "中", "\U0001f600", "ｚ", "_"]


@dataclass(frozen=True, slots=True)
class Found:
    """Values compared, how many of them differ by more than 1e-9, and the largest difference."""

    queries: int
    tied: float
    values: int
    differing: int
    largest: float


def made(queries: int, seed: int) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """A run and its judgements."""
    generator = np.random.default_rng(seed)
    names = np.array([f"{LETTERS[i % len(LETTERS)]}{i}" for i in range(240)], object)
    run: dict[str, dict[str, float]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for number in range(queries):
        fate = generator.random()
        query_id = f"q{number}"
        if fate > 0.05:
            found = generator.choice(names, int(generator.integers(1, 131)), replace=False)
            values = generator.integers(0, int(generator.integers(1, 8)), len(found)) / 4 - 0.5
            run[query_id] = dict(zip(found.tolist(), values.tolist()))
        if fate < 0.95:
            judged = generator.choice(names, int(generator.integers(1, 31)), replace=False)
            grades = generator.integers(-1, 5, len(judged))
            if generator.random() < 0.3:  # mostly irrelevant ones
                grades = np.where(generator.random(len(judged)) < 0.8, np.minimum(grades, 0), grades)
            relevance[query_id] = dict(zip(judged.tolist(), grades.tolist()))
    return run, relevance


def compared(queries: int, seed: int = 0) -> dict[str, Found]:
    """What each of :data:`WAYS` gives, beside trec_eval."""
    run, relevance = made(queries, seed)
    rows = evaluated_queries(relevance)
    referee = pytrec_eval.RelevanceEvaluator({query_id: relevance[query_id] for query_id in rows}, ASKED)
    theirs = referee.evaluate(run)
    # pytrec_eval drops a judged query that the run lacks; it counts 0
    expected = {
        metric: np.array([theirs[q][measure] if q in theirs else 0.0 for q in rows])
        for measure, metric in MEASURES.items()
    }
    number = number_documents(doc_id for found in run.values() for doc_id in found)
    width = max(map(len, run.values()))
    ids, scores = np.full((len(rows), width), -1), np.zeros((len(rows), width))
    for row, query_id in enumerate(rows):
        found = run.get(query_id, {})
        ids[row, : len(found)] = [number[doc_id] for doc_id in found]
        scores[row, : len(found)] = list(found.values())
    rankings = {query_id: Ranking.from_scores(found) for query_id, found in run.items()}
    ours = dict(
        zip(
            WAYS,
            (
                evaluate(rankings, relevance, expected),
                evaluate(run, relevance, expected),
                judge_arrays(ids, JudgedRows.from_grades(relevance, rows, number), expected, scores),
            ),
        )
    )
    n_results = sum(map(len, run.values()))
    tied = 1 - sum(len(set(found.values())) for found in run.values()) / n_results
    out = {}
    for way, values in ours.items():
        gaps = np.abs(np.array([values[name] - expected[name] for name in expected]))
        out[way] = Found(
            len(rows), tied, gaps.size, int(np.count_nonzero(~(gaps <= 1e-9))), float(gaps.max())
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=23_500, help="made; those with a relevant one count")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = compared(given.queries, given.seed)
    first = next(iter(found.values()))
    print(
        f"{first.queries} judged queries, {len(MEASURES)} metrics each; {first.tied:.0%} of the results have "
        "the score of another one before them"
    )
    print(f"{'':<18}{'values':>9}{'differ by > 1e-9':>18}{'largest difference':>20}")
    for way, one in found.items():
        print(f"{way:<18}{one.values:>9}{one.differing:>18}{one.largest:>20.1e}")


if __name__ == "__main__":
    main()

"""Against trec_eval's own C, through pytrec_eval, on random runs with heavy ties."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import evaluate, evaluated_queries
from rag_core.types import Ranking

pytrec_eval = pytest.importorskip("pytrec_eval")

MEASURES = {
    "map": "map",
    "recip_rank": "mrr",
    "ndcg": "ndcg",
    "set_P": "precision",
    "set_recall": "recall",
    "ndcg_cut_1": "ndcg@1",
    "ndcg_cut_3": "ndcg@3",
    "ndcg_cut_10": "ndcg@10",
    "P_3": "precision@3",
    "recall_5": "recall@5",
    "map_cut_4": "map@4",
    "success_2": "success@2",
}
ASKED = {
    "map",
    "recip_rank",
    "ndcg",
    "set_P",
    "set_recall",
    "ndcg_cut.1,3,10",
    "P.3",
    "recall.5",
    "map_cut.4",
    "success.2",
}

documents = st.sampled_from(["a", "B", "b", "é", "z", "10", "9", "007", "中", "\U0001f600", "ｚ", "_"])
queries = st.sampled_from(["1", "2", "3"])
#: Few values, all exact in single precision, which pytrec_eval rounds to: ties everywhere.
scores = st.sampled_from([-1.0, 0.0, 0.5, 0.75, 2.0])


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(queries, st.dictionaries(documents, scores, min_size=1), min_size=1),
    st.dictionaries(queries, st.dictionaries(documents, st.integers(-1, 4), min_size=1), min_size=1),
)
def test_random_runs_with_heavy_ties(run, relevance):
    # trec_eval reads outside its arrays (and may never return) where all grades of a query are negative
    judged = {query_id: relevance[query_id] for query_id in evaluated_queries(relevance)}
    expected = pytrec_eval.RelevanceEvaluator(judged, ASKED).evaluate(run) if judged else {}
    rankings = {query_id: Ranking.from_scores(found) for query_id, found in run.items()}
    found = evaluate(rankings, relevance, MEASURES.values())
    for row, query_id in enumerate(evaluated_queries(relevance)):
        for measure, metric in MEASURES.items():
            # pytrec_eval drops a judged query that the run lacks; ours counts it 0
            value = expected[query_id][measure] if query_id in expected else 0.0
            assert found[metric][row] == pytest.approx(value, abs=1e-12), (query_id, metric)


def test_a_large_run_with_hundreds_of_ties():
    generator = np.random.default_rng(17)
    ids = [f"doc{i}" for i in range(400)]
    relevance, run = {}, {}
    for query in range(40):
        judged = generator.choice(400, 60, replace=False)
        relevance[f"q{query}"] = {ids[i]: int(generator.integers(0, 4)) for i in judged}
        found = generator.choice(400, 200, replace=False)
        run[f"q{query}"] = {ids[i]: float(generator.integers(0, 5)) for i in found}
    expected = pytrec_eval.RelevanceEvaluator(relevance, ASKED).evaluate(run)
    found = evaluate({q: Ranking.from_scores(s) for q, s in run.items()}, relevance, MEASURES.values())
    for row, query_id in enumerate(evaluated_queries(relevance)):
        for measure, metric in MEASURES.items():
            assert found[metric][row] == pytest.approx(expected[query_id][measure], abs=1e-12), metric


def test_two_thousand_queries_of_all_kinds_three_ways(monkeypatch):
    """The benchmark runs 20,000 of them."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "metric_parity.py"
    spec = importlib.util.spec_from_file_location("metric_parity", path)
    parity = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "metric_parity", parity)  # a dataclass looks its module up
    spec.loader.exec_module(parity)
    found = parity.compared(2_300, seed=3)
    assert set(found) == {"ranked lists", "dicts of scores", "arrays"}
    for way, one in found.items():
        assert one.queries >= 2_000, way
        assert one.values == one.queries * 30, way
        assert one.tied > 0.9, way
        assert (one.differing, one.largest) == (0, pytest.approx(0, abs=1e-12)), way

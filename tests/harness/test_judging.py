from __future__ import annotations

import pytest

from harness.datasets import Dataset
from harness.judging import judge
from rag_core.types import Qrel, Query, Ranking, Run


def ranking(*ids):
    return Ranking.from_scores((d, float(-i)) for i, d in enumerate(ids))


RELEVANCE = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 0}}


def test_o04_failed_queries_count_0_and_unjudgeable_ones_nothing():
    run = Run("r", {"q1": ranking("a"), "q3": ranking("c")}, {"q2": "boom"})
    found = judge(run, RELEVANCE, ["ndcg@10", "mrr"])
    assert found.query_ids == ("q1", "q2")
    assert found.means == {"ndcg@10": 0.5, "mrr": 0.5}
    assert found.values["ndcg@10"].tolist() == [1.0, 0.0]
    assert found.counts == {
        "n_queries": 3,
        "n_answered": 2,
        "n_empty_answers": 0,
        "n_failed": 1,
        "n_missing": 0,
        "n_without_relevant": 1,
        "n_evaluated": 2,
    }
    assert not found.all_failed


def test_an_engine_that_answers_fewer_queries_does_not_score_higher():
    full = judge(Run("r", {"q1": ranking("a"), "q2": ranking("x")}), RELEVANCE, ["mrr"])
    part = judge(Run("r", {"q1": ranking("a")}), RELEVANCE, ["mrr"])
    assert part.means == full.means == {"mrr": 0.5}
    assert (full.counts["n_missing"], part.counts["n_missing"]) == (1, 2)


def test_an_empty_answer_is_an_answer_and_counts_0():
    found = judge(Run("r", {"q1": ranking(), "q2": ranking("b")}), RELEVANCE, ["success@1"])
    assert found.means["success@1"] == 0.5
    assert (found.counts["n_answered"], found.counts["n_empty_answers"]) == (2, 1)


def test_a_query_both_answered_and_failed_has_failed():
    found = judge(Run("r", {"q1": ranking("a")}, {"q1": "later"}), RELEVANCE, ["mrr"])
    assert found.means["mrr"] == 0
    assert (found.counts["n_answered"], found.counts["n_failed"]) == (0, 1)


def test_a_run_of_failures_only_is_flagged():
    assert judge(Run("r", {}, {"q1": "x", "q2": "x", "q3": "x"}), RELEVANCE, ["mrr"]).all_failed
    assert not judge(Run("r", {}), RELEVANCE, ["mrr"]).all_failed


def test_without_anything_to_evaluate_the_mean_is_none():
    found = judge(Run("r", {"q3": ranking("c")}), {"q3": {"c": 0}}, ["mrr"])
    assert found.means == {"mrr": None}
    assert found.counts["n_without_relevant"] == 1


def test_a_data_set_decides_which_queries_there_are():
    data = Dataset(
        "d",
        (),
        (Query("q1", "x"), Query("q2", "y"), Query("q9", "unjudged")),
        (Qrel("q1", "a", 1), Qrel("q2", "b", 2), Qrel("foreign", "a", 1)),
    )
    run = Run("r", {"q1": ranking("a"), "foreign": ranking("a")}, {"stranger": "x"})
    found = judge(run, data, ["mrr"])
    assert found.query_ids == ("q1", "q2")
    assert found.means["mrr"] == pytest.approx(0.5)
    assert found.counts["n_queries"] == 3
    assert found.counts["n_answered"] == 1
    assert found.counts["n_failed"] == 0
    assert found.counts["n_missing"] == 2
    assert found.counts["n_without_relevant"] == 1

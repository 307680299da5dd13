from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import FAMILIES, Metric, evaluate, evaluated_queries
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.types import Ranking

LETTERS = "abcdefghijkl"


def one(run, relevance, metric):
    values = evaluate(run, relevance, [metric])[str(Metric.parse(metric))]
    assert values.dtype == np.float64
    assert values.shape == (1,)
    return float(values[0])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ndcg@10", "ndcg@10"),
        ("NDCG@10", "ndcg@10"),
        ("P@5", "precision@5"),
        ("hit@3", "success@3"),
        ("hit_rate@3", "success@3"),
        ("map", "map"),
        ("AP@100", "map@100"),
        (" mrr ", "mrr"),
        ("recip_rank", "mrr"),
        ("r@2", "recall@2"),
    ],
)
def test_names_and_aliases_have_one_form(text, name):
    metric = Metric.parse(text)
    assert str(metric) == name
    assert Metric.parse(str(metric)) == metric


def test_metric_tells_direction_unit_title_and_kind():
    metric = Metric.parse("success@5")
    assert (metric.family, metric.cutoff, metric.direction, metric.unit) == (
        "success",
        5,
        "higher",
        "fraction",
    )
    assert (metric.title, metric.binary) == ("Success@5", True)
    assert (Metric.parse("ndcg").title, Metric.parse("ndcg").binary) == ("nDCG", False)


def test_unknown_metric_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'ndgc@10'; did you mean 'ndcg'"):
        Metric.parse("ndgc@10")


@pytest.mark.parametrize("text", ["ndcg@0", "ndcg@", "ndcg@-1", "ndcg@1.5", "ndcg@x", "ndcg@1_0", "ndcg@5@5"])
def test_bad_cutoff_is_refused_with_its_value(text):
    with pytest.raises(InvalidArgumentError, match="accepted: a whole number from 1"):
        Metric.parse(text)


@pytest.mark.parametrize("order", [LETTERS, LETTERS[::-1]])
def test_o01_constant_scores_give_the_tie_rule_not_the_insertion_order(order):
    run = {"q": Ranking.from_scores((d, 0.5) for d in order)}
    assert one(run, {"q": {"a": 1}}, "ndcg@10") == 0
    assert one(run, {"q": {"a": 1}}, "mrr@10") == 0


def test_o01_ten_tied_documents_put_the_relevant_one_last():
    run = {"q": Ranking.from_scores((d, 0.5) for d in "abcdefghij")}
    assert one(run, {"q": {"a": 1}}, "ndcg@10") == pytest.approx(0.28906483, abs=5e-9)
    assert one(run, {"q": {"a": 1}}, "mrr@10") == pytest.approx(0.1, abs=1e-15)


@pytest.mark.parametrize(("pair", "value"), [("ab", 1.0), ("bc", 0.63092975)])
def test_o01_renaming_a_tied_document_moves_it_by_the_rule_only(pair, value):
    run = {"q": Ranking.from_scores(dict.fromkeys(pair, 1.0))}
    assert one(run, {"q": {"b": 1}}, "ndcg") == pytest.approx(value, abs=5e-9)


def test_o02_ideal_comes_from_the_judgements():
    relevance, run = {"q": {"a": 1, "b": 1}}, {"q": ["a"]}
    assert one(run, relevance, "ndcg@10") == pytest.approx(0.61314719, abs=5e-9)
    assert one(run, relevance, "recall@10") == 0.5
    assert one(run, relevance, "mrr") == 1.0


@pytest.mark.parametrize(
    "metric", ["ndcg@10", "recall@10", "mrr", "map", "success@1", "precision@1", "precision"]
)
def test_o03_a_document_twice_in_a_list_counts_once(metric):
    assert one({"q": ["id1", "id1"]}, {"q": {"id1": 1}}, metric) == 1.0


def test_o03_the_copy_does_not_hold_a_rank():
    assert one({"q": ["a", "a", "b"]}, {"q": {"b": 1}}, "mrr") == 0.5


def test_grades_are_linear_gains_and_negative_ones_count_as_not_relevant():
    relevance = {"q": {"a": 3, "b": 2, "c": 1, "d": 0, "e": -2}}
    found = one({"q": ["e", "c", "a", "x", "b"]}, relevance, "ndcg@3")
    assert found == pytest.approx((1 / math.log2(3) + 3 / 2) / (3 + 2 / math.log2(3) + 1 / 2), abs=1e-12)
    assert one({"q": ["e", "d", "c"]}, relevance, "precision@3") == pytest.approx(1 / 3)
    assert one({"q": ["e", "d", "c"]}, relevance, "recall") == pytest.approx(1 / 3)


def test_map_divides_by_all_relevant_and_precision_by_the_cutoff():
    relevance = {"q": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}}
    run = {"q": ["a", "x", "b"]}
    assert one(run, relevance, "map") == pytest.approx((1 + 2 / 3) / 5)
    assert one(run, relevance, "map@2") == pytest.approx(1 / 5)
    assert one(run, relevance, "precision@10") == pytest.approx(2 / 10)
    assert one(run, relevance, "precision") == pytest.approx(2 / 3)
    assert one(run, relevance, "success@1") == 1


def test_missing_queries_count_0_and_foreign_or_unjudgeable_ones_do_not_count():
    relevance = {"q2": {"b": 1}, "q1": {"a": 1}, "q3": {"c": 0}, "q4": {}}
    assert evaluated_queries(relevance) == ("q1", "q2")
    values = evaluate({"q1": ["a"], "q3": ["c"], "other": ["z"]}, relevance, list(FAMILIES))
    assert set(values) == set(FAMILIES)
    for family in FAMILIES:
        assert values[family].tolist() == [1.0, 0.0]


def test_nothing_to_evaluate_gives_empty_float_arrays():
    for found in evaluate({}, {"q": {"a": 0}}, ["ndcg@10", "success@1"]).values():
        assert found.shape == (0,)
        assert found.dtype == np.float64


def test_an_empty_ranking_counts_0_in_every_metric():
    values = evaluate({"q": Ranking.from_scores(())}, {"q": {"a": 1}}, list(FAMILIES))
    assert all(found.tolist() == [0.0] for found in values.values())


documents = st.sampled_from([f"d{i}" for i in range(12)])


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from("qrst"), st.lists(documents, max_size=12), max_size=4),
    st.dictionaries(st.sampled_from("qrst"), st.dictionaries(documents, st.integers(-1, 3), max_size=8)),
    st.integers(1, 12),
)
def test_every_value_stays_within_0_and_1_and_is_a_number(run, relevance, k):
    names = [*FAMILIES, *(f"{family}@{k}" for family in FAMILIES)]
    for name, values in evaluate(run, relevance, names).items():
        assert len(values) == len(evaluated_queries(relevance)), name
        assert np.isfinite(values).all(), name
        assert ((values >= 0) & (values <= 1 + 1e-12)).all(), name


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(documents, st.integers(1, 3), min_size=1))
def test_the_best_order_has_ndcg_1_and_recall_1(grades):
    best = sorted(grades, key=lambda d: -grades[d])
    values = evaluate({"q": best}, {"q": grades}, ["ndcg", "ndcg@3", "recall", "map"])
    assert all(found[0] == pytest.approx(1.0, abs=1e-12) for found in values.values())

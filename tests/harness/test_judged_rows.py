"""Judging from arrays: the values of the path by names, to the last bit, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judged_rows import UNKNOWN, JudgedRows, number_documents
from harness.judging import judge_arrays
from harness.metrics import evaluate, evaluated_queries
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.types import Ranking

METRICS = ["ndcg", "ndcg@1", "ndcg@10", "precision", "precision@3", "recall", "recall@5", "mrr", "mrr@2"]
METRICS += ["map", "map@4", "success@2"]
documents = st.sampled_from(["a", "B", "b", "é", "z", "10", "9", "007", "中", "\U0001f600", "ｚ", "_"])
queries = st.sampled_from(["1", "2", "3"])
scores = st.sampled_from([-1.0, 0.0, 0.5, 0.75, 2.0, float("inf"), float("-inf")])
runs = st.dictionaries(queries, st.dictionaries(documents, scores), min_size=1)
judgements = st.dictionaries(queries, st.dictionaries(documents, st.integers(-1, 4)), min_size=1)


def padded(rows: list[list[float]], filler: float) -> np.ndarray:
    width = max(map(len, rows), default=0)
    return np.array([row + [filler] * (width - len(row)) for row in rows]).reshape(len(rows), width)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@settings(deadline=None, max_examples=150)
@given(runs, judgements, st.sampled_from([np.int16, np.int32, np.int64]))
def test_every_way_in_gives_the_same_bits(run, relevance, integers):
    rankings = {query_id: Ranking.from_scores(found) for query_id, found in run.items()}
    query_ids = evaluated_queries(relevance)
    expected = evaluate(rankings, relevance, METRICS)
    by_score = evaluate(run, relevance, METRICS)

    number = number_documents(doc_id for found in run.values() for doc_id in found)
    judged = JudgedRows.from_grades(relevance, query_ids, number)
    ranked = [[number[d] for d in rankings[q].doc_ids] if q in rankings else [] for q in query_ids]
    found = [run.get(query_id, {}) for query_id in query_ids]
    from_ranked = judge_arrays(padded(ranked, -1).astype(integers), judged, METRICS)
    from_scores = judge_arrays(
        padded([[number[d] for d in row] for row in found], -1).astype(integers),
        judged,
        METRICS,
        padded([list(row.values()) for row in found], 9.0),  # the filler's score counts for nothing
    )
    for name in METRICS:
        for other in (by_score, from_ranked, from_scores):
            assert same_bits(expected[name], other[name]), name


def test_many_rows_and_long_rows_cross_the_blocks():
    generator = np.random.default_rng(5)
    n, k = 900, 300
    ids = np.argsort(generator.random((n, 400)), axis=1)[:, :k]
    values = generator.integers(0, 12, (n, k)).astype(np.float32)
    lengths = generator.integers(0, k + 1, n)
    names = [f"d{i:03d}" for i in range(400)]
    run = {
        f"q{row:04d}": {names[i]: float(v) for i, v in zip(ids[row, :end], values[row, :end])}
        for row, end in enumerate(lengths)
    }
    relevance = {
        f"q{row:04d}": {
            names[i]: int(generator.integers(-1, 4))
            for i in generator.choice(400, generator.integers(1, 30), replace=False)
        }
        for row in range(n)
    }
    query_ids = evaluated_queries(relevance)
    judged = JudgedRows.from_grades(relevance, query_ids, number_documents(names))
    rows = np.array([int(query_id[1:]) for query_id in query_ids])
    short = np.where(np.arange(k) < lengths[:, None], ids, -1)[rows]
    expected = evaluate({q: Ranking.from_scores(s) for q, s in run.items()}, relevance, METRICS)
    by_score = evaluate(run, relevance, METRICS)
    by_array = judge_arrays(short, judged, METRICS, values[rows])
    for name in METRICS:
        assert same_bits(expected[name], by_score[name]), name
        assert same_bits(expected[name], by_array[name]), name


def test_a_query_without_a_relevant_document_has_no_value():
    judged = JudgedRows.of([0, 1, 1, 2], [4, 5], [1, 0])
    found = judge_arrays([[4], [4], [5]], judged, ["precision@1", "ndcg@10"])
    assert judged.n == 3
    assert judged.evaluated.tolist() == [True, False, False]
    assert found["precision@1"].tolist() == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)
    assert found["ndcg@10"].tolist() == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)


def test_a_relevant_document_without_a_number_counts_as_not_found():
    judged = JudgedRows.from_grades({"q": {"known": 1, "gone": 1}}, ["q"], {"known": 0})
    assert judge_arrays([[0, -1]], judged, ["recall"])["recall"].tolist() == [0.5]
    assert JudgedRows.of([0, 2], [UNKNOWN, UNKNOWN], [1, 2]).ideal.relevant.tolist() == [2]


def test_numbers_beyond_the_type_of_the_rows_match_nothing():
    judged = JudgedRows.of([0, 1], [65_536 + 3], [1])
    assert judge_arrays(np.array([[3]], np.uint16), judged, ["mrr"])["mrr"].tolist() == [0.0]
    assert judge_arrays(np.array([[65_539]], np.uint32), judged, ["mrr"])["mrr"].tolist() == [1.0]


def test_nothing_at_all():
    judged = JudgedRows.of([0], [], [])
    assert judge_arrays(np.zeros((0, 0), np.int64), judged, ["map"])["map"].tolist() == []
    one = JudgedRows.of([0, 1], [7], [1])
    assert judge_arrays(np.zeros((1, 0), np.int64), one, ["map"])["map"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda j: judge_arrays([[1.0]], j, ["map"]), "doc_ids is float64 of shape"),
        (lambda j: judge_arrays([1], j, ["map"]), "integers with 2 dimensions"),
        (lambda j: judge_arrays([[1], [2]], j, ["map"]), "2 rows of documents; accepted: 1"),
        (lambda j: judge_arrays([[7, 7]], j, ["map"]), "document 7 stands twice in row 0"),
        (lambda j: judge_arrays([[-1, 7]], j, ["map"]), "a negative number stands before a document"),
        (lambda j: judge_arrays([[7]], j, ["map"], [[np.nan]]), "a score is NaN"),
        (lambda j: judge_arrays([[7]], j, ["map"], [7.0]), r"of shape \(1,\); accepted: numbers of shape"),
        (lambda j: judge_arrays([[7]], j, ["map"], [["x"]]), "accepted: numbers"),
        (lambda j: JudgedRows.of([0, 2], [7], [1]), "starts run from 0 to 2 over 1 documents"),
        (lambda j: JudgedRows.of([], [], []), "starts run from 0 to -1"),
        (lambda j: JudgedRows.of([0, 2, 1], [7], [1]), "never falling"),
        (lambda j: JudgedRows.of([0, 1], [7], [1, 2]), "and 2 grades"),
        (lambda j: JudgedRows.of([0, 2], [7, 7], [1, 2]), "query 0 judges document 7 twice"),
        (lambda j: JudgedRows.of([0, 1], ["a"], [1]), "docs is <U1"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call(JudgedRows.of([0, 1], [7], [1]))


def test_an_unknown_metric_is_refused():
    with pytest.raises(UnknownNameError, match="unknown metric"):
        judge_arrays([[7]], JudgedRows.of([0, 1], [7], [1]), ["nothing"])


def test_a_score_that_is_not_a_number_is_refused_among_names_too():
    with pytest.raises(InvalidArgumentError, match="a score is NaN"):
        evaluate({"q": {"a": float("nan")}}, {"q": {"a": 1}}, ["map"])

"""Documents and rankings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import RankingError
from rag_core.types import Document, Ranking, Run, ScoredDoc


@pytest.mark.parametrize(
    ("title", "text", "indexed"),
    [
        ("T", "x", "T\nx"),
        ("", "x", "x"),
        ("only a title", "", "only a title"),
        (" ", "\n", ""),
        ("", " x ", "x"),
    ],
)
def test_indexed_text(title: str, text: str, indexed: str) -> None:
    document = Document("d", text, title)
    assert document.indexed_text == indexed
    assert document.is_empty is (indexed == "")


def test_order_is_score_then_id_descending_whatever_the_insertion() -> None:
    """O01: insertion order never matters."""
    pairs = [("a", 0.5), ("b", 0.5), ("é", 0.5), ("Z", 0.5), ("c", 0.7)]
    for order in (pairs, pairs[::-1]):
        assert Ranking.from_scores(order).doc_ids == ("c", "é", "b", "a", "Z")


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 1.0]), max_size=30))
def test_the_order_by_code_point_is_the_order_by_bytes(scores: dict[str, float]) -> None:
    expected = sorted(scores, key=lambda d: (scores[d], d.encode("utf-8", "surrogatepass")), reverse=True)
    assert list(Ranking.from_scores(scores).doc_ids) == expected


def test_a_repeated_id_keeps_its_best_score_and_is_counted() -> None:
    """O03."""
    ranking = Ranking.from_scores([("a", 0.1), ("b", 0.5), ("a", 0.9)])
    assert ranking.doc_ids == ("a", "b")
    assert ranking.duplicates == 1


@pytest.mark.parametrize("pairs", [[("a", math.nan)], [("", 1.0)], [(3, 1.0)]])
def test_nan_and_bad_ids_are_refused(pairs: list[tuple[str, float]]) -> None:
    with pytest.raises(RankingError):
        Ranking.from_scores(pairs)


def test_k_below_one_is_refused() -> None:
    with pytest.raises(RankingError, match="k is 0"):
        Ranking.from_scores({"a": 1.0}, k=0)
    with pytest.raises(RankingError, match="k is -1"):
        Ranking.from_scores({"a": 1.0}).top(-1)


def test_it_reads_like_a_sequence() -> None:
    ranking = Ranking.from_scores({"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0})
    assert ranking[0] == ScoredDoc("a", 3.0)
    assert ranking[1:3] == [ScoredDoc("b", 2.0), ScoredDoc("c", 1.0)]
    assert [hit.doc_id for hit in ranking] == ["a", "b", "c", "d"]
    assert ranking.top(2) == Ranking.from_scores({"a": 3.0, "b": 2.0})
    assert ranking.top(9) is ranking
    assert len({ranking, Ranking.from_scores(zip(ranking.doc_ids, ranking.scores))}) == 1
    assert ranking != ["a"]
    assert repr(ranking) == "Ranking(4 documents: a=3, b=2, c=1, …)"


def test_made_only_from_scores() -> None:
    with pytest.raises(TypeError, match="from_scores"):
        Ranking()


def test_a_run_tells_whether_its_scores_fall() -> None:
    run = Run(
        "r", {"q": Ranking.from_scores({"a": 1.0, "b": 1.0}), "p": Ranking.from_scores({"a": 2.0, "b": 1.0})}
    )
    assert not run.strictly_decreasing("q")
    assert run.strictly_decreasing("p")

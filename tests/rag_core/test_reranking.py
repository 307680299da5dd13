"""Order and ties of reranked lists, and their fusion with the order before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fusion import rrf
from rag_core.reranking import check_mix, interpolate, reorder, rerank_ranking
from rag_core.types import Ranking

FUSED = Ranking.from_scores({"a": 0.5, "b": 0.4, "c": 0.3})


def test_scores_stay_with_their_documents() -> None:
    """O29: answers (2, .9), (0, .5), (1, .1) give the order 2, 0, 1 with their own scores."""
    again = reorder(FUSED, [0.5, 0.1, 0.9])
    assert again.ranking.doc_ids == ("c", "a", "b")
    assert again.ranking.scores == (0.9, 0.5, 0.1)
    assert again.raw == {"a": 0.5, "b": 0.1, "c": 0.9}
    assert again.warnings == ()


def test_nan_never_outranks_a_number() -> None:
    """O30: scores [0.2, NaN, 0.9]."""
    again = reorder(FUSED, [0.2, math.nan, 0.9])
    assert again.ranking.doc_ids == ("c", "a", "b")
    assert again.warnings == ("the reranker gave NaN for 1 of 3 candidates; they come last",)
    assert math.isnan(again.raw["b"])


def test_nan_stays_behind_minus_infinity() -> None:
    assert reorder(FUSED, [math.nan, -math.inf, math.inf]).ranking.doc_ids == ("c", "b", "a")


def test_constant_scores_keep_the_fused_order_and_say_so() -> None:
    """O30: all 1.0."""
    again = reorder(FUSED, [1.0, 1.0, 1.0])
    assert again.ranking.doc_ids == FUSED.doc_ids
    assert "all 3 candidates the same score" in again.warnings[0]


def test_partly_equal_scores_keep_the_fused_order_within() -> None:
    assert reorder(FUSED, [1.0, 2.0, 1.0]).ranking.doc_ids == ("b", "a", "c")


def test_large_logits_are_not_squeezed() -> None:
    """O30: 100 > 90 > 80 stays."""
    assert reorder(FUSED, [80, 90, 100]).ranking.doc_ids == ("c", "b", "a")


def test_another_number_of_scores_is_refused() -> None:
    with pytest.raises(ProviderError, match="2 scores for 3 candidates"):
        reorder(FUSED, [1.0, 2.0])


def test_no_candidates_never_reach_the_reranker() -> None:
    class Never:
        name = model = "never"
        target = "cpu"
        fingerprint = "never"

        def is_available(self) -> bool:
            return True

        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            raise AssertionError("called")

    assert len(rerank_ranking(Never(), "q", Ranking.from_scores(()), []).ranking) == 0


def test_o29_top_k_and_equal_texts_move_no_score() -> None:
    """O29: every (id, score) is that of the pair alone, whatever is cut and whichever texts are equal."""
    length = {"bb": 2.0, "dddd": 4.0, "c": 1.0}

    class Lengths:
        name = model = fingerprint = "lengths"
        target = "cpu"

        def is_available(self) -> bool:
            return True

        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            return [length[text] for text in candidates]

    fused = Ranking.from_scores({"d1": 0.9, "d2": 0.8, "d3": 0.7, "d4": 0.6})
    texts = ["bb", "dddd", "c", "bb"]
    again = rerank_ranking(Lengths(), "q", fused, texts)
    assert again.ranking.doc_ids == ("d2", "d1", "d4", "d3")
    assert again.raw == {"d1": 2.0, "d2": 4.0, "d3": 1.0, "d4": 2.0}
    for k in (1, 3, 10):
        assert again.ranking.top(k).doc_ids == ("d2", "d1", "d4", "d3")[:k]


def test_o30_scores_that_are_no_help() -> None:
    """O30: NaN never wins and is told, equal scores keep the order and are told, raw scores decide."""
    for scores, order, told in (
        ([0.2, math.nan, 0.9], ("c", "a", "b"), "NaN for 1 of 3"),
        ([1.0, 1.0, 1.0], ("a", "b", "c"), "the same score"),
        ([80.0, 90.0, 100.0], ("c", "b", "a"), ""),
    ):
        again = reorder(FUSED, scores)
        assert again.ranking.doc_ids == order
        assert told in "".join(again.warnings)
        assert bool(told) == bool(again.warnings)


@st.composite
def scored(draw: st.DrawFn) -> tuple[Ranking, list[float]]:
    n = draw(st.integers(1, 60))
    ids = draw(st.permutations([f"d{i}" for i in range(n)]))
    some = st.one_of(st.floats(allow_nan=True), st.sampled_from([0.0, 1.0]))
    scores = draw(st.lists(some, min_size=n, max_size=n))
    return Ranking.from_scores((d, float(n - i)) for i, d in enumerate(ids)), scores


@given(scored(), st.floats(0, 1e6), st.floats(0.5, 1000))
def test_interpolation_is_a_permutation_with_falling_scores(
    case: tuple[Ranking, list[float]], weight: float, k: float
) -> None:
    fused, scores = case
    after = reorder(fused, scores).ranking
    mixed = interpolate(fused, after, k=k, weight=weight)
    assert sorted(mixed.doc_ids) == sorted(fused.doc_ids)
    assert all(a > b for a, b in zip(mixed.scores, mixed.scores[1:]))


@given(scored())
def test_a_weight_towards_zero_gives_the_fused_order(case: tuple[Ranking, list[float]]) -> None:
    fused, scores = case
    after = reorder(fused, scores).ranking
    for weight in (0.0, 1e-9, 1e-4):
        assert interpolate(fused, after, weight=weight).doc_ids == fused.doc_ids


@given(scored())
def test_a_large_weight_gives_the_rerankers_order(case: tuple[Ranking, list[float]]) -> None:
    fused, scores = case
    after = reorder(fused, scores).ranking
    assert interpolate(fused, after, weight=1e6).doc_ids == after.doc_ids


@given(scored(), st.floats(-1e9, 1e9), st.floats(0, 1e3))
def test_a_constant_score_keeps_the_fused_order(
    case: tuple[Ranking, list[float]], score: float, weight: float
) -> None:
    fused, _ = case
    after = reorder(fused, [score] * len(fused)).ranking
    assert interpolate(fused, after, weight=weight).doc_ids == fused.doc_ids


def test_interpolation_by_hand() -> None:
    """Ranks 1 2 3 and, after the reranker, 3 1 2: b has 1/62 + 1/61, a 1/61 + 1/63, c 1/63 + 1/62."""
    mixed = interpolate(FUSED, reorder(FUSED, [0.1, 0.9, 0.5]).ranking)
    assert mixed.doc_ids == ("b", "a", "c")
    assert mixed.scores == pytest.approx((1 / 62 + 1 / 61, 1 / 61 + 1 / 63, 1 / 63 + 1 / 62))
    assert mixed == rrf([FUSED, reorder(FUSED, [0.1, 0.9, 0.5]).ranking])


def test_equal_sums_keep_the_fused_order() -> None:
    """Swapped neighbours have equal sums; the rule of rankings alone would put the later id first."""
    fused = Ranking.from_scores({"a": 2.0, "b": 1.0})
    mixed = interpolate(fused, reorder(fused, [0.0, 1.0]).ranking)
    assert mixed.doc_ids == ("a", "b")
    assert mixed.scores[0] == math.nextafter(mixed.scores[1], 1)


def test_interpolation_refuses_other_documents_and_bad_weights() -> None:
    with pytest.raises(InvalidArgumentError, match="3 documents before reranking and 1 after it"):
        interpolate(FUSED, Ranking.from_scores({"a": 1.0}))
    with pytest.raises(InvalidArgumentError, match="weight"):
        interpolate(FUSED, FUSED, weight=-1.0)
    with pytest.raises(InvalidArgumentError, match="rerank_mix is 'rank'; accepted: scores, ranks"):
        check_mix("rank")

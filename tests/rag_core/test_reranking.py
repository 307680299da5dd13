"""Order and ties of reranked lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from rag_core.errors import ProviderError
from rag_core.reranking import reorder, rerank_ranking
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

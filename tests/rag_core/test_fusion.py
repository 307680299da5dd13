"""Reciprocal rank fusion."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError
from rag_core.fusion import rrf
from rag_core.types import Ranking


def ranking(*ids: str) -> Ranking:
    return Ranking.from_scores((doc_id, float(-i)) for i, doc_id in enumerate(ids))


def test_the_sum_by_hand() -> None:
    fused = rrf([ranking("a", "b"), ranking("b", "c")], k=60)
    assert fused.doc_ids == ("b", "a", "c")
    assert fused.scores == pytest.approx((1 / 61 + 1 / 62, 1 / 61, 1 / 62))


@pytest.mark.parametrize(("weights", "first"), [([4, 1], "a"), ([1, 4], "b")])
def test_weights_decide(weights: list[float], first: str) -> None:
    """O26."""
    assert rrf([["a"], ["b"]], weights=weights).doc_ids[0] == first


def test_a_leg_of_weight_zero_adds_nothing() -> None:
    """O26."""
    assert rrf([["a"], ["b"]], weights=[1, 0]).doc_ids == ("a",)
    assert rrf([["a"], ["b"]], weights=[0, 1]).doc_ids == ("b",)


@pytest.mark.parametrize("weights", [[-1, 1], [math.nan, 1], [math.inf, 1], [1], [1, 1, 1], [0, 0]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    """O26."""
    with pytest.raises(InvalidArgumentError, match="weight"):
        rrf([["a"], ["b"]], weights=weights)


@pytest.mark.parametrize("k", [0, -1, math.nan, math.inf])
def test_bad_k_is_refused(k: float) -> None:
    with pytest.raises(InvalidArgumentError, match="k is"):
        rrf([["a"]], k=k)


def test_ties_go_by_id_descending() -> None:
    """O27: lists [x, y] and [y, x]."""
    assert rrf([["x", "y"], ["y", "x"]]).doc_ids == ("y", "x")
    assert rrf([["y", "x"], ["x", "y"]]).doc_ids == ("y", "x")


def test_an_id_repeated_within_a_list_counts_once() -> None:
    assert rrf([["a", "a", "b"]]) == rrf([["a", "b"]])


def test_depth_cuts_every_leg() -> None:
    assert rrf([["a", "a", "b", "c"], ranking("c", "d", "e")], depth=2) == rrf([["a", "b"], ["c", "d"]])
    assert rrf([["a", "b"]], depth=9) == rrf([["a", "b"]])
    with pytest.raises(InvalidArgumentError, match="depth is 0"):
        rrf([["a"]], depth=0)


def test_no_lists_and_empty_lists() -> None:
    assert rrf([]).doc_ids == ()
    assert rrf([[], ["a"]]).doc_ids == ("a",)


def test_vector_only_hits_keep_their_order() -> None:
    """O28: if a vector-only hit of rank r is returned, so are all better ones."""
    vector = [f"v{i}" for i in range(50)]
    fused = rrf([ranking(*vector), ranking()])
    assert fused.doc_ids == tuple(vector)
    cut = rrf([ranking(*vector), ranking("w1", "v7")]).top(10).doc_ids
    only = [d for d in vector if d != "v7"]
    returned = [d for d in cut if d in only]
    assert returned == only[: len(returned)]


LISTS = st.lists(st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10), max_size=5)


@given(LISTS, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_does_not_change_a_bit(lists: list[list[str]], random: object) -> None:
    """O27."""
    shuffled = list(lists)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rrf(lists) == rrf(shuffled)


@given(LISTS, st.floats(0.001, 1000))
def test_scores_are_the_sums(lists: list[list[str]], k: float) -> None:
    fused = rrf(lists, k=k)
    for hit in fused:
        total = math.fsum(1 / (k + found.index(hit.doc_id) + 1) for found in lists if hit.doc_id in found)
        assert hit.score == pytest.approx(total, rel=1e-12)


@given(LISTS.filter(any), st.data())
def test_a_better_rank_never_lowers_a_document(lists: list[list[str]], data: st.DataObject) -> None:
    leg = data.draw(st.sampled_from([i for i, found in enumerate(lists) if found]))
    at = data.draw(st.integers(0, len(lists[leg]) - 1))
    doc_id = lists[leg][at]
    raised = [list(found) for found in lists]
    raised[leg].insert(data.draw(st.integers(0, at)), raised[leg].pop(at))
    before, after = rrf(lists), rrf(raised)
    assert after.scores[after.doc_ids.index(doc_id)] >= before.scores[before.doc_ids.index(doc_id)]
    assert after.doc_ids.index(doc_id) <= before.doc_ids.index(doc_id)


SCRIPT = """
from rag_core.fusion import rrf
one = {f"d{i}" for i in range(200)}
print(rrf([[d] for d in one]).doc_ids, rrf([["x", "y"], ["y", "x"]]).doc_ids)
"""


def test_the_hash_seed_does_not_matter() -> None:
    """O27: 200 documents at equal ranks, several processes."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(5)
    }
    assert len(outputs) == 1

"""What reranking does, by hand and against judging the reordered run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.economics import (
    MAIN,
    METRICS,
    Pool,
    ceiling,
    depths_of,
    economics,
    fates,
    points_per_ms,
    quality,
    share_of_p95,
)
from harness.judging import judge
from rag_core.reranking import interpolate, reorder
from rag_core.types import Ranking, Run


def ranking(*ids: str) -> Ranking:
    return Ranking.from_scores((doc_id, float(-i)) for i, doc_id in enumerate(ids))


def pool(ids: str, scores: list[float] | None, size: int | None = None) -> Pool:
    given = None if scores is None else tuple(scores)
    return Pool(ranking(*ids), given, len(ids) if size is None else size)


#: One pool of four of six documents: the reranker turns it round.
ONE = {"q": pool("abcdef", [1.0, 2.0, 3.0, 4.0], 4)}


def test_an_order_by_hand() -> None:
    one = ONE["q"]
    assert "".join(one.order(4)) == "dcbaef"  # the documents beyond the pool follow
    assert "".join(one.order(99)) == "dcbaef"
    assert "".join(one.order(2)) == "bacdef"
    assert "".join(one.order(4, "ranks")) == "adbcef"  # 1/61 + 1/64 twice, then 1/62 + 1/63 twice
    assert pool("ab", None).order(2) == ()
    assert pool("", []).order(5) == ()


def test_before_after_and_ceiling_by_hand() -> None:
    relevance = {"q": {"c": 1, "f": 1, "x": 1}}
    found = economics(ONE, relevance)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert found["before"] == {
        "precision@5": [1 / 5],
        "recall@5": [1 / 3],
        "mrr@10": [1 / 3],
        "ndcg@10": [pytest.approx((1 / 2 + 1 / math.log2(7)) / ideal)],
    }
    assert found["after"]["mrr@10"] == [1 / 2]
    assert found["after"]["ndcg@10"] == [pytest.approx((1 / math.log2(3) + 1 / math.log2(7)) / ideal)]
    # c goes first, f stands beyond the pool and stays sixth, x was not found at all
    assert found["ceiling"]["ndcg@10"] == pytest.approx((1 + 1 / math.log2(7)) / ideal)
    assert found["ceiling"]["mrr@10"] == 1.0


def test_grades_order_the_ceiling() -> None:
    best = ceiling({"q": pool("abc", [0, 0, 0])}, {"q": {"b": 1, "c": 3}})
    assert best[MAIN] == pytest.approx(1.0)


def test_missed_mis_ranked_pushed_out_and_lifted_in_by_hand() -> None:
    """Top 2 of a pool of four. Before: a b | c d; after: d c | b a."""
    relevance = {"q": {"a": 1, "c": 2, "e": 1, "x": 1, "b": 0}}
    after = {"q": ONE["q"].order(4)}
    assert fates(ONE, after, relevance, top=2) == {
        "relevant": 4,  # b is judged and not relevant
        "not_in_pool": 2,  # e stands beyond the pool, x nowhere
        "below_top": 1,  # a
        "in_top": 1,  # c
        "pushed_out": 1,  # a
        "lifted_in": 1,  # c
    }


def test_a_failed_query_counts_nothing_found() -> None:
    """Retrieval failed for q1: no pool. The reranker failed for q2: a pool without scores."""
    relevance = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}}
    pools = {"q2": pool("ab", None), "q3": pool("ba", [0.0, 1.0])}
    found = economics(pools, relevance)
    assert found["before"]["mrr@10"] == [0.0, 1.0, 0.5]
    assert found["after"]["mrr@10"] == [0.0, 0.0, 1.0]
    assert (found["fates"]["not_in_pool"], found["fates"]["pushed_out"]) == (1, 1)
    assert found["depths"][-1]["per_query"] == found["after"][MAIN]


def test_nothing_judged_and_nothing_found() -> None:
    found = economics({"q": pool("ab", [1, 2])}, {})
    assert found["before"][MAIN] == found["after"][MAIN] == found["depths"] == []
    assert found["ceiling"][MAIN] is None
    found = economics({"q": pool("", [])}, {"q": {"a": 1}})
    assert (found["before"][MAIN], found["after"][MAIN], found["depths"]) == ([0.0], [0.0], [])


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([50], (10, 20, 30, 50)), ([24, 7], (10, 20, 24)), ([200], (10, 20, 30, 50, 100, 200)), ([4], (4,))],
)
def test_depths_end_with_the_largest_pool(sizes: list[int], expected: tuple[int, ...]) -> None:
    pools = [Pool(ranking(*(f"d{i}" for i in range(n))), tuple([0.0] * n), n) for n in sizes]
    assert depths_of(pools) == expected
    assert depths_of([]) == depths_of([pool("", [])]) == ()


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Pool], dict[str, dict[str, int]], int]:
    pools, relevance = {}, {}
    for query in ("q1", "q2", "q3"):
        n = draw(st.integers(0, 70))
        size = min(n, draw(st.integers(1, 60)))
        ids = draw(st.permutations([f"d{i}" for i in range(n)]))
        scores = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, math.nan]), min_size=size, max_size=size))
        pools[query] = Pool(ranking(*ids), tuple(scores), size)
        relevance[query] = draw(
            st.dictionaries(st.sampled_from([f"d{i}" for i in range(80)]), st.integers(0, 3), max_size=6)
        )
    return pools, relevance, draw(st.sampled_from([3, 10, 100]))


@given(cases(), st.sampled_from(["scores", "ranks"]))
def test_it_is_the_judgement_of_the_reordered_run(
    case: tuple[dict[str, Pool], dict[str, dict[str, int]], int], mix: str
) -> None:
    """Before and after are what judging the two runs gives; no depth's figure exceeds the ceiling."""
    pools, relevance, k = case
    runs: dict[str, dict[str, Ranking]] = {"before": {}, "after": {}}
    for query, one in pools.items():
        order: list[str] = []
        if one.size:
            head = one.fused.top(one.size)
            again = reorder(head, one.scores or ()).ranking
            order += (again if mix == "scores" else interpolate(head, again)).doc_ids
        order += one.fused.doc_ids[one.size :]
        runs["before"][query] = one.fused.top(k) if len(one.fused) else one.fused
        runs["after"][query] = ranking(*order[:k])
    found = economics(pools, relevance, mix=mix, k=k)
    for side, lists in runs.items():
        judged = judge(Run(side, lists), relevance, METRICS)
        for name in METRICS:
            assert found[side][name] == judged.values[name].tolist()
    for name in METRICS:
        values = [found[side][name] for side in runs]
        assert all(np.mean(v) <= found["ceiling"][name] + 1e-12 for v in values if v)
    counts = found["fates"]
    assert counts["relevant"] == counts["not_in_pool"] + counts["below_top"] + counts["in_top"]
    if found["depths"]:
        assert found["depths"][-1]["per_query"] == found["after"][MAIN]
        mean = found["depths"][-1]["means"][MAIN]
        assert mean == (float(np.mean(found["after"][MAIN])) if found["after"][MAIN] else None)


def test_a_reranker_that_knows_reaches_the_ceiling() -> None:
    relevance = {"q": {"c": 2, "d": 1}}
    found = economics({"q": pool("abcd", [0, 0, 2, 1])}, relevance)
    assert {name: values[0] for name, values in found["after"].items()} == found["ceiling"]


def test_quality_of_a_missing_list_is_nought() -> None:
    assert quality({}, {"q": {"a": 1}}, ["mrr@10"]) == {"mrr@10": [0.0]}


def test_share_of_p95_by_hand() -> None:
    """40 queries of 10 ms, 8 of them reranking: what is left is 2 ms."""
    assert share_of_p95([0.010] * 40, [0.008] * 40) == pytest.approx(0.8)
    assert share_of_p95([0.010] * 40 + [math.nan], [0.008] * 40 + [math.nan]) == pytest.approx(0.8)
    assert share_of_p95([0.010] * 19, [0.008] * 19) is None
    assert share_of_p95([0.0] * 20, [0.0] * 20) is None


def test_points_per_ms_by_hand() -> None:
    assert points_per_ms(0.05, 0.1) == pytest.approx(0.05)  # five points for 100 ms
    assert points_per_ms(-0.02, 0.2) == pytest.approx(-0.01)
    assert points_per_ms(None, 0.1) is points_per_ms(0.1, None) is points_per_ms(0.1, 0.0) is None

"""Fusion by scores, adaptive weights, and what every method owes."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.fusion import METHODS, Evidence, Leg, adaptive, convex, fuse, relative, rrf, zscore
from rag_core.types import Ranking

BY_SCORES = METHODS[1:]


def leg(name: str = "vector", /, **scores: float) -> Leg:
    return Leg(name, Ranking.from_scores(scores))


def words(coverage: float, n_documents: int = 1000, depth: int | None = 100, /, **scores: float) -> Leg:
    return Leg("bm25", Ranking.from_scores(scores), Evidence(coverage, n_documents), depth)


def noisy(n: int = 100, peak: float = 0.0) -> Leg:
    """A list whose best document stands out by ``peak`` of its width."""
    scores = {f"v{i:03d}": 1 - i / n for i in range(n)}
    scores["v000"] += peak
    return Leg("vector", Ranking.from_scores(scores))


def test_relative_by_hand() -> None:
    fused = relative([leg(a=3.0, b=2.0, c=1.0), leg(c=9.0, d=5.0)])
    assert dict(zip(fused.ranking.doc_ids, fused.ranking.scores)) == pytest.approx(
        {"a": 0.5, "b": 0.25, "c": 0.5, "d": 0.0}
    )


def test_zscore_by_hand() -> None:
    fused = zscore([leg(a=3.0, b=1.0), leg(b=10.0, c=0.0)])
    # (1 - 1) / 2 of b, (1 - 1) / 2 of a, which the second list does not have, and -1 twice of c
    assert fused.ranking.doc_ids == ("b", "a", "c")
    assert fused.ranking.scores == pytest.approx((0.0, 0.0, -1.0))


def test_zscore_fills_a_whole_lexical_list_with_zeros() -> None:
    fused = zscore([words(1.0, 4, 100, a=2.0)])
    deviation = math.sqrt((1.5**2 + 3 * 0.5**2) / 4)
    assert fused.ranking.scores == pytest.approx((1.5 / deviation,))
    assert fused.missing == pytest.approx((-0.5 / deviation,))


def test_a_list_cut_at_its_depth_is_not_filled() -> None:
    assert zscore([words(1.0, 1000, 2, a=2.0, b=1.0)]).missing == (-1.0,)


def test_convex_measures_from_the_floor() -> None:
    near = Leg("vector", Ranking.from_scores({"a": 0.6, "b": 0.2}), floor=-1.0)
    fused = convex([near, words(0.5, 9, a=1.0, c=4.0)], (0.8, 0.2))
    assert dict(zip(fused.ranking.doc_ids, fused.ranking.scores)) == pytest.approx(
        {"a": 0.8 + 0.2 / 4, "b": 0.8 * 1.2 / 1.6, "c": 0.8 * 1.2 / 1.6 + 0.2}
    )


def test_adaptive_weights_by_hand() -> None:
    near, found = noisy(peak=2.0), words(0.5, 999, v007=6.0, w1=2.0)
    fused = adaptive([near, found])
    scores = near.ranking.scores
    mean = sum(scores) / 100
    peak = (scores[0] - mean) / math.sqrt(sum((s - mean) ** 2 for s in scores) / 100)
    evidence = (peak**2 / (4 * math.log(100)), 0.5 * 6 / math.log(1000))
    total = evidence[0] ** 2 + evidence[1] ** 2
    assert fused.weights == pytest.approx((evidence[0] ** 2 / total, evidence[1] ** 2 / total))


def test_adaptive_spreads_the_weight_of_each_leg_over_all_candidates() -> None:
    fused = adaptive([noisy(peak=1.0), words(0.4, 200, v003=3.0, w1=3.0)])
    assert len(fused.ranking) == 101
    for points, missing, weight in zip(fused.points, fused.missing, fused.weights):
        assert math.fsum(points.values()) + missing * (101 - len(points)) == pytest.approx(weight)
    for hit in fused.ranking:
        assert sum(fused.parts(hit.doc_id).values()) == pytest.approx(hit.score)


def test_words_the_corpus_does_not_have_take_weight_from_the_lexical_leg() -> None:
    weights = [adaptive([noisy(), words(c, v090=5.0, w1=4.0)]).weights[1] for c in (0.0, 0.1, 0.5, 1.0)]
    assert weights[0] == 0
    assert weights == sorted(weights)
    assert weights[-1] > 0.5


def test_a_vector_list_that_tells_nothing_apart_counts_nothing() -> None:
    flat = Leg("vector", Ranking.from_scores((f"v{i}", 0.5) for i in range(50)))
    fused = adaptive([flat, words(0.2, w1=2.0, v3=1.0)])
    assert fused.weights == (0.0, 1.0)
    assert fused.ranking.doc_ids[:2] == ("w1", "v3")


def test_without_any_evidence_legs_are_alike() -> None:
    fused = adaptive([leg(a=1.0), leg("other", b=1.0)])
    assert fused.weights == (0.5, 0.5)
    assert fused.ranking.doc_ids == ("b", "a")


def test_tiny_evidence_does_not_vanish() -> None:
    fused = adaptive([words(1e-200, a=1.0), words(2e-200, b=1.0)])
    assert fused.weights == pytest.approx((0.2, 0.8))


def test_adaptive_says_why() -> None:
    described = adaptive([noisy(peak=1.0), words(0.25, 99, w1=2.0)]).describe()
    assert described["method"] == "adaptive"
    why = described["why"]
    assert isinstance(why, dict)
    assert "25% of the query's idf mass" in why["bm25"]
    assert "deviations above its list" in why["vector"]
    empty = adaptive([leg(), words(1.0, w1=1.0)])
    assert empty.reasons[0] == "found nothing"


def test_three_legs() -> None:
    fused = adaptive([noisy(peak=2.0), noisy(peak=0.5), words(0.9, v000=4.0, v001=1.0)])
    assert sum(fused.weights) == pytest.approx(1)
    assert fused.weights[0] > fused.weights[1]
    assert fused.ranking.doc_ids[0] == "v000"


def test_rrf_through_fuse_is_rrf() -> None:
    legs = [leg(a=2.0, b=1.0), leg(b=2.0, c=1.0)]
    fused = fuse(legs, k=10, weights=(2, 1))
    assert fused.ranking == rrf([one.ranking for one in legs], 10, (2, 1))
    assert fused.parts("b") == {"vector": 1 / 11}  # two legs of one name: the later stands
    assert fused.weights == (2.0, 1.0)


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="rrf, relative, zscore, convex, adaptive"):
        fuse([], "best")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", [[-1, 1], [math.nan, 1], [math.inf, 1], [1], [1, 1, 1], [0, 0]])
def test_bad_weights_are_refused(method: str, weights: list[float]) -> None:
    """O26."""
    with pytest.raises(InvalidArgumentError, match=f"{method}: .*weight"):
        fuse([leg(a=1.0), leg(b=1.0)], method, weights=weights)


@pytest.mark.parametrize("method", METHODS)
def test_weights_decide(method: str) -> None:
    """O26."""
    legs = [leg("one", a=1.0, b=0.5, c=0.2), leg("two", b=1.0, a=0.5, c=0.2)]
    assert fuse(legs, method, weights=(4, 1)).ranking.doc_ids[0] == "a"
    assert fuse(legs, method, weights=(1, 4)).ranking.doc_ids[0] == "b"
    assert fuse([leg(a=1.0), leg(b=1.0)], method, weights=(1, 0)).ranking.doc_ids == ("a",)
    assert fuse([leg(a=1.0), leg(b=1.0)], method, weights=(0, 1)).ranking.doc_ids == ("b",)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_leg_changes_nothing(method: str) -> None:
    """O28: with no lexical hit the order is that of the vectors, fields and types as ever."""
    near = noisy(50, peak=1.0)
    for empty in (leg("bm25"), words(0.0)):
        fused = fuse([near, empty], method)
        assert fused.ranking.doc_ids == near.ranking.doc_ids
        assert set(fused.parts("v000")) == {"vector", "bm25"}


@pytest.mark.parametrize("method", METHODS)
def test_no_legs(method: str) -> None:
    assert fuse([], method).ranking.doc_ids == ()
    assert fuse([leg()], method).ranking.doc_ids == ()


@pytest.mark.parametrize("method", METHODS)
def test_ties_go_by_id_descending(method: str) -> None:
    """O27: lists [x, y] and [y, x]."""
    legs = [leg(x=2.0, y=1.0), leg(y=2.0, x=1.0)]
    assert fuse(legs, method).ranking.doc_ids == ("y", "x")
    assert fuse(legs[::-1], method).ranking.doc_ids == ("y", "x")


IDS = [f"d{i}" for i in range(12)]
SCORES = st.dictionaries(st.sampled_from(IDS), st.floats(-50, 50).map(lambda x: round(x, 3)), max_size=12)
COVERAGE = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def legs_of(draw: st.DrawFn) -> list[Leg]:
    legs = []
    for number in range(draw(st.integers(1, 4))):
        scores, coverage = draw(SCORES), draw(COVERAGE)
        known = None
        if coverage is not None:  # a lexical leg, whose scores are never negative
            scores, known = {d: abs(s) + 0.001 for d, s in scores.items()}, Evidence(coverage, 20)
        legs.append(
            Leg(f"leg{number}", Ranking.from_scores(scores), known, draw(st.sampled_from([None, 30])))
        )
    return legs


@given(legs_of(), st.randoms(use_true_random=False), st.sampled_from(METHODS))
def test_the_order_of_the_legs_changes_no_bit(legs: list[Leg], random: object, method: str) -> None:
    """O27."""
    shuffled = list(legs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = fuse(legs, method), fuse(shuffled, method)
    assert one.ranking == other.ranking
    assert dict(zip(one.legs, one.weights)) == dict(zip(other.legs, other.weights))


@given(legs_of(), st.sampled_from(METHODS))
def test_better_in_every_leg_is_never_below(legs: list[Leg], method: str) -> None:
    """O28, among others: of hits that one leg alone found, better ones stand above."""
    fused = dict(zip(*_columns(fuse(legs, method).ranking)))
    lists = [dict(zip(*_columns(one.ranking))) for one in legs]
    for a in fused:
        for b in fused:
            if all(d.get(a, -math.inf) >= d.get(b, -math.inf) for d in lists) and (
                method != "rrf" or all(a not in d or d[a] != d.get(b) for d in lists)
            ):
                assert fused[a] >= fused[b]


def _columns(ranking: Ranking) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return ranking.doc_ids, ranking.scores


@given(legs_of(), st.sampled_from(BY_SCORES))
def test_every_listed_document_is_ranked_once_with_a_finite_score(legs: list[Leg], method: str) -> None:
    ranking = fuse(legs, method).ranking
    assert set(ranking.doc_ids) == {d for one in legs for d in one.ranking.doc_ids}
    assert all(map(math.isfinite, ranking.scores))


SCRIPT = """
from rag_core.fusion import METHODS, Evidence, Leg, fuse
from rag_core.types import Ranking
def legs(ids):
    near = Ranking.from_scores((d, 1.0) for d in ids)
    words = Ranking.from_scores((d, 2.0 + len(d) % 3) for d in ids if d.endswith("7"))
    return [Leg("vector", near), Leg("bm25", words, Evidence(0.4, 300), 100)]
for method in METHODS:
    found = fuse(legs({f"d{i}" for i in range(200)}), method)
    print(found.ranking.doc_ids, found.ranking.scores, found.weights)
"""


def test_the_hash_seed_does_not_matter() -> None:
    """O27: 200 documents in the order of a set, several processes; scores and order to the last digit."""
    outputs = set()
    for seed in range(4):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert next(iter(outputs)).count("\n") == len(METHODS)

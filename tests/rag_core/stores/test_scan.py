"""Candidates of the exact scan: nothing that belongs in the answer is left out, one query or many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError
from rag_core.fingerprint import Fingerprint
from rag_core.packed import PackedStrings
from rag_core.stores import scan
from rag_core.stores.flat import FlatStore
from rag_core.types import EMPTY_RANKING


def identity(dim: int) -> Fingerprint:
    return Fingerprint("fake", "m", "1", dim, "fp32", "mean")


def unit_rows(n: int, dim: int, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


@given(
    n=st.integers(1, 3000),
    k=st.integers(1, 3000),
    levels=st.sampled_from([1, 3, 1000]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_k_scores_reach_the_threshold(n: int, k: int, levels: int, seed: int) -> None:
    k = min(k, n)
    scores = np.random.default_rng(seed).integers(0, levels, n).astype(np.float32)
    least = scan.threshold(scores, k)
    assert np.count_nonzero(scores >= least) >= k
    assert least <= np.sort(scores)[::-1][k - 1]


def test_the_threshold_of_many_scores_lets_few_more_pass() -> None:
    scores = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    assert 50 <= np.count_nonzero(scores >= scan.threshold(scores, 50)) <= 60


@given(
    n=st.integers(1, 700),
    k=st.integers(1, 40),
    queries=st.integers(1, 5),
    share=st.sampled_from([None, 0.02, 0.7]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_near_holds_the_best_of_the_allowed(
    n: int, k: int, queries: int, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors, units = unit_rows(n, 8, seed), unit_rows(queries, 8, seed + 1)
    allowed = None if share is None else np.flatnonzero(rng.random(n) < share)
    if allowed is not None and not allowed.size:
        allowed = np.array([0])
    pool = np.arange(n) if allowed is None else allowed
    many = scan.near_many(vectors, units, k, allowed)
    for unit, together in zip(units, many):
        exact = vectors[pool].astype(np.float64) @ unit
        best = set(pool[np.argsort(-exact)[:k]].tolist())
        for found in (scan.near(vectors, unit, k, allowed), together):
            assert best <= set(found.tolist()) <= set(pool.tolist())
            assert np.all(np.diff(found) > 0)


@pytest.mark.parametrize("where", [None, {"part": 3}, {"part": {"$ne": 3}}])
def test_many_queries_answer_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, object] | None
) -> None:
    """Bit for bit, over several blocks of rows, several batches of queries and a blank query."""
    monkeypatch.setattr(scan, "BLOCK_ROWS", 640)
    monkeypatch.setattr(scan, "PRODUCT_ROWS", 100)
    monkeypatch.setattr(scan, "BATCH", 4)
    monkeypatch.setattr(scan, "COPIED_BYTES", 4 * 16 * 100)
    store = FlatStore.create(tmp_path, identity(16))
    rows = unit_rows(3000, 16)
    rows[7:2900:29] = rows[3]  # ties over many blocks
    store.upsert([f"d{n}" for n in range(3000)], rows, [{"part": n % 10} for n in range(3000)])
    queries = unit_rows(9, 16, seed=5)
    queries[2], queries[4] = 0, rows[3]
    for k in (1, 5, 200, 4000):
        together = store.search_many(queries, k, where)
        assert together == [store.search(query, k, where) for query in queries]
        assert together[2] == EMPTY_RANKING


def test_many_queries_are_checked_as_one_is(tmp_path: Path) -> None:
    store = FlatStore.create(tmp_path, identity(4))
    assert store.search_many(unit_rows(2, 4), 3) == [EMPTY_RANKING] * 2
    store.upsert(["a"], unit_rows(1, 4), [{"x": 1}])
    assert store.search_many(unit_rows(2, 4), 3, {"x": 2}) == [EMPTY_RANKING] * 2
    assert store.search_many(np.zeros((0, 4), np.float32), 3) == []
    with pytest.raises(InvalidArgumentError, match="5 wide"):
        store.search_many(unit_rows(2, 5), 3)
    with pytest.raises(InvalidArgumentError, match="k is 0"):
        store.search_many(unit_rows(2, 4), 0)


def test_the_best_of_more_candidates_than_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, unit = unit_rows(50, 8), unit_rows(1, 8, seed=3)[0]
    ids = PackedStrings.pack([f"d{n}" for n in range(50)])
    whole = scan.best_of(ids, vectors, np.arange(50), unit, 12)
    monkeypatch.setattr(scan, "RESCORED_ROWS", 7)
    assert scan.best_of(ids, vectors, np.arange(50), unit, 12) == whole
    assert scan.best_of(ids, vectors, np.arange(0), unit, 12) == EMPTY_RANKING

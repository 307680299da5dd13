"""An index that grew by many small writes is learned anew before searches have many parts to look into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store
from rag_core.stores.lancedb import MOST_PARTS

pytestmark = pytest.mark.stores_external
DIM = 16


def test_parts_are_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    identity = Fingerprint("fake", "m", "1", DIM, "fp32", "mean")
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "store", identity)
    exact = create_store("flat", tmp_path / "flat", identity)
    parts, n = [], 0
    while n < 1200:
        rows = rng.standard_normal((300 if not n else 1 + n // 8, DIM)).astype(np.float32)
        for to in (store, exact):
            to.upsert([f"d{n + i:05}" for i in range(len(rows))], rows)
        n += len(rows)
        parts.append(store._table.index_stats("vector_idx").num_indices)
    assert parts[0] == 1
    assert max(parts) == MOST_PARTS
    assert 1 in parts[parts.index(MOST_PARTS) :], "learned anew"
    assert store.count() == n
    queries = rng.standard_normal((20, DIM)).astype(np.float32)
    hits = [len({*store.search(q, 10).doc_ids} & {*exact.search(q, 10).doc_ids}) for q in queries]
    assert np.mean(hits) >= 9.5


def test_rows_above_all_others_are_appended_and_all_others_replaced(tmp_path: Path) -> None:
    """What another object has written in between is seen: nothing stands twice."""
    rows, identity = np.eye(DIM, dtype=np.float32), Fingerprint("fake", "m", "1", DIM, "fp32", "mean")
    one = create_store("lancedb", tmp_path / "s", identity)
    other = open_store("lancedb", tmp_path / "s", identity)
    one.upsert(["a", "b"], rows[:2])
    one.upsert(["c"], rows[2:3])
    other.upsert(["d"], rows[3:4])
    one.upsert(["d", "e"], rows[4:6])
    one.upsert(["c", "f"], rows[6:8])
    one.delete(["f"])
    one.upsert(["f"], rows[8:9])
    assert one.count() == 6
    found = one.vectors_of(["a", "b", "c", "d", "e", "f"])  # type: ignore[attr-defined]
    assert found.argmax(1).tolist() == [0, 1, 6, 4, 5, 8]

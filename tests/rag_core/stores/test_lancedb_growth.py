"""An index that grew by many small writes is learned anew before searches have many parts to look into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store
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

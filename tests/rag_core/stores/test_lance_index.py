"""The index of vectors: by size, learned anew before it has many parts, once for many writes, elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rag_core import Document, get_embedder
from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index import Index
from rag_core.stores import create_store, open_store
from rag_core.stores.lance_index import INDEXES, MOST_PARTS, Upkeep, index_for, index_of, sub_vectors
from rag_core.stores.lancedb import TIDY_AFTER

DIM = 16
IDENTITY = Fingerprint("fake", "m", "1", DIM, "fp32", "mean")


def rows_of(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, DIM)).astype(np.float32)


def names(start: int, n: int) -> list[str]:
    return [f"d{i:05}" for i in range(start, start + n)]


def test_the_index_follows_the_size_unless_it_is_named() -> None:
    kinds = [index_for("auto", n) for n in (0, 99_999, 100_000, 10**8)]
    assert kinds == ["flat", "flat", "hnsw_sq", "ivf_pq"]
    assert {index_for(kind, 10**8) for kind in INDEXES} == set(INDEXES)
    assert [sub_vectors(dim) for dim in (1, 8, 97, 100, 384, 3072)] == [1, 1, 1, 10, 48, 384]


@pytest.mark.stores_external
def test_many_writes_build_one_index_after_the_last(tmp_path: Path) -> None:
    rows, made = rows_of(600), list[Upkeep]()
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "s", IDENTITY)

    def noted(upkeep: Callable[[], None]) -> None:
        assert isinstance(upkeep, Upkeep)
        made.append(upkeep)
        upkeep()

    with store.bulk(noted):  # type: ignore[attr-defined]
        for start in (0, 300):
            store.upsert(names(start, 300), rows[start : start + 300])
            assert index_of(store._table) == "flat"
            assert store.search(rows[start], 1).doc_ids == (f"d{start:05}",)
        assert not made
    assert made == [Upkeep(str(tmp_path / "s"), "hnsw_sq", DIM, is_learned=True)]
    assert index_of(store._table) == "hnsw_sq"
    assert store._table.index_stats("vector_idx").num_unindexed_rows == 0
    with store.bulk(noted):  # type: ignore[attr-defined]  # too few for the index to take them in
        store.upsert(names(600, 10), rows_of(10))
    assert len(made) == 1
    with store.bulk(noted):  # type: ignore[attr-defined]
        store.upsert(names(610, 90), rows_of(90))
    assert made[1:] == [Upkeep(str(tmp_path / "s"), "hnsw_sq", DIM, is_learned=False)]
    assert store._table.index_stats("vector_idx").num_unindexed_rows == 0
    assert store.count() == 700


@pytest.mark.stores_external
def test_nothing_is_built_of_writes_that_failed(tmp_path: Path) -> None:
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "s", IDENTITY)

    def writes_and_fails() -> None:
        with store.bulk():  # type: ignore[attr-defined]
            store.upsert(names(0, 300), rows_of(300))
            store.upsert([""], rows_of(1))

    with pytest.raises(InvalidArgumentError):
        writes_and_fails()
    assert (store.count(), index_of(store._table)) == (300, "flat")
    store.upsert(["one"], rows_of(1))
    assert index_of(store._table) == "hnsw_sq"


@pytest.mark.stores_external
@pytest.mark.parametrize("index", ["flat", "hnsw_sq"])
def test_small_files_are_joined_after_a_bulk(index: str, tmp_path: Path) -> None:
    store = create_store(f"lancedb?index={index}", tmp_path / "s", IDENTITY)
    store.upsert(names(0, 400), rows_of(400))
    with store.bulk():  # type: ignore[attr-defined]
        for at in range(TIDY_AFTER + 1):
            store.upsert([f"e{at:05}"], rows_of(1))
    assert store._table.stats()["fragment_stats"]["num_fragments"] < 10
    assert (store.count(), index_of(store._table)) == (401 + TIDY_AFTER, index)


@pytest.mark.stores_external
def test_an_index_that_cannot_be_built_is_an_error_of_the_store(tmp_path: Path) -> None:
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "s", IDENTITY)

    def refuses(upkeep: Callable[[], None]) -> None:
        raise OSError("no space left")

    with (
        pytest.raises(StoreError, match="lancedb could not index: no space left"),
        store.bulk(refuses),  # type: ignore[attr-defined]
    ):
        store.upsert(names(0, 300), rows_of(300))


@pytest.mark.stores_external
def test_an_index_of_documents_tells_when_vectors_are_indexed(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i", get_embedder("fake"), store="lancedb?index=hnsw_sq")
    stages: list[str] = []
    documents = [Document(f"d{i}", f"ferry number {i}") for i in range(300)]
    index.ingest(documents, progress=lambda stage, done, total: stages.append(stage))
    assert stages.count("index vectors") == 1
    assert index_of(index._version.store.store._table) == "hnsw_sq"  # type: ignore[attr-defined]


@pytest.mark.stores_external
def test_a_reader_asks_the_index_that_a_writer_has_built_since(tmp_path: Path) -> None:
    documents = [Document(f"d{i}", f"ferry number {i}") for i in range(300)]
    writer = Index.create(tmp_path / "i", get_embedder("fake"), store="lancedb?index=ivf_pq")
    writer.ingest(documents[:10])
    reader = Index.open(tmp_path / "i", get_embedder("fake"))
    store = reader._version.store.store
    writer.ingest(documents)
    assert reader.refresh()
    assert reader._version.store.store is store
    assert store._index == "ivf_pq"  # type: ignore[attr-defined]
    assert reader.store.search(get_embedder("fake").embed(["ferry number 7"])[0], 1).doc_ids == ("d7",)


@pytest.mark.stores_external
def test_parts_are_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "store", IDENTITY)
    exact = create_store("flat", tmp_path / "flat", IDENTITY)
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


@pytest.mark.stores_external
def test_rows_above_all_others_are_appended_and_all_others_replaced(tmp_path: Path) -> None:
    """What another object has written in between is seen: nothing stands twice."""
    rows = np.eye(DIM, dtype=np.float32)
    one = create_store("lancedb", tmp_path / "s", IDENTITY)
    other = open_store("lancedb", tmp_path / "s", IDENTITY)
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

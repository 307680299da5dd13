"""The exact store's files: written in blocks, mapped, and read in the form they had first."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores import flat, flatrows, scan
from rag_core.stores.flat import MANIFEST, FlatStore

DIM = 4
IDENTITY = Fingerprint("fake", "m", "1", DIM, "fp32", "mean")
STEP = st.tuples(
    st.sampled_from(["upsert", "delete"]), st.lists(st.integers(0, 30), max_size=12, unique=True)
)


@given(steps=st.lists(STEP, max_size=6))
@settings(max_examples=25, deadline=None)
def test_any_writes_leave_what_a_dict_would_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Over blocks of two rows, reopened after every write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat, "COPIED_BYTES", 2 * 4 * DIM)
        patch.setattr(flatrows, "COPIED_BYTES", 3)
        path = tmp_path_factory.mktemp("flat")
        store = FlatStore.create(path, IDENTITY)
        rng, held = np.random.default_rng(0), dict[str, tuple[list[float], int]]()
        for number, (kind, numbers) in enumerate(steps):
            ids = [f"d{n}" for n in numbers]
            if kind == "delete":
                assert store.delete(ids) == len(held.keys() & set(ids))
                held = {doc_id: row for doc_id, row in held.items() if doc_id not in ids}
            else:
                rows = rng.standard_normal((len(ids), DIM)).astype(np.float32)
                store.upsert(ids, rows, [{"step": number}] * len(ids))
                held |= {doc_id: (row, number) for doc_id, row in zip(ids, rows.tolist())}
            store.close()
            store = FlatStore.open(path)
            assert store.ids == tuple(held)
            for step in range(number + 1):
                matching = {doc_id for doc_id, (_, at) in held.items() if at == step}
                assert set(store.search(np.ones(DIM), 99, {"step": step}).doc_ids) == matching
            if held:
                raw = np.array([row for row, _ in held.values()])
                rows = raw / np.linalg.norm(raw, axis=1, keepdims=True)
                assert np.allclose(store.vectors_of(list(held)), rows, rtol=0, atol=1e-6)


def as_written_first(path: Path, n: int) -> np.ndarray:
    """A store in the form that had its rows in one JSON file."""
    rows = np.random.default_rng(3).standard_normal((n, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    path.mkdir()
    np.save(path / "vectors-3.npy", rows)
    described = {"ids": [f"d{n}" for n in range(n)], "metadata": [{"n": n} for n in range(n)]}
    (path / "rows-3.json").write_text(json.dumps(described))
    manifest = {
        "format": 1,
        "generation": 3,
        "count": n,
        "identity": IDENTITY.as_dict(),
        "files": {"vectors": "vectors-3.npy", "rows": "rows-3.json"},
    }
    (path / MANIFEST).write_text(json.dumps(manifest))
    return rows


def test_a_store_of_the_first_format_opens_and_is_written_anew(tmp_path: Path) -> None:
    rows = as_written_first(tmp_path / "s", 5)
    store = FlatStore.open(tmp_path / "s", IDENTITY)
    assert store.search(rows[2], 1).doc_ids == ("d2",)
    assert store.search(rows[2], 5, {"n": 4}).doc_ids == ("d4",)
    store.delete(["d0"])
    assert json.loads((tmp_path / "s" / MANIFEST).read_text())["format"] == 2
    assert FlatStore.open(tmp_path / "s").ids == ("d1", "d2", "d3", "d4")
    assert not list((tmp_path / "s").glob("*.json.*")) + list((tmp_path / "s").glob("rows-3*"))


def test_a_damaged_store_of_the_first_format_is_reported(tmp_path: Path) -> None:
    as_written_first(tmp_path / "s", 5)
    (tmp_path / "s" / "rows-3.json").write_text('{"ids": ["a"], "metadata": [{}]}')
    with pytest.raises(StoreError, match="1 ids and vectors of shape"):
        FlatStore.open(tmp_path / "s")


def peak_bytes(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_neither_searching_nor_writing_holds_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20,000 x 256, 20 MB: a search, a filtered one, a batch, an update and a deletion take a tenth."""
    for module in (flat, scan, flatrows):
        monkeypatch.setattr(module, "COPIED_BYTES", 1 << 18)
    monkeypatch.setattr(scan, "BLOCK_ROWS", 1 << 11)
    identity = Fingerprint("fake", "m", "1", 256, "fp32", "mean")
    rows = np.random.default_rng(0).standard_normal((20_000, 256)).astype(np.float32)
    FlatStore.create(tmp_path, identity).upsert(
        [f"d{n}" for n in range(20_000)], rows, [{"part": n % 20} for n in range(20_000)]
    )
    store = FlatStore.open(tmp_path)
    for call in (
        lambda: store.search(rows[0], 50),
        lambda: store.search(rows[0], 50, {"part": 3}),
        lambda: store.search(rows[0], 50, {"part": {"$ne": 3}}),
        lambda: store.search_many(rows[:8], 50),
        lambda: store.search_many(rows[:8], 50, {"part": 3}),
        lambda: store.upsert(["d5", "new"], rows[:2]),
        lambda: store.delete(["d7", "d9"]),
    ):
        assert peak_bytes(call) < rows.nbytes / 10
    assert isinstance(store._vectors.base, np.memmap)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_whoever_the_umask_lets_read_can_read_all_of_a_store(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = FlatStore.create(tmp_path / "store", IDENTITY, scan="int8")
        store.upsert(["a"], np.ones((1, DIM), np.float32))
    finally:
        os.umask(before)
    modes = {found.name: found.stat().st_mode & 0o777 for found in (tmp_path / "store").iterdir()}
    assert len(modes) == 4
    assert set(modes.values()) == {0o644}

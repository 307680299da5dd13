"""The exact store: search, writes, damage. The shared behaviour of stores is in the conformance kit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.errors import IdentityMismatchError, InvalidArgumentError, StoreError, UnknownNameError
from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store
from rag_core.stores.flat import MANIFEST, FlatStore
from rag_core.stores.flatrows import Change, FlatRows
from rag_core.types import Ranking


def identity(dim: int = 4, provider: str = "fake") -> Fingerprint:
    return Fingerprint(provider, "m", "1", dim, "fp32", "mean")


def unit(*rows: list[float]) -> np.ndarray:
    matrix = np.array(rows, np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


@pytest.fixture
def store(tmp_path: Path) -> FlatStore:
    made = FlatStore.create(tmp_path / "s", identity())
    made.upsert(
        ["a", "b", "c"], unit([1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]), [{"n": 1}, {"n": 2}, {"n": 3}]
    )
    return made


def test_the_nearest_row_comes_first_with_its_cosine(store: FlatStore) -> None:
    ranking = store.search(np.array([2, 0, 0, 0], np.float32), 2)
    assert ranking.doc_ids == ("a", "b")
    assert ranking.scores == pytest.approx((1.0, 0.5**0.5), abs=1e-7)


def test_equal_rows_score_equally_and_follow_the_tie_rule(tmp_path: Path) -> None:
    """O27, O28: the same vector in many rows gives one score, and ids descending decide at the cut."""
    made = FlatStore.create(tmp_path, identity(37))
    row = np.random.default_rng(0).normal(size=(1, 37)).astype(np.float32)
    made.upsert([f"d{i:02}" for i in range(33)], np.repeat(row, 33, axis=0))
    ranking = made.search(row[0], 5)
    assert ranking.doc_ids == ("d32", "d31", "d30", "d29", "d28")
    assert len(set(ranking.scores)) == 1


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 40),
    k=st.integers(1, 50),
    levels=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_search_equals_a_full_sort(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, k: int, levels: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-levels, levels + 1, size=(rows, 4)).astype(np.float32)
    vectors[np.linalg.norm(vectors, axis=1) == 0, 0] = 1
    made = FlatStore.create(tmp_path_factory.mktemp("flat") / "s", identity())
    ids = [f"d{i}" for i in range(rows)]
    made.upsert(ids, vectors)
    query = np.array([1, 2, -1, 0.5], np.float32)
    stored = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    exact = stored.astype(np.float32).astype(np.float64) @ (query / np.linalg.norm(query.astype(np.float64)))
    expected = Ranking.from_scores(zip(ids, exact), k)
    found = made.search(query, k)
    assert found.scores == pytest.approx(expected.scores, abs=1e-6)
    assert len(found) == min(k, rows)


def test_filters_are_applied_before_the_cut(store: FlatStore) -> None:
    query = np.array([1, 0, 0, 0], np.float32)
    assert store.search(query, 1, {"n": {"$gte": 2}}).doc_ids == ("b",)
    assert store.search(query, 1, {"n": 9}) == Ranking.from_scores(())


def test_a_filter_is_worked_out_again_after_a_write(store: FlatStore) -> None:
    query = np.array([0, 0, 1, 0], np.float32)
    assert store.search(query, 5, {"n": 3}).doc_ids == ("c",)
    store.upsert(["a"], unit([0, 0, 1, 0]), [{"n": 3}])
    assert store.search(query, 5, {"n": 3}).doc_ids == ("c", "a")


def test_masks_are_bounded(store: FlatStore) -> None:
    query = np.array([1, 0, 0, 0], np.float32)
    for n in range(300):
        store.search(query, 1, {"n": n})
    assert len(store._masks) == 256


def test_a_blank_query_is_near_nothing(store: FlatStore) -> None:
    assert len(store.search(np.zeros(4, np.float32), 3)) == 0


def test_upsert_without_metadata_empties_it(store: FlatStore) -> None:
    store.upsert(["a"], unit([1, 0, 0, 0]))
    assert store.search(np.array([1, 0, 0, 0], np.float32), 9, {"n": 1}).doc_ids == ()


@pytest.mark.parametrize(
    ("ids", "vectors", "metadata", "words"),
    [
        (["x", "x"], unit([1, 0, 0, 0], [0, 1, 0, 0]), None, "distinct"),
        ([""], unit([1, 0, 0, 0]), None, "non-empty"),
        (["x"], unit([1, 0, 0, 0], [0, 1, 0, 0]), None, "shape"),
        (["x"], np.ones((1, 5), np.float32), None, "shape"),
        (["x"], np.zeros((1, 4), np.float32), None, "length 0"),
        (["x"], np.full((1, 4), np.nan, np.float32), None, "nan"),
        (["x"], unit([1, 0, 0, 0]), [{}, {}], "2 metadata for 1"),
    ],
)
def test_bad_rows_are_refused_and_nothing_changes(store: FlatStore, ids, vectors, metadata, words) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        store.upsert(ids, vectors, metadata)
    assert store.count() == 3


def test_another_width_of_the_query_names_both(store: FlatStore) -> None:
    with pytest.raises(InvalidArgumentError, match="5 wide; the store is 4 wide"):
        store.search(np.ones(5, np.float32), 1)


def test_a_closed_store_says_so(store: FlatStore) -> None:
    store.close()
    for call in (lambda: store.search(np.ones(4, np.float32), 1), lambda: store.delete(["a"])):
        with pytest.raises(StoreError, match="is closed"):
            call()


def test_create_refuses_an_existing_store(store: FlatStore) -> None:
    with pytest.raises(StoreError, match="already holds a store"):
        FlatStore.create(store.path, identity())


def test_reopened_on_a_mapped_file(store: FlatStore) -> None:
    again = FlatStore.open(store.path, identity())
    assert isinstance(again._vectors.base, np.memmap)
    assert again.ids == ("a", "b", "c")
    assert str(again.path) in repr(again)


def test_another_embedder_is_refused_by_name(store: FlatStore) -> None:
    """O33: on opening, naming both and the way out."""
    with pytest.raises(
        IdentityMismatchError,
        match=r"built with fake .*4 wide.*cohere.*dim: 4 / 8.*rag rebuild --provider cohere",
    ):
        FlatStore.open(store.path, identity(8, "cohere"))


@pytest.mark.parametrize("name", ["vectors", "rows"])
def test_a_missing_or_cut_file_is_reported(store: FlatStore, name: str) -> None:
    """O34: an empty or missing file gives one clear error, not EOFError."""
    manifest = json.loads((store.path / MANIFEST).read_text())
    file = store.path / manifest["files"][name]
    file.write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        FlatStore.open(store.path)
    file.unlink()
    with pytest.raises(StoreError, match="is damaged"):
        FlatStore.open(store.path)


def test_rows_and_vectors_that_disagree_are_damage(store: FlatStore) -> None:
    manifest = json.loads((store.path / MANIFEST).read_text())
    with (store.path / manifest["files"]["rows"]).open("wb") as stream:
        FlatRows.of([], []).write(stream, Change(added=[0]), ["a"], ["{}"])
    with pytest.raises(StoreError, match="1 ids and vectors of shape"):
        FlatStore.open(store.path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is damaged"),
        ('{"format": 99}', "format 99"),
        ("[]", "is damaged"),
        ('{"format": 1}', "damaged"),
    ],
)
def test_a_bad_manifest_is_reported(store: FlatStore, text: str, words: str) -> None:
    (store.path / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match=words):
        FlatStore.open(store.path)


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no store"):
        open_store("flat", tmp_path)


def test_unknown_store_names_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'flat'"):
        create_store("flatt", tmp_path, identity())


def test_one_generation_of_files_is_left(store: FlatStore) -> None:
    store.upsert(["d"], unit([0, 0, 0, 1]))
    assert store.delete(["d", "zzz"]) == 1
    assert len(list(store.path.iterdir())) == 3


def test_a_failed_write_leaves_the_old_version(store: FlatStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def fail(source: str, target: object) -> None:
        if str(target).endswith(MANIFEST):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        store.upsert(["d"], unit([0, 0, 0, 1]))
    monkeypatch.undo()
    assert FlatStore.open(store.path).ids == ("a", "b", "c")
    assert not list(store.path.glob("*.tmp"))


WRITER = """
import sys, numpy as np
from pathlib import Path
from rag_core.fingerprint import Fingerprint
from rag_core.stores.flat import FlatStore
store = FlatStore.open(Path(sys.argv[1]))
for n in range(10_000):
    rows = np.eye(8, dtype=np.float32)
    store.upsert([f"{n}-{i}" for i in range(8)], rows)
    if n == 0:
        print("ready", flush=True)  # on a busy machine no write may end before the kill
"""


def test_killed_at_any_moment_it_reopens_whole(tmp_path: Path) -> None:
    """O34: after kill -9 the ids with text are the ids with vector, and whole batches."""
    path = tmp_path / "s"
    FlatStore.create(path, identity(8))
    rng = np.random.default_rng(1)
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(float(rng.uniform(0.005, 0.06)))
            child.kill()
        again = FlatStore.open(path)
        assert again.count() % 8 == 0
        assert again.count() == len(set(again.ids))
    assert again.count() > 0

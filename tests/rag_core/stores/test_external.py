"""LanceDB and Chroma beyond the kit: any metadata and filter, field reports, processes, crashes, recall."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from rag_core.errors import IdentityMismatchError, InvalidArgumentError, StoreError
from rag_core.filters import compile_where
from rag_core.fingerprint import Fingerprint
from rag_core.stores import STORES, create_store, open_store
from rag_core.testing import VectorStoreConformance, oracle_ranking

pytestmark = pytest.mark.stores_external
NAMES = [name for name, spec in STORES.items() if spec.requires]
KIT = VectorStoreConformance


def identity(dim: int = 4, provider: str = "fake") -> Fingerprint:
    return Fingerprint(provider, "m", "1", dim, "fp32", "mean")


def clustered(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """Rows of length 1 around 50 centres, as texts of a few topics are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((50, dim))
    rows = centres[rng.integers(0, 50, n)] + 0.7 * rng.standard_normal((n, dim))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


#: Stores that one process at a time may open: tests/rag_core/stores/test_surrealdb.py holds them to that.
ONE_OPENER = ("surrealdb",)
SHARED_NAMES = [name for name in NAMES if name not in ONE_OPENER]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_any_filter_over_any_metadata_selects_what_flat_selects(
    name: str, tmp_path: Path, shapes: SimpleNamespace
) -> None:
    store = create_store(name, tmp_path / "s", identity())
    query = KIT.vectors(1, 4)[0]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(rows=shapes.rows, where=shapes.wheres)
    def check(rows: list[Mapping[str, Any]], where: Mapping[str, Any]) -> None:
        ids = [f"d{i}" for i in range(len(rows))]
        store.delete([f"d{i}" for i in range(len(rows), 8)])
        store.upsert(ids, KIT.vectors(len(rows), 4, seed=1), rows)
        matches = compile_where(where)
        expected = {doc_id for doc_id, metadata in zip(ids, rows) if matches(metadata)}
        assert set(store.search(query, 8, where).doc_ids) == expected

    check()
    store.close()


def test_text_of_any_kind_in_ids_and_metadata(name: str, tmp_path: Path) -> None:
    ids = ["a\0b", "a", "'; DROP TABLE rows; --", "🙂", "e\u0301", "é", "\n", " "]
    store = create_store(name, tmp_path / "s", identity(16))
    vectors = KIT.vectors(len(ids), 16)
    store.upsert(ids, vectors, [{"text": doc_id, "f\0": doc_id} for doc_id in ids])
    for row, doc_id in enumerate(ids):
        assert store.search(vectors[row], 1).doc_ids == (doc_id,)
        assert store.search(vectors[0], 9, {"text": doc_id}).doc_ids == (doc_id,)
        assert store.search(vectors[0], 9, {"f\0": doc_id}).doc_ids == (doc_id,)
    assert store.delete(["a\0b"]) == 1
    assert store.search(vectors[1], 1).doc_ids == ("a",)
    with pytest.raises(InvalidArgumentError, match="surrogate"):
        store.upsert(["\ud800"], vectors[:1])
    with pytest.raises(InvalidArgumentError, match="no JSON object"):
        store.upsert(["x"], vectors[:1], [{"when": float("nan")}])
    store.close()


def test_o23_more_or_fewer_than_there_are(name: str, tmp_path: Path) -> None:
    """O23: three rows for k = 3 and 10, the same error for 0 and -1, also with a filter."""
    store = create_store(name, tmp_path / "s", identity())
    vectors = KIT.vectors(3, 4)
    store.upsert(["a", "b", "c"], vectors, [{"n": 1}, {"n": 2}, {"n": 2}])
    for k in (3, 10, 5000):
        assert len(store.search(vectors[0], k)) == 3
        assert len(store.search(vectors[0], k, {"n": 2})) == 2
    for k in (0, -1):
        with pytest.raises(InvalidArgumentError, match="from 1"):
            store.search(vectors[0], k)
    store.close()


def test_o20_a_model_whose_name_is_no_file_name(name: str, tmp_path: Path) -> None:
    """O20: colons and slashes in the model's name and dots in the path stay inside the folder."""
    odd = Fingerprint("ollama", "../x:v1.5/BAAI", "1", 4, "fp32", "mean")
    store = create_store(name, tmp_path / "in" / "s", odd)
    store.upsert(["../../up"], KIT.vectors(1, 4))
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["s"]
    assert open_store(name, tmp_path / "in" / "s", odd).count() == 1


def test_o27_equal_rows_come_in_one_order_however_they_were_written(name: str, tmp_path: Path) -> None:
    """O27: ids descending among equal scores, for any order of writing and any cut."""
    ids = [f"t{i:03d}" for i in range(90)]
    row = KIT.vectors(1, 8)
    for seed in range(2):
        store = create_store(name, tmp_path / f"s{seed}", identity(8))
        store.upsert(list(np.random.default_rng(seed).permutation(ids)), np.tile(row, (90, 1)))
        for k in (1, 20, 89):
            assert store.search(row[0], k).doc_ids == tuple(sorted(ids, reverse=True)[:k])
        store.close()


def test_o28_the_cosines_of_the_exact_store(name: str, tmp_path: Path) -> None:
    """O28: higher is better, the document that equals the query is first, scores are those of ``flat``."""
    vectors, queries = clustered(500, 32), clustered(20, 32, seed=5)
    ids = [f"d{i}" for i in range(500)]
    stores = [create_store(kind, tmp_path / kind, identity(32)) for kind in ("flat", name)]
    for store in stores:
        store.upsert(ids, vectors)
    assert stores[1].search(vectors[7], 1).doc_ids == ("d7",)
    for query in queries:
        exact, found = (store.search(query, 10) for store in stores)
        assert found.doc_ids == exact.doc_ids
        # Chroma brings rows to length 1 once more, which moves the last bits
        assert found == exact if name == "lancedb" else found.scores == pytest.approx(exact.scores, abs=1e-6)
    for store in stores:
        store.close()


def test_o32_what_changed_is_found_and_what_is_gone_is_not(name: str, tmp_path: Path) -> None:
    """O32: add, change, ingest again, delete; a refused write leaves the old rows searchable."""
    alpha, beta, gamma = np.eye(4, dtype=np.float32)[:3]
    store = create_store(name, tmp_path / "s", identity())
    store.upsert(["d1"], alpha[None], [{"text": "alpha", "old": 1}])
    store.upsert(["d2"], beta[None], [{"text": "beta"}])
    assert store.search(beta, 1).doc_ids == ("d2",)
    for _ in range(2):
        store.upsert(["d1"], gamma[None], [{"text": "gamma"}])
        assert store.count() == 2
    assert store.search(gamma, 1).doc_ids == ("d1",)
    assert store.search(alpha, 2).scores[0] == pytest.approx(0, abs=1e-6)
    assert store.search(gamma, 2, {"text": "alpha"}).doc_ids == ()
    assert store.search(gamma, 2, {"old": 1}).doc_ids == ()  # a field that the new metadata lack is gone
    with pytest.raises(InvalidArgumentError):
        store.upsert(["d2", "d3"], np.array([gamma, np.zeros(4)], np.float32))
    assert store.search(beta, 1).doc_ids == ("d2",)
    assert store.delete(["d2"]) == 1
    assert store.search(beta, 5).doc_ids == ("d1",)
    store.close()


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_o32_another_reader_sees_a_commit_at_once(name: str, tmp_path: Path) -> None:
    """O32: an open reader finds what a second process wrote."""
    reader = create_store(name, tmp_path / "s", identity())
    reader.upsert(["a"], np.eye(4, dtype=np.float32)[:1])
    code = (
        "import sys, numpy as np; from pathlib import Path; from rag_core.stores import open_store\n"
        "s = open_store(sys.argv[1], Path(sys.argv[2])); s.upsert(['b'], np.eye(4, dtype=np.float32)[1:2])\n"
        "s.close()"
    )
    subprocess.run([sys.executable, "-c", code, name, str(reader.path)], check=True, env=_environment())
    assert reader.count() == 2
    assert reader.search(np.eye(4, dtype=np.float32)[1], 1).doc_ids == ("b",)
    reader.close()


def test_o33_refused_on_opening_and_every_width_works(name: str, tmp_path: Path) -> None:
    """O33: both embedders and the way out stand in the message; the width is checked before the database."""
    store = create_store(name, tmp_path / "s", identity(8))
    with pytest.raises(InvalidArgumentError, match="shape"):
        store.upsert(["x"], KIT.vectors(1, 16))
    with pytest.raises(InvalidArgumentError, match="16 wide; the store is 8 wide"):
        store.search(KIT.vectors(1, 16)[0], 1)
    store.close()
    with pytest.raises(IdentityMismatchError, match=r"built with fake .*8 wide.*cohere.*rag rebuild"):
        open_store(name, tmp_path / "s", identity(16, "cohere"))


WRITER = """
import sys, numpy as np
from pathlib import Path
from rag_core.stores import open_store
store = open_store(sys.argv[1], Path(sys.argv[2]))
rows = np.load(sys.argv[3])
for start in range(0, len(rows), 100):
    store.upsert([f"d{i}" for i in range(start, start + 100)], rows[start:start + 100])
    print(start + 100, flush=True)
store.close()
"""


def test_o34_killed_at_any_moment_it_opens_with_whole_batches(name: str, tmp_path: Path) -> None:
    """O34: what was reported as written is there with its vectors; a rerun ends as an undisturbed build."""
    rows = KIT.vectors(2000, 8)
    np.save(tmp_path / "rows.npy", rows)
    path = tmp_path / "s"
    create_store(name, path, identity(8)).close()
    for wait_for in (0, 3, 11):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(path), str(tmp_path / "rows.npy")],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment(),
        )  # fmt: skip
        assert child.stdout is not None
        reported = [int(child.stdout.readline()) for _ in range(wait_for)]
        time.sleep(0.013)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        store = open_store(name, path, identity(8))
        n = store.count()
        assert n >= max(reported, default=0)
        assert n % 100 == 0
        expected = {f"d{i}" for i in range(n)}
        assert set(store.search(rows[0], 2000).doc_ids) == expected
        store.close()
    subprocess.run(
        [sys.executable, "-c", WRITER, name, str(path), str(tmp_path / "rows.npy")],
        check=True, stdout=subprocess.DEVNULL, env=_environment(),
    )  # fmt: skip
    store = open_store(name, path)
    assert store.count() == 2000
    found = store.search(rows[3], 50)
    assert found.doc_ids == oracle_ranking([f"d{i}" for i in range(2000)], rows, rows[3], 50).doc_ids
    store.close()


FULL = """
import resource, sys, numpy as np
from pathlib import Path
from rag_core.errors import StoreError
from rag_core.stores import open_store
store = open_store(sys.argv[1], Path(sys.argv[2]))
rows = np.random.default_rng(3).standard_normal((4000, 64)).astype(np.float32)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    store.upsert([f"d{i}" for i in range(4000)], rows)
except StoreError as error:
    print(error)
"""


def test_o34_no_room_left_is_one_error_and_the_old_rows_stay(name: str, tmp_path: Path) -> None:
    """O32, O34: a write that does not fit (here: a limit on the size of a file) changes nothing."""
    rows = KIT.vectors(5, 64)
    store = create_store(name, tmp_path / "s", identity(64))
    store.upsert([f"d{i}" for i in range(5)], rows)
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", FULL, name, str(tmp_path / "s")],
        capture_output=True, text=True, env=_environment(), timeout=120,
    )  # fmt: skip
    assert any(words in done.stdout for words in ("could not write", "File too large", "disk is full")), (
        done.stderr
    )
    store = open_store(name, tmp_path / "s")
    assert store.count() == 5
    assert [store.search(row, 1).doc_ids[0] for row in rows] == [f"d{i}" for i in range(5)]
    store.upsert(["more"], rows[:1])
    assert store.count() == 6
    store.close()


def test_small_commits_are_joined(tmp_path: Path) -> None:
    """A row at a time: the table stays a few files, and loses nothing."""
    rows = KIT.vectors(120, 8)
    store = create_store("lancedb", tmp_path / "s", identity(8))
    for i, row in enumerate(rows):
        store.upsert([f"d{i}"], row[None])
    assert store._table.stats()["fragment_stats"]["num_fragments"] < 60
    expected = oracle_ranking([f"d{i}" for i in range(120)], rows, rows[0], 120)
    assert store.search(rows[0], 120).doc_ids == expected.doc_ids
    store.close()


def test_what_an_index_lacks_is_found_and_then_taken_in(tmp_path: Path) -> None:
    """O32: rows after the index was built are found at once; many of them bring it up to date."""
    rows = clustered(1500, 32)
    store = create_store("lancedb?index=hnsw_sq", tmp_path / "s", identity(32))
    store.upsert([f"d{i}" for i in range(1000)], rows[:1000])
    store.upsert(["late"], rows[1400:1401])
    assert store._table.index_stats("vector_idx").num_unindexed_rows == 1
    assert store.search(rows[1400], 1).doc_ids == ("late",)
    store.close()
    store = open_store("lancedb", tmp_path / "s")
    assert store._index == "hnsw_sq"
    store.upsert([f"d{i}" for i in range(1000, 1300)], rows[1000:1300])
    assert store._table.index_stats("vector_idx").num_unindexed_rows == 0
    assert store.search(rows[1200], 1).doc_ids == ("d1200",)
    store.close()


def _search_in_child(store: Any, vector: np.ndarray, answers: Any) -> None:
    answers.put(store.search(vector, 1).doc_ids)


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_store_can_be_sent_to_a_spawned_process(name: str, tmp_path: Path) -> None:
    store = create_store(name, tmp_path / "s", identity())
    store.upsert(["a", "b"], np.eye(4, dtype=np.float32)[:2])
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_search_in_child, args=(store, np.eye(4)[1], answers))
    child.start()
    assert answers.get(timeout=60) == ("b",)
    child.join(timeout=60)
    assert child.exitcode == 0
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_is_told_to_open_its_own(name: str, tmp_path: Path) -> None:
    store = create_store(name, tmp_path / "s", identity())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.count()
            said = "answered"
        except StoreError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "spawn" in os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    store.close()


def test_a_store_may_be_moved(name: str, tmp_path: Path) -> None:
    """An index is built beside its place and renamed into it."""
    store = create_store(name, tmp_path / "building", identity())
    store.upsert(["a"], np.eye(4, dtype=np.float32)[:1])
    store.close()
    (tmp_path / "building").rename(tmp_path / "s")
    store = open_store(name, tmp_path / "s", identity())
    assert store.search(np.eye(4, dtype=np.float32)[0], 1).doc_ids == ("a",)
    store.upsert(["b"], np.eye(4, dtype=np.float32)[1:2])
    assert store.count() == 2
    store.close()


def test_a_closed_or_damaged_store_says_so(name: str, tmp_path: Path) -> None:
    store = create_store(name, tmp_path / "s", identity())
    assert repr(store).endswith("s')")
    store.close()
    store.close()
    for call in (store.count, lambda: store.delete(["a"]), lambda: store.search(np.ones(4, np.float32), 1)):
        with pytest.raises(StoreError, match="is closed"):
            call()
    mark = tmp_path / "s" / "store.json"
    text = mark.read_text()
    for child in (tmp_path / "s").iterdir():
        if child.is_dir():
            child.rename(tmp_path / "gone")
    with pytest.raises(StoreError, match="is damaged"):
        open_store(name, tmp_path / "s")
    mark.write_text(json.dumps(json.loads(text) | {"store": "other"}))
    with pytest.raises(StoreError, match="of kind 'other'"):
        open_store(name, tmp_path / "s")
    create_store("flat", tmp_path / "f", identity()).close()
    with pytest.raises(StoreError, match="already holds a store"):
        create_store(name, tmp_path / "f", identity())


def test_what_a_crash_left_before_the_store_was_whole_is_overwritten(name: str, tmp_path: Path) -> None:
    store = create_store(name, tmp_path / "s", identity())
    store.upsert(["a"], np.eye(4, dtype=np.float32)[:1])
    store.close()
    (tmp_path / "s" / "store.json").unlink()
    store = create_store(name, tmp_path / "s", identity(6))
    assert store.count() == 0
    store.upsert(["b"], np.eye(6, dtype=np.float32)[:1])
    assert store.search(np.eye(6, dtype=np.float32)[0], 3).doc_ids == ("b",)
    store.close()


RECALL = (
    ("lancedb", 1.0),
    ("lancedb?index=hnsw_sq", 0.97),
    ("lancedb?index=ivf_pq", 0.95),
    ("chroma", 0.97),
)


@pytest.mark.parametrize(("spec", "least"), RECALL)
def test_recall_against_the_exact_store(spec: str, least: float, tmp_path: Path) -> None:
    """The top 10 of 6,000 rows in batches, with rows replaced and deleted, with and without a filter."""
    n, dim = 6000, 64
    rows, queries = clustered(n, dim), clustered(50, dim, seed=7)
    ids = [f"d{i}" for i in range(n)]
    metadata = [{"part": i % 20} for i in range(n)]
    pair = [create_store(kind, tmp_path / f"s{i}", identity(dim)) for i, kind in enumerate(("flat", spec))]
    for store in pair:
        store.upsert(ids[:5500], clustered(5500, dim, seed=3), metadata[:5500])
        store.upsert(ids, rows, metadata)
        store.delete(ids[:500])
    for where in (None, {"part": 3}, {"part": {"$gte": 1}}):
        hits = [
            len({*pair[0].search(query, 10, where).doc_ids} & {*pair[1].search(query, 10, where).doc_ids})
            for query in queries
        ]
        assert sum(hits) / (10 * len(queries)) >= least, where
    for store in pair:
        store.close()
    again = open_store(spec, tmp_path / "s1")
    assert again.count() == 5500
    assert again.search(rows[700], 1).doc_ids == ("d700",)
    again.close()


@pytest.mark.parametrize("spec", ["lancedb?index=hnsw", "chroma?ef_search=0", "chroma?index=flat"])
def test_options_are_checked(spec: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted"):
        create_store(spec, tmp_path / "s", identity())
    assert not (tmp_path / "s").exists()


def test_chroma_sends_nothing_and_loads_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    store = create_store("chroma", tmp_path / "s", identity())
    store.upsert(["a"], np.eye(4, dtype=np.float32)[:1])
    assert store.search(np.eye(4, dtype=np.float32)[0], 1).doc_ids == ("a",)
    assert store._client.get_settings().anonymized_telemetry is False
    store.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

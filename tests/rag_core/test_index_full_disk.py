"""A full disk: wherever it happens, the old version answers and a later run goes on, over every store.

The disk is a limit on the size of a file here. ``RAG_SMALL_DISK`` names a folder on a file system of about
4 MB, such as a tmpfs, on which the same is tried in earnest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core import Document, get_embedder
from rag_core.errors import StoreError
from rag_core.index import Index

PACKAGES = {"lancedb": "lancedb", "chroma": "chromadb", "surrealdb": "surrealdb"}
NAMES = [
    "flat",
    *(
        pytest.param(
            name,
            marks=[
                pytest.mark.stores_external,
                pytest.mark.skipif(find_spec(needed) is None, reason=f"needs {needed}"),
            ],
        )
        for name, needed in PACKAGES.items()
    ),
]
SMALL_DISK = os.environ.get("RAG_SMALL_DISK", "")
DOCUMENTS = [Document(f"d{i:03d}", f"text number {i}", "", {"n": i % 3}) for i in range(60)]
CHANGED = [*DOCUMENTS[:20], *(Document(f"n{i:03d}", f"text {i} " + "and more " * 30) for i in range(300))]
#: Ingests under a limit on the size of files (0: none), then goes on in the same process without it.
WRITER = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_index_full_disk import CHANGED
from rag_core import get_embedder
from rag_core.errors import StoreError
from rag_core.index import Index
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
limit = int(sys.argv[2])
try:
    index = Index.open(Path(sys.argv[1]), get_embedder("fake"))
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    index.ingest(CHANGED, prune=True)
    print("whole")
except StoreError as error:
    print("told:", error)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        index.ingest(CHANGED, prune=True)
        print("whole")
"""


def write(path: Path, limit_bytes: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path), str(limit_bytes), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check(path: Path, digest: str) -> None:
    """The index opens with this content, and words, vectors and texts are of the same documents."""
    index = Index.open(path, get_embedder("fake"))
    assert index.digest() == digest
    vectors = set(index.store.search(np.ones(index.identity.dim, np.float32), 1000).doc_ids)
    assert vectors == set(index.documents) == set(index.bm25.top("text number", 1000).doc_ids)
    assert index.hybrid_search("text 7", 5).warnings == ()
    index.close()


def built(path: Path, store: str) -> str:
    with_all = Index.build(path, DOCUMENTS, get_embedder("fake"), store=store)
    with_all.close()
    return with_all.digest()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of an undisturbed index of ``CHANGED``, which no store changes."""
    return Index.build(tmp_path_factory.mktemp("whole") / "i", CHANGED, get_embedder("fake")).digest()


@pytest.mark.slow
@pytest.mark.parametrize("store", NAMES)
def test_o34_a_full_disk(tmp_path: Path, wanted: str, store: str) -> None:
    """O34: told in one line; the writer itself goes on once there is room, and loses nothing then."""
    built(tmp_path / "built", store)
    n_full = 0
    for limit_bytes in (2_000, 50_000, 120_000, 1 << 30):
        path = tmp_path / f"i{limit_bytes}"
        shutil.copytree(tmp_path / "built", path)
        said = write(path, limit_bytes)
        assert said[-1] == "whole"
        n_full += said[0].startswith("told:")
        check(path, wanted)
    assert 1 <= n_full <= 3


@pytest.mark.slow
@pytest.mark.parametrize("store", NAMES)
def test_o34_the_old_version_stands_on_a_full_disk(
    tmp_path: Path, wanted: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O34: and the same command makes the new one later."""
    old = built(tmp_path / "built", store)
    monkeypatch.setattr(
        sys.modules[__name__],
        "WRITER",
        WRITER.replace("    if limit:\n        res", "    if 0:\n        res"),
    )
    for limit_bytes in (2_000, 50_000):
        path = tmp_path / f"i{limit_bytes}"
        shutil.copytree(tmp_path / "built", path)
        said = write(path, limit_bytes)
        check(path, old if said[-1].startswith("told:") else wanted)
        assert write(path, 0) == ["whole"]
        check(path, wanted)


@pytest.mark.slow
@pytest.mark.skipif(not SMALL_DISK, reason="RAG_SMALL_DISK names no folder on a small disk")
@pytest.mark.parametrize("store", NAMES)
def test_o34_a_disk_that_is_really_full(wanted: str, store: str) -> None:
    """O34: with less and less room left."""
    n_full = 0
    for room_bytes in (1_000, 20_000, 60_000, 120_000, 250_000, 500_000):
        folder = Path(SMALL_DISK) / "full"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        old = built(folder / "i", store)
        filler = folder / "filler"
        free = shutil.disk_usage(folder).free
        filler.write_bytes(bytes(max(0, free - room_bytes)))
        said = write(folder / "i", 0)
        if said[-1].startswith("told:"):
            n_full += 1
            if store == "chroma" and room_bytes < 4096:  # this engine writes even to be opened
                with pytest.raises(StoreError, match="disk is full; make room, nothing is lost"):
                    Index.open(folder / "i")
                filler.unlink()
            check(folder / "i", old)
        filler.unlink(missing_ok=True)
        assert write(folder / "i", 0) == ["whole"]
        check(folder / "i", wanted)
    assert n_full > 0


def lose(path: Path, *doc_ids: str) -> None:
    """Take rows from the store behind the index's back, as an engine that cuts its log does."""
    index = Index.open(path)
    keys = [index.store.key_of(doc_id) for doc_id in doc_ids]
    assert index.store.store.delete(keys) == len(keys)
    index.close()


@pytest.mark.parametrize("store", NAMES)
def test_rows_that_a_store_lost_are_noticed_and_made_again(tmp_path: Path, store: str) -> None:
    """O34: refused on opening, though rows on their way out make up the number."""
    path, embedder = tmp_path / "i", get_embedder("fake")
    index = Index.build(path, DOCUMENTS, embedder, store=store)
    index.ingest([Document("d001", "another text"), Document("d002", "a third text")])
    wanted = index.digest()
    index.close()
    lose(path, "d003")
    with pytest.raises(StoreError, match=r"lost 1 of 60 rows.*rag rebuild --index"):
        Index.open(path, embedder)
    damaged = Index.open(path, embedder, check_store=False)
    assert damaged.rebuild(embedder).updated == 60
    assert damaged.digest() == wanted
    damaged.close()
    check(path, wanted)


@pytest.mark.parametrize("store", NAMES)
def test_a_store_that_is_gone_is_made_again(tmp_path: Path, store: str) -> None:
    path, embedder = tmp_path / "i", get_embedder("fake")
    wanted = built(path, store)
    for part in (path / "vectors").iterdir():
        for found in part.iterdir():
            if found.name != "store.json":
                shutil.rmtree(found) if found.is_dir() else found.unlink()
    with pytest.raises(StoreError, match=r"The texts are kept.*rag rebuild --index"):
        Index.open(path, embedder)
    damaged = Index.open(path, embedder, check_store=False)
    assert damaged.hybrid_search("text 7", 3).degraded
    damaged.rebuild(embedder)
    damaged.close()
    check(path, wanted)


class Forgetful:
    """A store that says it took rows and keeps half of them."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def upsert(self, ids: Any, vectors: Any, metadata: Any = None) -> None:
        half = len(ids) // 2
        self._store.upsert(ids[:half], vectors[:half], metadata[:half])

    def missing(self, ids: Any) -> list[str]:
        kept = set(self._store.ids)
        return [doc_id for doc_id in ids if doc_id not in kept]


def test_rows_that_a_store_does_not_keep_stop_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rag_core.index_view as view

    path, embedder = tmp_path / "i", get_embedder("fake")
    old = built(path, "flat")
    real = view.open_store
    with monkeypatch.context() as patch:
        patch.setattr(view, "open_store", lambda *given: Forgetful(real(*given)))
        index = Index.open(path, embedder)
        with pytest.raises(StoreError, match="did not keep 150 of 300 rows; the version before it stands"):
            index.ingest(CHANGED)
        assert index.digest() == old
    check(path, old)
    Index.open(path, embedder).ingest(CHANGED, prune=True)


def test_a_loss_that_a_killed_writer_hides_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows lost as a writer that died had added: looked at one by one."""
    import rag_core.index_view as view
    from rag_core.index_check import INTENT

    path, embedder = tmp_path / "i", get_embedder("fake")
    built(path, "flat")
    index = Index.open(path)
    store, live = index.store.store, index.store.key_of("d003")
    store.upsert(["n0\x1fdead"], np.ones((1, index.identity.dim), np.float32))
    store.delete([live])
    vectors = next((path / "vectors").iterdir()).name
    (path / INTENT).write_text(json.dumps({"vectors": vectors, "keys": ["n0\x1fdead"]}))
    index.close()
    Index.open(path).close()  # the number is right
    real = view.open_store
    monkeypatch.setattr(view, "open_store", lambda *given: Forgetful(real(*given)))
    with pytest.raises(StoreError, match="lost 1 of 60 rows"):
        Index.open(path, embedder)

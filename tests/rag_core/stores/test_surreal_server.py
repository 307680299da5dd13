"""The store on a server: the embedded engine behind a socket, which speaks the same messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store
from rag_core.stores.surrealdb import SurrealStore

pytestmark = [
    pytest.mark.stores_external,
    pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning"),  # by the driver
]
SECRET = "hunter2222"
ROWS = np.eye(4, dtype=np.float32)


def identity() -> Fingerprint:
    return Fingerprint("fake", "m", "1", 4, "fp32", "mean")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    from surrealdb import Surreal
    from surrealdb._surrealdb_ext import SyncEmbeddedDB
    from surrealdb.data.cbor import decode
    from websockets.sync.server import serve

    engine = SyncEmbeddedDB("mem://")
    engine.connect()

    turn = threading.Lock()

    def answer(socket: Any) -> None:
        """A server keeps the database of each socket; the engine has one session, so it is told each time."""
        chosen = b""
        try:
            for message in socket:
                if decode(message)["method"] == "use":
                    chosen = message
                with turn:
                    if chosen:
                        engine.execute(chosen)
                    answered = engine.execute(message)
                socket.send(answered)
        except RuntimeError:  # the engine refuses a user so; the socket closes
            return

    with serve(answer, "127.0.0.1", 0, subprotocols=["cbor"], max_size=None) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        url = f"ws://127.0.0.1:{running.socket.getsockname()[1]}"
        root = Surreal(url)
        root.use("rag", "rag")
        root.query(f"DEFINE USER boss ON ROOT PASSWORD '{SECRET}' ROLES OWNER")
        root.close()
        yield url
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_SURREAL_USER", "boss")
    monkeypatch.setenv("RAG_SURREAL_PASSWORD", SECRET)


def test_a_store_on_a_server(server: str, tmp_path: Path) -> None:
    store = create_store(f"surrealdb?url={server}", tmp_path / "my index", identity())
    store.upsert(list("abcd"), ROWS, [{"n": i} for i in range(4)])
    assert store.search(ROWS[1], 2, {"n": {"$gte": 1}}).doc_ids == ("b", "d")
    store.close()
    kept = (tmp_path / "my index" / "store.json").read_text()
    assert SECRET not in kept
    assert "boss" not in kept
    assert [file.name for file in (tmp_path / "my index").iterdir()] == ["store.json"]
    first, second = (
        open_store("surrealdb", tmp_path / "my index"),
        open_store("surrealdb", tmp_path / "my index"),
    )
    assert first.delete(["a", "b"]) == 2
    assert second.count() == 2  # several openers, unlike the embedded engine
    assert SECRET not in repr(first)
    first.close()
    second.close()


def test_each_index_has_a_database_of_its_own(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_SURREAL_URL", server)
    left, right = (SurrealStore.create(tmp_path / name / "s", identity()) for name in "lr")
    left.upsert(["a"], ROWS[:1])
    assert (left.count(), right.count()) == (1, 0)
    assert left.settings["database"] != right.settings["database"]
    left.close()
    right.close()


def test_a_database_that_holds_a_store_is_not_overwritten(server: str, tmp_path: Path) -> None:
    SurrealStore.create(tmp_path / "a", identity(), url=server, database="mine").close()
    with pytest.raises(StoreError, match="'mine' holds a store already"):
        SurrealStore.create(tmp_path / "b", identity(), url=server, database="mine")
    assert not (tmp_path / "b" / "store.json").exists()


def test_a_refused_user_and_a_silent_server_name_no_password(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SurrealStore.create(tmp_path / "a", identity(), url=server).close()
    monkeypatch.setenv("RAG_SURREAL_PASSWORD", "wrong-word")
    with pytest.raises(StoreError, match="SurrealDB answers") as refused:
        SurrealStore.open(tmp_path / "a")
    monkeypatch.setenv("RAG_SURREAL_URL", "ws://127.0.0.1:9")
    with pytest.raises(StoreError, match="refused") as silent:
        SurrealStore.open(tmp_path / "a")
    for caught in (refused, silent):
        assert "wrong-word" not in str(caught.value)

"""The store on a server: the documented messages over a socket, answered by the embedded engine.

No package carries the server. What stands in for it speaks what the driver speaks, the RPC protocol in
CBOR at ``/rpc``, holds every message to that form, and gives the engine's own answers; a socket that has not
signed in, or has chosen no database, gets none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core import Document, get_embedder
from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index import Index
from rag_core.protocols import VectorStore
from rag_core.stores import create_store, open_store
from rag_core.stores.surrealdb import Entity, SurrealStore
from rag_core.testing import VectorStoreConformance

pytestmark = [
    pytest.mark.stores_external,
    pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning"),  # by the driver
]
USER, SECRET = "boss", "hunter2222"
ROWS = np.eye(4, dtype=np.float32)


def identity() -> Fingerprint:
    return Fingerprint("fake", "m", "1", 4, "fp32", "mean")


class Server:
    """A server that can be stopped and started again at the same address; its data stay.

    Attributes:
        signed_in: users that have signed in, in order.
        hang_up_at: the socket is closed when a statement holds these words, before it is carried out.
    """

    def __init__(self) -> None:
        from surrealdb._surrealdb_ext import SyncEmbeddedDB

        self._engine = SyncEmbeddedDB("mem://")
        self._engine.connect()
        self._turn, self._sockets = threading.Lock(), set[Any]()
        self._port = 0
        self.signed_in: list[str] = []
        self.hang_up_at = ""
        self.start()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._port}"

    def start(self) -> None:
        from websockets.sync.server import serve

        self._serving = serve(
            self._answer, "127.0.0.1", self._port, subprotocols=["cbor"], max_size=None, logger=_quiet()
        )
        self._port = self._serving.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serving.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._serving.shutdown()
        for socket in list(self._sockets):
            socket.close()
        self._thread.join()

    def _answer(self, socket: Any) -> None:
        from surrealdb.data.cbor import decode, encode

        assert socket.request.path == "/rpc"
        assert socket.subprotocol == "cbor"
        self._sockets.add(socket)
        use, is_known = b"", False
        for message in socket:
            asked = decode(message)
            method, params = asked["method"], asked.get("params", [])
            assert isinstance(message, bytes)
            assert isinstance(asked["id"], str)
            assert isinstance(params, list)
            refusal = ""
            if method == "signin":
                refusal = "" if params == [{"user": USER, "pass": SECRET}] else "authentication"
                is_known = not refusal
                self.signed_in.append(params[0]["user"])
            elif method == "use":
                assert [type(name) for name in params] == [str, str]
                use = message
            else:
                assert method == "query"
                assert [type(part) for part in params] == [str, dict]
                if self.hang_up_at and self.hang_up_at in params[0]:
                    break
                refusal = "" if is_known and use else "IAM error: Not enough permissions"
            if refusal:
                error = {"code": -32000, "message": f"There was a problem with the database: {refusal}"}
                socket.send(encode({"id": asked["id"], "error": error}))
            elif method == "signin":
                socket.send(encode({"id": asked["id"], "result": "a.b.c"}))
            else:
                with self._turn:  # the engine has one session, so it is told the database each time
                    if use:
                        self._engine.execute(use)
                    answer = self._engine.execute(message)
                socket.send(answer)
        self._sockets.discard(socket)


def _quiet() -> logging.Logger:
    logger = logging.getLogger("a server for tests")
    logger.setLevel(logging.CRITICAL)
    return logger


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("RAG_SURREAL_USER", USER)
    monkeypatch.setenv("RAG_SURREAL_PASSWORD", SECRET)
    monkeypatch.setattr(running, "hang_up_at", "")
    return running


class TestOnAServer(VectorStoreConformance):
    """The kit, each store in a database of its own."""

    @pytest.fixture(autouse=True)
    def _url(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAG_SURREAL_URL", server.url)

    def make(self, identity: Fingerprint, path: Path) -> VectorStore:
        return create_store("surrealdb", path, identity)

    def reopen(self, path: Path, identity: Fingerprint | None = None) -> VectorStore:
        return open_store("surrealdb", path, identity)


def test_a_store_on_a_server(server: Server, tmp_path: Path) -> None:
    store = create_store(f"surrealdb?url={server.url}", tmp_path / "my index", identity())
    store.upsert(list("abcd"), ROWS, [{"n": i} for i in range(4)])
    assert store.search(ROWS[1], 2, {"n": {"$gte": 1}}).doc_ids == ("b", "d")
    store.close()
    assert server.signed_in[-1] == USER
    kept = (tmp_path / "my index" / "store.json").read_text()
    assert SECRET not in kept
    assert USER not in kept
    assert [file.name for file in (tmp_path / "my index").iterdir()] == ["store.json"]
    first, second = (
        open_store("surrealdb", tmp_path / "my index"),
        open_store("surrealdb", tmp_path / "my index"),
    )
    assert first.delete(["a", "b"]) == 2
    assert second.count() == 2  # several openers, unlike the embedded engine
    for shown in (repr(first), repr(vars(first)), repr(first._link), repr(vars(first._link))):  # type: ignore[attr-defined]
        assert SECRET not in shown
    first.close()
    second.close()
    with pytest.raises(StoreError, match="closed"):
        first.count()


def test_the_graph_on_a_server(server: Server, tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity(), url=server.url, namespace="town")
    store.upsert(["law#1", "law#2", "fair#1"], ROWS[:3])
    store.relate_many("part_of", [(row, Entity(row[:-2])) for row in ("law#1", "law#2", "fair#1")])
    store.relate(Entity("tariff"), "cites", Entity("law"))
    assert store.related(ROWS[2], 5, "->cites<-part_of", Entity("tariff")).doc_ids == ("law#2", "law#1")
    store.close()


def test_an_index_on_a_server(server: Server, tmp_path: Path) -> None:
    texts = [Document(f"d{i}", f"text number {i}") for i in range(30)]
    index = Index.build(tmp_path / "i", texts, get_embedder("fake"), store=f"surrealdb?url={server.url}")
    index.delete(["d7"])
    index.ingest([Document("d8", "changed")])
    reader = Index.open(tmp_path / "i", get_embedder("fake"))
    assert reader.hybrid_search("changed", 1)[0].document.doc_id == "d8"
    assert len(reader.store.search(np.ones(64, np.float32), 100)) == 29
    reader.close()
    index.close()


def test_each_index_has_a_database_of_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_SURREAL_URL", server.url)
    left, right = (SurrealStore.create(tmp_path / name / "s", identity()) for name in "lr")
    left.upsert(["a"], ROWS[:1])
    assert (left.count(), right.count()) == (1, 0)
    assert left.settings["database"] != right.settings["database"]
    left.close()
    right.close()


def test_a_database_that_holds_a_store_is_not_overwritten(server: Server, tmp_path: Path) -> None:
    SurrealStore.create(tmp_path / "a", identity(), url=server.url, database="mine").close()
    with pytest.raises(StoreError, match="'mine' holds a store already"):
        SurrealStore.create(tmp_path / "b", identity(), url=server.url, database="mine")
    assert not (tmp_path / "b" / "store.json").exists()


def test_a_refused_user_and_a_silent_server_name_no_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SurrealStore.create(tmp_path / "a", identity(), url=server.url).close()
    monkeypatch.setenv("RAG_SURREAL_PASSWORD", "wrong-word")
    with pytest.raises(StoreError, match=r"SurrealDB answers.*authentication") as refused:
        SurrealStore.open(tmp_path / "a")
    monkeypatch.delenv("RAG_SURREAL_USER")
    with pytest.raises(StoreError, match="Not enough permissions"):
        SurrealStore.open(tmp_path / "a")
    monkeypatch.setenv("RAG_SURREAL_USER", USER)
    monkeypatch.setenv("RAG_SURREAL_URL", "ws://127.0.0.1:9")
    with pytest.raises(
        StoreError, match=r"ws://127.0.0.1:9 .* cannot be reached.*RAG_SURREAL_URL="
    ) as silent:
        SurrealStore.open(tmp_path / "a")
    for caught in (refused, silent):
        assert "wrong-word" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_server_that_was_away_is_found_again(server: Server, tmp_path: Path) -> None:
    """The address and what to do while it is away; then the same store goes on, signed in anew."""
    store = SurrealStore.create(tmp_path / "s", identity(), url=server.url)
    store.upsert(["a"], ROWS[:1])
    server.stop()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"cannot be reached, or has hung up.*run the same again"
        ) as away:
            store.count()
        assert server.url in str(away.value)
        assert SECRET not in str(away.value)
    server.start()
    sessions = len(server.signed_in)
    assert store.count() == 1
    store.upsert(["b"], ROWS[1:2])
    assert store.search(ROWS[1], 1).doc_ids == ("b",)
    assert server.signed_in[sessions:] == [USER]
    store.close()


def test_a_socket_that_breaks_within_a_statement(server: Server, tmp_path: Path) -> None:
    """Whether it was carried out is not known, so it is not sent again unasked."""
    store = SurrealStore.create(tmp_path / "s", identity(), url=server.url)
    server.hang_up_at = "INSERT INTO chunk"
    with pytest.raises(StoreError, match="hung up"):
        store.upsert(["a"], ROWS[:1])
    server.hang_up_at = ""
    assert store.count() == 0
    store.upsert(["a"], ROWS[:1])
    assert store.count() == 1
    store.close()

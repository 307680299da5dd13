"""Chroma: an embedded database with an HNSW index, which answers approximately.

A folder holds ``store.json`` and Chroma's own files under ``chroma``. No telemetry, no model: vectors come
from the embedder. Strings, numbers and booleans of the metadata are Chroma's own fields, and all of it
stands as JSON in the field ``_json``. A filter that Chroma cannot express (an order of strings, ``$not`` of
a range, null, lists) is worked out here over all rows, and answered exactly.

One call writes in batches of at most ``get_max_batch_size`` rows, each of them whole or not at all. Chroma
keeps its graph in memory and does not look at what other processes write, so each write replaces the file
``written``, and a store that finds another one there connects anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.filters import Node, tree_test
from rag_core.protocols import Vectors
from rag_core.stores.backed import BackedStore, Found, first_line, stacked
from rag_core.stores.chroma_where import RESERVED, Inexpressible, is_kept, to_chroma
from rag_core.stores.files import replace_file
from rag_core.stores.sortkey import nearest_float

__all__ = ["ChromaStore"]

FOLDER = "chroma"
WRITTEN = "written"
COLLECTION = "rows"
#: In what SQLite says when it cannot write.
FULL = ("disk is full", "disk I/O error", "No space left")
#: What stands for the time of the last write after one that failed: it is never equal to one.
FAILED = (-1, -1)
#: Rows read at once where all rows are looked at.
PAGE = 5000
#: Width of the graph's search and links. At 30,000 x 384 in 1,000 clusters these find all of the exact top
#: 10, also of a twentieth chosen by a filter; half of each loses 4 % of the filtered one.
HNSW: Mapping[str, int] = {"ef_construction": 200, "ef_search": 200, "max_neighbors": 32}
#: Whole numbers that Chroma's columns hold.
LARGEST = 2**63


class ChromaStore(BackedStore):
    """Vectors in a Chroma collection. Options: ``ef_construction``, ``ef_search``, ``max_neighbors``."""

    name: ClassVar[str] = "chroma"
    package: ClassVar[str] = "chromadb"
    extra: ClassVar[str] = "chroma"
    options: ClassVar[Mapping[str, str]] = dict.fromkeys(HNSW, "a whole number from 2")

    _client: Any = None
    _rows: Any = None
    _seen: tuple[int, int] | None

    @classmethod
    def _settings(cls, options: Mapping[str, str]) -> dict[str, Any]:
        for option, text in options.items():
            if not (text.isdecimal() and text.isascii() and int(text) >= 2):
                raise InvalidArgumentError(
                    f"store {cls.name!r}: {option} is {text!r}; accepted: {cls.options[option]}"
                )
        return {**HNSW, **{option: int(text) for option, text in options.items()}}

    def _create(self) -> None:
        self._open_client()
        for left in self._client.list_collections():
            self._client.delete_collection(left.name)
        self._rows = self._client.create_collection(
            COLLECTION,
            embedding_function=None,  # otherwise the first write downloads a model
            configuration={"hnsw": {"space": "cosine", **self.settings}},
        )

    def _connect(self) -> None:
        if not (self.path / FOLDER).is_dir():
            raise StoreError(f"{self.path} is damaged: {FOLDER} is missing; rebuild the store")
        try:
            self._open_client()
            self._rows = self._client.get_collection(COLLECTION, embedding_function=None)
        except Exception as error:  # whatever the database calls it
            self._disconnect()
            if any(words in str(error) for words in FULL):  # it writes even when it is only opened
                raise StoreError(
                    f"{self.path} cannot be opened: {first_line(error)}; make room, nothing is lost"
                ) from error
            raise StoreError(f"{self.path} is damaged: {error}; rebuild the store") from error

    def _open_client(self) -> None:
        chromadb = self._require()
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        self._seen = self._written()
        path = str(self.path / FOLDER)
        try:
            self._client = chromadb.PersistentClient(path=path, settings=settings)
        except BaseException:
            _forget(path)
            raise

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._rows = None

    def _written(self) -> tuple[int, int] | None:
        try:
            found = (self.path / WRITTEN).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _note_write(self) -> None:
        replace_file(self.path / WRITTEN, lambda stream: stream.write(b""))
        self._seen = self._written()

    def _refresh(self) -> None:
        if self._client is None or self._written() != self._seen:
            self._disconnect()
            self._connect()

    def _changed(self, what: str, call: Callable[..., Any], **given: Any) -> None:
        try:
            self._guarded(what, call, **given)
        except StoreError:
            # a write that the disk refused keeps its lock, for which the next one would wait for ever
            self._seen = FAILED
            raise
        self._note_write()

    def _count(self) -> int:
        self._refresh()
        return int(self._rows.count())

    def _put(self, ids: list[str], rows: Vectors, metadata: list[str]) -> None:
        self._refresh()
        size = self._client.get_max_batch_size()
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            old = self._guarded("read", self._rows.get, ids=ids[part], include=["metadatas"])
            gone = dict(zip(old["ids"], old["metadatas"]))
            fields = [
                _fields(text, gone.get(doc_id) or {}) for doc_id, text in zip(ids[part], metadata[part])
            ]
            self._changed("write", self._rows.upsert, ids=ids[part], embeddings=rows[part], metadatas=fields)

    def _remove(self, ids: list[str]) -> int:
        self._refresh()
        removed = 0
        size = self._client.get_max_batch_size()
        for start in range(0, len(ids), size):
            known = self._guarded("read", self._rows.get, ids=ids[start : start + size], include=[])
            if known["ids"]:  # Chroma counts unknown ids as deleted
                self._changed("delete", self._rows.delete, ids=known["ids"])
            removed += len(known["ids"])
        return removed

    def _vectors(self, ids: list[str]) -> tuple[list[str], Vectors]:
        self._refresh()
        found: list[str] = []
        rows = []
        size = self._client.get_max_batch_size()
        for start in range(0, len(ids), size):
            page = self._guarded(
                "read", self._rows.get, ids=ids[start : start + size], include=["embeddings"]
            )
            found += page["ids"]
            rows.append(page["embeddings"])
        return found, stacked(rows, self._identity.dim)

    def _stored(self, ids: list[str]) -> set[str]:
        self._refresh()
        found: set[str] = set()
        size = self._client.get_max_batch_size()
        for start in range(0, len(ids), size):
            found.update(
                self._guarded("read", self._rows.get, ids=ids[start : start + size], include=[])["ids"]
            )
        return found

    def _nearest(self, unit: Vectors, wanted: int, where: Node | None) -> Found:
        count = self._count()
        condition: dict[str, Any] | bool = True
        if where is not None:
            try:
                condition = to_chroma(where)
            except Inexpressible:
                return self._exact(unit, wanted, self._matching(where))
        if condition is False or count == 0:
            return Found([], stacked([], self._identity.dim), [])
        only = None if condition is True else condition
        answer = self._guarded(
            "search",
            self._rows.query,
            query_embeddings=[unit],
            n_results=min(wanted, count),
            where=only,
            include=["embeddings", "distances"],
        )
        ids, distances = answer["ids"][0], answer["distances"][0]
        if len(ids) < min(wanted, count):
            # fewer match, or the graph did not reach them: what matches is few or wanted whole
            return self._exact(unit, wanted, self._pages(only, ["embeddings"]))
        return Found(ids, stacked([answer["embeddings"][0]], self._identity.dim), distances)

    def _pages(self, where: Mapping[str, Any] | None, include: list[str]) -> Iterator[Mapping[str, Any]]:
        offset = 0
        while True:
            page = self._guarded(
                "read", self._rows.get, where=where, include=include, limit=PAGE, offset=offset
            )
            if page["ids"]:
                yield page
            if len(page["ids"]) < PAGE:
                return
            offset += PAGE

    def _matching(self, where: Node) -> Iterator[Mapping[str, Any]]:
        """Pages of the rows that satisfy ``where``, with their vectors."""
        matches = tree_test(where)
        for page in self._pages(None, ["metadatas"]):
            texts = [fields[RESERVED] for fields in page["metadatas"]]
            ids = [doc_id for doc_id, text in zip(page["ids"], texts) if matches(json.loads(text))]
            if ids:
                yield self._guarded("read", self._rows.get, ids=ids, include=["embeddings"])

    def _exact(self, unit: Vectors, wanted: int, pages: Iterator[Mapping[str, Any]]) -> Found:
        """The nearest of ``pages``; keeps a page and the best so far in memory."""
        ids, rows = np.zeros(0, object), stacked([], self._identity.dim)
        distances = np.zeros(0, np.float32)
        for page in pages:
            more = stacked([page["embeddings"]], self._identity.dim)
            ids = np.concatenate([ids, np.array(page["ids"], object)])
            rows = np.concatenate([rows, more])
            distances = np.concatenate([distances, 1 - more @ unit])
            best = np.argsort(distances, kind="stable")[:wanted]
            ids, rows, distances = ids[best], rows[best], distances[best]
        return Found(ids.tolist(), rows, distances.tolist())

    def _failures(self) -> tuple[type[Exception], ...]:
        from chromadb.errors import ChromaError

        return (ChromaError, *super()._failures())


def _forget(path: str) -> None:
    """Chroma 1.5 keeps what could not be started, and would give it to whoever opens ``path`` next."""
    from chromadb.api.shared_system_client import SharedSystemClient

    if path not in getattr(SharedSystemClient, "_identifier_to_refcount", {path: 1}):
        SharedSystemClient._identifier_to_system.pop(path, None)


def _fields(text: str, old: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one row: an upsert of Chroma keeps those it is not told of, so those are set to None."""
    metadata = json.loads(text)
    kept = {field: _number(value) for field, value in metadata.items() if is_kept(field, value)}
    return {**dict.fromkeys(old), **kept, RESERVED: text}


def _number(value: Any) -> Any:
    return nearest_float(value) if isinstance(value, int) and abs(value) >= LARGEST else value

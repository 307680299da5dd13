"""SurrealDB: vectors, metadata and a graph in one database, so that one query can use all three.

Rows are ``chunk:⟨id⟩ = {v: array<float>, meta: object}``; things that have no vector of their own, such as
the documents that chunks belong to, are ``entity:⟨id⟩``; a relation is an edge table of its name between
them. The engine runs inside this process on ``rows/`` in the store's folder, or on a server.

A process that is killed leaves whole batches. A disk that fills up does not, so room is asked for before each
write (:mod:`rag_core.stores.room`); where it runs out all the same, some rows of the batch that failed may
stay. What the engine writes behind a record it could not finish is cut off when it is opened again (seen with
surrealdb 2.0.0), so it is opened again before the next statement.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.filters import Node, parse_where
from rag_core.protocols import Vectors
from rag_core.stores.backed import MORE, BackedStore, Found, stacked
from rag_core.stores.identity import write_identity
from rag_core.stores.room import Room
from rag_core.stores.rows import rescored, unit_query
from rag_core.stores.surreal_link import URL, Link, checked_url, open_folder, open_server
from rag_core.stores.surreal_ql import (
    Parameters,
    arrows,
    condition,
    relation_name,
    shown_text,
    stored_text,
    stored_value,
)
from rag_core.types import EMPTY_RANKING, Ranking, check_k

__all__ = ["Entity", "SurrealStore"]

FOLDER = "rows"
#: What a number and the rest of a row take in the engine's log; 9.0 and about 300 to 700 were measured.
NUMBER_BYTES, ROW_BYTES = 10, 1000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
#: Above this many rows asked for, the index is no faster than looking at every row.
MOST_FROM_INDEX = 1000
#: The smallest and largest value of the index's options, and the default.
_INDEX_OPTIONS = {"ef": (1, 1000, 150), "efc": (1, 1000, 150), "m": (2, 100, 12)}


@dataclass(frozen=True, slots=True)
class Entity:
    """The end of a relation that is no stored row: a document, a person, a place."""

    entity_id: str


class SurrealStore(BackedStore):
    """Vectors and a graph in SurrealDB; exact search, or an HNSW index by option.

    An exact search looks at every row. ``index="hnsw"`` is for rows that seldom change: the first search
    after a write builds the index anew (some milliseconds a row), and a write drops it.

    ``url="ws://host:8000"``, or ``RAG_SURREAL_URL`` at creation, puts the rows on a server, in ``database``
    of ``namespace``; the folder then holds ``store.json`` alone, and ``RAG_SURREAL_URL`` at opening tells a
    server that has moved. User and password come from ``RAG_SURREAL_USER`` and ``RAG_SURREAL_PASSWORD``.

    One call of :meth:`upsert` is one transaction, which the database holds in memory: about 100 bytes a
    number.
    """

    name = "surrealdb"
    package = "surrealdb"
    extra = "surrealdb"
    options: ClassVar[Mapping[str, str]] = {
        "index": "exact (default) or hnsw",
        "ef": "candidates of a search in the index, 1 to 1000 (150)",
        "efc": "candidates while the index grows, 1 to 1000 (150)",
        "m": "neighbours of a row in the index, 2 to 100 (12)",
        "url": "ws://host:port of a server",
        "namespace": "name on the server (rag)",
        "database": "name on the server (made from the folder's name)",
    }
    _link: Link
    #: Whether the index is known to be there; where another opener dropped it, searches look at every row.
    _indexed = False

    def related(
        self,
        vector: Vectors,
        k: int,
        relation: str,
        start: str | Entity,
        where: Mapping[str, Any] | None = None,
    ) -> Ranking:
        """The ``k`` rows nearest to ``vector`` among those that ``relation`` reaches from ``start``.

        One SurrealQL query follows the graph, filters and sorts. It is exact: it looks at the rows reached.

        Args:
            vector: float32 ``(dim,)``.
            k: rows wanted, from 1.
            relation: a path such as ``->cites<-part_of``: follow `cites`, then `part_of` backwards; a bare
                name is ``->name``. Entities on the way count, and are never part of the answer.
            start: the id of a row, or an :class:`Entity`.
            where: a filter over the metadata of the rows reached.

        Raises:
            InvalidArgumentError: as of :meth:`search`, or a path that does not parse.

        ::

            >>> from pathlib import Path
            >>> from rag_core import get_embedder
            >>> from rag_core.stores.surrealdb import Entity, SurrealStore
            >>> embedder = get_embedder("fake")
            >>> passages = {
            ...     "law#1": "the council sets the tariff of water",
            ...     "law#2": "meters are read every two months",
            ...     "fair#1": "water is sold at the fountain",
            ... }
            >>> store = SurrealStore.create(Path("graph"), embedder.fingerprint)
            >>> store.upsert(list(passages), embedder.embed(list(passages.values())))
            >>> for passage in passages:
            ...     store.relate(passage, "part_of", Entity(passage.split("#")[0]))
            >>> store.relate(Entity("tariff-2026"), "cites", Entity("law"), page=3)
            >>> question = embedder.embed(["who sets the water tariff"], role="query")[0]
            >>> store.related(question, 5, "->cites<-part_of", Entity("tariff-2026")).doc_ids
            ('law#1', 'law#2')
            >>> store.close()
        """
        self._check_open()
        check_k(k)
        parameters = self._parameters()
        source = f"array::distinct({parameters.bind(self._record(start))}{arrows(relation)})"
        unit = unit_query(self.path, self._identity, vector)
        tree = parse_where(where) if where else None
        if unit is None:
            return EMPTY_RANKING
        found = self._sorted(source, unit, k + MORE, tree, parameters)
        return rescored(found.ids, found.rows, unit, k)

    def relate(self, from_id: str | Entity, relation: str, to_id: str | Entity, **fields: Any) -> None:
        """Put an edge between two rows or entities; one that is there gets ``fields`` in place of its own.

        A row need not exist yet; its edges count once it does. Deleting a row removes its edges; replacing
        it keeps them.

        Raises:
            InvalidArgumentError: a relation of another name than letters, digits and underscores; a field
                named id, in or out; a field whose value is no JSON value.
        """
        if taken := fields.keys() & {"id", "in", "out"}:
            raise InvalidArgumentError(f"{self.path}: an edge has its own {', '.join(sorted(taken))}")
        self._put_edges(relation, [(from_id, to_id, fields)])

    def relate_many(self, relation: str, ends: Iterable[tuple[str | Entity, str | Entity]]) -> None:
        """:meth:`relate` for many pairs (from, to) in one transaction: all or none."""
        self._put_edges(relation, [(start, end, {}) for start, end in dict.fromkeys(ends)])

    def unrelate(self, from_id: str | Entity, relation: str, to_id: str | Entity) -> bool:
        """Remove an edge; whether there was one."""
        self._check_open()
        edge = self._edge(relation, self._record(from_id), self._record(to_id))
        return bool(self._removed([edge]))

    def build_index(self) -> None:
        """Index the rows that are there, and search in an index from now on, as with ``index="hnsw"``.

        Raises:
            StoreError: the database failed; the store goes on without the index.
        """
        self._check_open()
        self.settings["index"] = "hnsw"
        write_identity(self.path, self.name, self._identity, self.settings)
        self._define_index()

    def query(self, statement: str, **parameters: Any) -> Any:
        """The answer of the database to one SurrealQL statement of your own, with bound parameters.

        Raises:
            StoreError: the database refused it.
        """
        self._check_open()
        return self._link.query(statement, parameters)

    @classmethod
    def _settings(cls, options: Mapping[str, str]) -> dict[str, Any]:
        index = options.get("index", "exact")
        if index not in ("exact", "hnsw"):
            raise InvalidArgumentError(
                f"store {cls.name!r}: option index is {index!r}; accepted: exact, hnsw"
            )
        settings: dict[str, Any] = {"index": index}
        for option, (low, high, default) in _INDEX_OPTIONS.items():
            text = str(options.get(option, default))
            if not text.isdecimal() or not low <= int(text) <= high:
                raise InvalidArgumentError(
                    f"store {cls.name!r}: option {option} is {text!r}; accepted: {low} to {high}"
                )
            settings[option] = int(text)
        url = options.get("url") or os.environ.get(URL, "")
        for option in ("namespace", "database"):
            value = options.get(option, "rag")
            if not _NAME.fullmatch(value) or (option in options and not url):
                raise InvalidArgumentError(
                    f"store {cls.name!r}: option {option} is {value!r}; accepted, and only with a server: a "
                    "letter, then letters, digits and underscores"
                )
        if url:
            database = options.get("database", "")
            namespace = options.get("namespace", "rag")
            settings |= {"url": checked_url(url), "namespace": namespace, "database": database}
        return settings

    def _open_link(self) -> Link:
        package = self._require()
        settings = self.settings
        if "url" not in settings:
            return open_folder(package, self.path / FOLDER)
        url = os.environ.get(URL) or settings["url"]
        return open_server(package, url, settings["namespace"], settings["database"])

    def _create(self) -> None:
        if "url" in self.settings:
            if not self.settings["database"]:
                stem = re.sub(r"[^A-Za-z0-9]+", "_", self.path.resolve().name)[:40]
                self.settings["database"] = f"rag_{stem}_{uuid.uuid4().hex[:12]}"
        elif (self.path / FOLDER).exists():  # a crash left it: store.json is missing
            shutil.rmtree(self.path / FOLDER)
        self._link = self._open_link()
        try:
            self._define()
        except BaseException:
            self._link.close()
            raise

    def _define(self) -> None:
        if self._link.query("SELECT VALUE id FROM store:identity"):
            raise StoreError(
                f"database {self.settings.get('database')!r} holds a store already; choose another name"
            )
        self._link.query("DEFINE TABLE chunk SCHEMALESS")
        text = json.dumps(self._identity.as_dict())
        self._link.query("CREATE store:identity SET text = $text RETURN NONE", {"text": stored_text(text)})

    def _define_index(self) -> None:
        self._link.query(
            f"DEFINE INDEX IF NOT EXISTS nearest ON chunk FIELDS v HNSW DIMENSION {self._identity.dim} "
            f"DIST COSINE TYPE F32 EFC {self.settings['efc']} M {self.settings['m']}"
        )
        self._indexed = True

    def _drop_index(self) -> None:
        # SurrealDB 2 keeps rows that are written into an index out of it once it is opened again, and loses
        # most rows after a deletion; an index over rows that stay is right (tests/…/test_surrealdb.py)
        if self.settings["index"] == "hnsw":
            self._link.query("REMOVE INDEX IF EXISTS nearest ON chunk")
            self._indexed = False

    def _connect(self) -> None:
        if "url" not in self.settings and not (self.path / FOLDER).is_dir():
            raise StoreError(f"{self.path} is damaged: {FOLDER}/ is missing; rebuild the store")
        self._link = self._open_link()
        try:
            found = self._link.query("SELECT VALUE text FROM store:identity")
            if not found or json.loads(shown_text(found[0])) != self._identity.as_dict():
                raise StoreError(
                    f"{self.path}: the database does not hold the store that store.json describes; "
                    "rebuild the store"
                )
        except BaseException:
            self._link.close()
            raise

    def _disconnect(self) -> None:
        self._link.close()

    def _count(self) -> int:
        answer = self._link.query("SELECT VALUE count() FROM chunk GROUP ALL")
        return int(answer[0]["count"]) if answer else 0

    def _put(self, ids: list[str], rows: Vectors, metadata: list[str]) -> None:
        null = self._null()
        size = _size_bytes([*ids, *metadata]) + len(ids) * (NUMBER_BYTES * rows.shape[1] + ROW_BYTES)
        with self._writing(size):
            self._drop_index()
            self._link.query(
                "INSERT INTO chunk $rows "
                "ON DUPLICATE KEY UPDATE v = $input.v, meta = $input.meta RETURN NONE",
                {
                    "rows": [
                        {"id": self._record(doc_id), "v": row, "meta": stored_value(json.loads(text), null)}
                        for doc_id, row, text in zip(ids, rows.tolist(), metadata)
                    ]
                },
            )

    def _writing(self, size_bytes: int) -> AbstractContextManager[None]:
        return nullcontext() if "url" in self.settings else Room(self.path).writing(size_bytes)

    def _remove(self, ids: list[str]) -> int:
        with self._writing(len(ids) * ROW_BYTES):
            self._drop_index()
            return self._removed([self._record(doc_id) for doc_id in ids])

    def _removed(self, records: Sequence[Any]) -> int:
        answer = self._link.query(
            "RETURN { LET $gone = SELECT VALUE id FROM $records; DELETE $gone RETURN NONE; "
            "RETURN array::len($gone); }",
            {"records": list(records)},
        )
        return int(answer)

    def _vectors(self, ids: list[str]) -> tuple[list[str], Vectors]:
        found = self._link.query(
            "SELECT record::id(id) AS key, v FROM $records WHERE v != NONE",
            {"records": [self._record(doc_id) for doc_id in ids]},
        )
        rows = [np.asarray(row["v"], np.float32) for row in found]
        return [shown_text(row["key"]) for row in found], stacked(rows, self._identity.dim)

    def _stored(self, ids: list[str]) -> set[str]:
        records = [self._record(doc_id) for doc_id in ids]
        found = self._link.query("SELECT VALUE record::id(id) FROM $records", {"records": records})
        return {shown_text(key) for key in found}

    def _nearest(self, unit: Vectors, wanted: int, where: Node | None) -> Found:
        parameters = self._parameters()
        if self.settings["index"] == "hnsw" and wanted <= MOST_FROM_INDEX:
            if not self._indexed:
                self._define_index()
            found = self._from_index(unit, wanted, where, parameters)
            if len(found.ids) == wanted:
                return found
            parameters = self._parameters()  # there are no more, or the filter left the index too few
        return self._sorted("chunk", unit, wanted, where, parameters)

    def _sorted(
        self, source: str, unit: Vectors, wanted: int, where: Node | None, parameters: Parameters
    ) -> Found:
        # sorting by the similarity takes half the time of the operator <|k,COSINE|>, and knows the order
        # among equal rows
        query, limit = parameters.bind(unit.tolist()), parameters.bind(wanted)
        tests = ["v != NONE", *([condition(where, parameters)] if where is not None else [])]
        return self._found(
            f"SELECT record::id(id) AS key, v, vector::similarity::cosine(v, {query}) AS score FROM {source} "
            f"WHERE {' AND '.join(tests)} ORDER BY score DESC, key DESC LIMIT {limit}",
            parameters,
        )

    def _from_index(self, unit: Vectors, wanted: int, where: Node | None, parameters: Parameters) -> Found:
        query = parameters.bind(unit.tolist())
        test = f" AND {condition(where, parameters)}" if where is not None else ""
        ef = max(self.settings["ef"], wanted)  # the index gives no more than ef rows
        return self._found(
            f"SELECT record::id(id) AS key, v, vector::similarity::cosine(v, {query}) AS score FROM chunk "
            f"WHERE v <|{wanted},{ef}|> {query}{test}",
            parameters,
        )

    def _found(self, statement: str, parameters: Parameters) -> Found:
        rows = sorted(self._link.query(statement, parameters.values), key=lambda row: -row["score"])
        return Found(
            [shown_text(row["key"]) for row in rows],
            stacked([np.asarray(row["v"], np.float32) for row in rows], self._identity.dim),
            [1.0 - row["score"] for row in rows],
        )

    def _put_edges(
        self, relation: str, edges: Sequence[tuple[str | Entity, str | Entity, Mapping[str, Any]]]
    ) -> None:
        self._check_open()
        table, null = relation_name(relation), self._null()
        rows, entities = [], set()
        for start, end, fields in edges:
            ends = self._record(start), self._record(end)
            own = {"id": self._edge(relation, *ends), "in": ends[0], "out": ends[1]}
            rows.append(stored_value(fields, null) | own)
            entities |= {one for one in (start, end) if isinstance(one, Entity)}
        size = _size_bytes(repr(dict(fields)) for _, _, fields in edges if fields) + len(rows) * ROW_BYTES
        with self._writing(size):  # a path stops at a record that is not there
            self._link.query(
                "RETURN { INSERT IGNORE INTO entity $entities RETURN NONE; DELETE $edges.id RETURN NONE; "
                f"INSERT RELATION INTO {table} $edges RETURN NONE; }}",
                {"edges": rows, "entities": [{"id": self._record(one)} for one in entities]},
            )

    def _edge(self, relation: str, start: Any, end: Any) -> Any:
        relation_name(relation)
        return self._require().RecordID(relation, [start, end])

    def _record(self, end: str | Entity) -> Any:
        table, text = ("entity", end.entity_id) if isinstance(end, Entity) else ("chunk", end)
        if not text:
            raise InvalidArgumentError(f"{self.path}: an id is empty; accepted: text")
        return self._require().RecordID(table, stored_text(text))

    def _parameters(self) -> Parameters:
        return Parameters(self._null())

    @staticmethod
    def _null() -> Any:
        from surrealdb.cbor.types import CBORSimpleValue

        return CBORSimpleValue(22)  # RFC 8949, section 3.3: null


def _size_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)

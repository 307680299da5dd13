"""LanceDB: columns on disk, exact up to about 100,000 rows, then an index that answers approximately.

A folder holds ``store.json`` and the table ``rows.lance``: ``id``, ``metadata`` (JSON), ``keys`` (JSON, the
metadata as the filters compare them) and ``vector``. A write is one commit of the table: readers, and a
crash, see the state before or after. Rows written after an index was built are searched exactly until the
index takes them in.

With the option ``uri`` the table stands below that folder or object store, where other machines reach it, and
the folder keeps ``store.json`` alone. Who may go there is told by the environment (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT`` …); nothing of it is kept or shown.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.filters import Node
from rag_core.protocols import Elsewhere, Vectors
from rag_core.stores.backed import BackedStore, Found, first_line, stacked
from rag_core.stores.lance_index import INDEXES, KEPT_VERSIONS, TABLE, connect, due, index_of, package
from rag_core.stores.lance_where import quoted, to_sql
from rag_core.stores.sortkey import sort_key

__all__ = ["LanceStore"]

#: Ids named in one condition.
IDS_AT_ONCE = 2000
#: Commits after which small files are joined and old versions deleted.
TIDY_AFTER = 50


class LanceStore(BackedStore):
    """Vectors in a LanceDB table. Option ``index``: ``auto`` (by size), ``flat``, ``hnsw_sq``, ``ivf_pq``;
    option ``uri``: where the table stands.
    """

    name: ClassVar[str] = "lancedb"
    package: ClassVar[str] = "lancedb"
    extra: ClassVar[str] = "lancedb"
    options: ClassVar[Mapping[str, str]] = {
        "index": ", ".join(["auto", *INDEXES]),
        "uri": "a folder, or s3://BUCKET/PATH (gs://, az://), without credentials",
    }

    _database: Any
    _table: Any
    _index: str
    #: Writes since small files were joined last.
    _commits: int
    _in_bulk = False
    #: Version of the table after the last write here, and an id that none in it is above.
    _highest: tuple[int, str] | None = None

    @classmethod
    def _settings(cls, options: Mapping[str, str]) -> dict[str, Any]:
        index = options.get("index", "auto")
        if index not in ("auto", *INDEXES):
            raise InvalidArgumentError(
                f"store {cls.name!r}: index is {index!r}; accepted: {cls.options['index']}"
            )
        return {"index": index} | ({"uri": _checked_uri(options["uri"])} if "uri" in options else {})

    @classmethod
    def _require(cls) -> Any:
        return package()

    def _create(self) -> None:
        if "uri" in self.settings:  # a name that no other store has below the same address
            self.settings["place"] = f"{self.settings['uri']}/{self.path.name}-{secrets.token_hex(6)}"
        schema = _schema(self._identity.dim)

        def create() -> Any:
            self._open_database()
            return self._database.create_table(TABLE, schema=schema, mode="overwrite")

        self._table = self._guarded("create a table", create)
        self._index, self._commits = "flat", 0

    def _connect(self) -> None:
        try:
            self._open_database()
            self._table = self._database.open_table(TABLE)
            dim = self._table.schema.field("vector").type.list_size
            self._index, self._commits = index_of(self._table), 0
        except Exception as error:  # whatever the database calls it
            said = f"{self.path} is damaged: {first_line(error)}; rebuild the store"
            if "place" in self.settings:
                said = f"{self.settings['place']} cannot be opened: {first_line(error)}; check AWS_ENDPOINT "
                said += "and the other AWS_ variables, or rebuild the store"
            raise StoreError(said) from error
        if dim != self._identity.dim:
            raise StoreError(
                f"{self.path} is damaged: vectors are {dim} wide for an embedder {self._identity.dim} wide; "
                "rebuild the store"
            )

    def _open_database(self) -> None:
        self._database = connect(self._place)

    @property
    def _place(self) -> str:
        return str(self.settings.get("place", self.path))

    @classmethod
    def discard(cls, settings: Mapping[str, Any]) -> None:
        """Remove the table of a store whose folder goes; nothing where it stands in that folder.

        Raises:
            StoreError: it cannot be reached, or refuses.
        """
        if "place" not in settings:
            return
        try:
            connect(str(settings["place"])).drop_table(TABLE, ignore_missing=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise StoreError(f"{settings['place']} could not be removed: {first_line(error)}") from error

    def _disconnect(self) -> None:
        self._table = self._database = None

    def _count(self) -> int:
        # Another process may have built an index since, which must be asked in its own way. Looked up here,
        # as whoever moves to a new version counts its rows: before every search it would be one more request.
        self._index = self._guarded("read", index_of, self._table)
        return int(self._table.count_rows())

    def _put(self, ids: list[str], rows: Vectors, metadata: list[str]) -> None:
        import pyarrow as pa

        keys = [_keys(text) for text in metadata]
        flat = pa.array(rows.ravel())
        columns = [
            pa.array(ids, pa.string()),
            _json_array(metadata),
            _json_array(keys),
            pa.FixedSizeListArray.from_arrays(flat, self._identity.dim),
        ]
        batch = pa.table(columns, schema=_schema(self._identity.dim))
        highest = self._highest_id()
        if highest is not None and min(ids) > highest:  # a join with all ids that are there costs more
            self._guarded("write", self._table.add, batch)
        else:
            merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            self._guarded("write", merge.execute, batch)
        self._commits += 1
        self._care()
        self._highest = None if highest is None else (self._table.version, max(highest, *ids))

    def _highest_id(self) -> str | None:
        """An id that none here is above; None where that is not known, as another may have written."""
        if self._highest is not None and self._highest[0] == self._table.version:
            return self._highest[1]
        return "" if self._count() == 0 else None

    def _remove(self, ids: list[str]) -> int:
        removed = 0
        for start in range(0, len(ids), IDS_AT_ONCE):
            named = ", ".join(map(quoted, ids[start : start + IDS_AT_ONCE]))
            removed += self._guarded("delete", self._table.delete, f"id IN ({named})").num_deleted_rows
        return removed

    def _vectors(self, ids: list[str]) -> tuple[list[str], Vectors]:
        found: list[str] = []
        rows: list[Any] = []
        for start in range(0, len(ids), IDS_AT_ONCE):
            part = ids[start : start + IDS_AT_ONCE]
            named = ", ".join(map(quoted, part))
            query = self._table.search().where(f"id IN ({named})").select(["id", "vector"]).limit(len(part))
            page = self._guarded("read", query.to_arrow)
            found += page["id"].to_pylist()
            rows += [chunk.flatten().to_numpy() for chunk in page["vector"].chunks]
        return found, stacked(rows, self._identity.dim)

    def _stored(self, ids: list[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(ids), IDS_AT_ONCE):
            part = ids[start : start + IDS_AT_ONCE]
            query = self._table.search().where(f"id IN ({', '.join(map(quoted, part))})")
            rows = self._guarded("read", query.select(["id"]).limit(len(part)).to_arrow)
            found.update(rows["id"].to_pylist())
        return found

    def _nearest(self, unit: Vectors, wanted: int, where: Node | None) -> Found:
        query = self._table.search(unit, vector_column_name="vector").distance_type("cosine").limit(wanted)
        query = query.select(["id", "vector", "_distance"])
        if where is not None:
            query = query.where(to_sql(where), prefilter=True)
        kind = INDEXES[self._index]
        for call, value in (kind.ask if kind else {}).items():
            value = max(value, 2 * wanted) if call == "ef" else value
            query = getattr(query, call)(value)
        found = self._guarded("search", query.to_arrow)
        rows = stacked([chunk.flatten().to_numpy() for chunk in found["vector"].chunks], self._identity.dim)
        return Found(found["id"].to_pylist(), rows, found["_distance"].to_pylist())

    @contextmanager
    def bulk(self, elsewhere: Elsewhere | None = None) -> Iterator[None]:
        """For many writes in a row: the index is built, or takes in what was written, once, after the last.

        Until then searches look through the new rows one by one. Nothing is built where the block fails.

        Args:
            elsewhere: where that is done, which takes minutes from a million rows on, and for HNSW as much
                memory as all vectors have; None: here.
        """
        self._check_open()
        self._in_bulk = True
        try:
            yield
        finally:
            self._in_bulk = False
        highest = self._highest_id()
        self._care(elsewhere)
        self._highest = None if highest is None else (self._table.version, highest)

    def _care(self, elsewhere: Elsewhere | None = None) -> None:
        """Bring index and files in order, unless more is written at once."""
        is_untidy = self._commits >= TIDY_AFTER
        if is_untidy and self._index == "flat":
            self._guarded("tidy", self._table.optimize, cleanup_older_than=KEPT_VERSIONS)
            self._commits, is_untidy = 0, False
        if self._in_bulk:
            return
        place = self.settings.get("place") or str(self.path.absolute())
        upkeep = due(self._table, place, self.settings["index"], self._index, is_untidy=is_untidy)
        if upkeep is None:
            return
        self._guarded("index", upkeep if elsewhere is None else partial(elsewhere, upkeep))
        self._index = upkeep.kind
        if not upkeep.is_learned:
            self._commits = 0


def _checked_uri(uri: str) -> str:
    """``uri`` without a final slash; a folder as an absolute path."""
    parts = urlsplit(uri)
    if not uri or "@" in parts.netloc or parts.query or parts.fragment or (parts.scheme and not parts.netloc):
        # not shown: this is where people put keys
        raise InvalidArgumentError(
            "store 'lancedb': uri is no address, or holds a user name or a query; accepted: a folder, or "
            "s3://BUCKET/PATH, with the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return uri.rstrip("/") if parts.scheme else str(Path(uri).expanduser().absolute())


def _schema(dim: int) -> Any:
    """Columns as they are written: LanceDB turns JSON text into a binary form of its own."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("metadata", pa.json_()),
            pa.field("keys", pa.json_()),
            pa.field("vector", pa.list_(pa.float32(), dim)),
        ]
    )


def _keys(metadata: str) -> str:
    keys = {field: sort_key(value) for field, value in json.loads(metadata).items()}
    return json.dumps(keys, ensure_ascii=False)


def _json_array(texts: list[str]) -> Any:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts, pa.string()))

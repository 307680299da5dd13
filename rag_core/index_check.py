"""Whether the vector leg still has every row of a version: a database may lose rows that it had taken.

Engines cut their logs behind a full disk, folders are copied by halves, databases on a server are dropped.
Rows that are gone would only make answers worse, so an index that lacks some is refused, with the command
that makes them again from the texts, which the index keeps itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import Manifest, sync_folder
from rag_core.index_rows import live_rows
from rag_core.index_table import LIVE, Table
from rag_core.protocols import Vectors, VectorStore
from rag_core.seen import SeenKeys
from rag_core.stores.files import replace_file
from rag_core.types import Ranking

__all__ = [
    "INTENT",
    "STALE",
    "LostStore",
    "check_kept",
    "check_rows",
    "damaged",
    "intended",
    "stale",
    "write_intent",
]

#: The keys that a writer is about to add to or take from the store; there while it does.
INTENT = "intent.json"
#: Of a version: keys that died with it, which readers of the version before it may still look for.
STALE = "stale.json"
#: Keys looked up in a store at once.
KEYS_AT_ONCE = 1 << 16


def stale(folder: Path, manifest: Manifest) -> list[str]:
    """The keys that died with the version in force."""
    try:
        found = json.loads((folder / "generations" / manifest.table / STALE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(key) for key in found]


def write_intent(folder: Path, vectors: str, keys: Iterable[str]) -> None:
    """Say that ``keys`` are about to be added to or taken from the store ``vectors``: JSON, a key a line.

    Raises:
        OSError: the disk is full or refuses.
    """

    def write(stream: IO[bytes]) -> None:
        stream.write(f'{{"vectors": {json.dumps(vectors)}, "keys": [\n'.encode())
        separator = b""
        for key in keys:
            stream.write(separator + json.dumps(key).encode())
            separator = b",\n"
        stream.write(b"\n]}")

    replace_file(folder / INTENT, write)
    sync_folder(folder)


def intended(folder: Path) -> tuple[str, Iterator[str]] | None:
    """The store's folder and the keys of a writer that has not finished; None where all have.

    A file that says nothing, which no crash leaves, is an intent about nothing.
    """
    path = folder / INTENT
    try:
        with path.open(encoding="utf-8") as stream:
            begin = stream.readline()
            if begin.endswith("[\n"):
                return str(json.loads(begin + "]}")["vectors"]), _key_lines(path)
            intent = json.loads(begin + stream.read())  # as earlier versions wrote it: in one line
        return str(intent["vectors"]), iter([str(key) for key in intent["keys"]])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return "", iter(())


def _key_lines(path: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, ValueError), path.open(encoding="utf-8") as stream:
        next(stream, "")
        for line in stream:
            if line.startswith('"'):
                yield str(json.loads(line.rstrip(",\n")))


def damaged(folder: Path, what: str) -> StoreError:
    """The error of an index whose texts are whole and whose vectors are not."""
    return StoreError(
        f"{what}. The texts are kept: make the vectors again with rag rebuild --index {folder}, or "
        f"Index.open(path, check_store=False).rebuild(embedder)"
    )


def check_rows(folder: Path, manifest: Manifest, table: Table, store: VectorStore) -> None:
    """Refuse a store that lacks rows of this version.

    Costs one count, and a look at the keys that a writer has still to take away.

    Raises:
        StoreError: rows are missing; their number, and what to type.
    """
    live = table.count(LIVE)
    lost = live - _count_of(folder, manifest, table, store)
    missing = getattr(store, "missing", None)
    if lost > 0 and missing is not None:  # a writer at work may have moved what was counted: look at each
        parts = live_rows(table, None, KEYS_AT_ONCE)
        lost = sum(len(missing([table.key(row) for row in rows.tolist()])) for rows in parts)
    if lost > 0:
        raise damaged(folder, f"{folder}: the vector store has lost {lost:,} of {live:,} rows")


def _count_of(folder: Path, manifest: Manifest, table: Table, store: VectorStore) -> int:
    """Rows of the version in the store, as far as counting tells."""
    if not hasattr(store, "missing"):
        return store.count()
    found = intended(folder)
    named = found[1] if found and found[0] == manifest.vectors else ()
    others = (key for key in chain(stale(folder, manifest), named) if table.row_of_key(key) < 0)
    # in this order: a row that a writer adds in between may hide a loss for a while, never feign one
    there = 0
    with SeenKeys() as seen:
        fresh = (key for key in others if seen.add(key.encode("utf-8", "surrogatepass")))
        while part := list(islice(fresh, KEYS_AT_ONCE)):
            there += len(part) - len(store.missing(part))
    return store.count() - there


def check_kept(folder: Path, store: VectorStore, keys: Sequence[str]) -> None:
    """Refuse to go on where a store lacks rows that it has just said it took.

    Raises:
        StoreError: their number; the version in force stands.
    """
    missing = getattr(store, "missing", None)
    if missing is not None and (lost := len(missing(keys))):
        raise StoreError(
            f"{folder}: the vector store did not keep {lost:,} of {len(keys):,} rows; the version before it "
            "stands. See that the disk has room, and run the same command again"
        )


class LostStore:
    """Stands for a store that cannot be opened, in an index that is opened to be rebuilt."""

    def __init__(self, identity: Fingerprint, error: StoreError) -> None:
        self._identity, self._error = identity, error

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors were stored."""
        return self._identity

    def count(self) -> int:
        """Nothing is left."""
        return 0

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """Raises the error that the store was opened with."""
        raise self._error

    def upsert(
        self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Raises the error that the store was opened with."""
        raise self._error

    def delete(self, ids: Sequence[str]) -> int:
        """Nothing is left to delete."""
        return 0

    def close(self) -> None:
        """Nothing is open."""

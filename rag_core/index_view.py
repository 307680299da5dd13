"""One version of an index, opened: its rows, texts, BM25, and the store as that version sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_core.bm25 import BM25
from rag_core.errors import IdentityMismatchError, RagCoreError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index_check import LostStore, check_rows, damaged
from rag_core.index_files import Manifest
from rag_core.index_table import LIVE, Documents, Segment, Table
from rag_core.protocols import Vectors, VectorStore
from rag_core.stores import open_store
from rag_core.stores.identity import check_identity
from rag_core.types import EMPTY_RANKING, Ranking

__all__ = ["StoreView", "Version", "is_snapshot"]

#: A reader that comes while versions follow one another tries this often to catch one.
TRIES = 20


def is_snapshot(store: VectorStore) -> bool:
    """Whether an open store keeps showing what it held when it was opened, whatever others write."""
    return bool(getattr(store, "is_snapshot", False))


class StoreView:
    """A vector store through the eyes of one version; satisfies :class:`rag_core.protocols.VectorStore`.

    The store holds a row for each form of a document: rows that a writer has added for a version to come,
    or not yet taken away, are never found here.
    """

    def __init__(self, store: VectorStore, table: Table) -> None:
        self.store, self._table = store, table
        self._live = table.count(LIVE)
        self._spare = max(0, store.count() - self._live)

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors are stored."""
        return self.store.identity

    def count(self) -> int:
        """Rows of this version."""
        return self._live

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """The ``k`` nearest rows of this version by cosine."""
        asked = k + self._spare
        while True:
            found = self.store.search(vector, asked, where)
            if not found:
                return EMPTY_RANKING
            rows = map(self._table.row_of_key, found.doc_ids)
            kept = [(self._table.ids[row], score) for row, score in zip(rows, found.scores) if row >= 0]
            if len(kept) >= k or len(found) < asked:
                return Ranking.from_scores(kept, k)
            asked = 2 * asked  # more rows of other versions than there were on opening

    def key_of(self, doc_id: str) -> str:
        """The id of a document's row in the store itself, for what a store can do beyond searching.

        It changes with the document. KeyError where this version has no such row.
        """
        row = self._table.find(doc_id)
        if row < 0 or self._table.rows["state"][row] != LIVE:
            raise KeyError(doc_id)
        return self._table.key(row)

    def doc_id_of(self, key: str) -> str:
        """The document of a row of the store; KeyError where it belongs to another version."""
        row = self._table.row_of_key(key)
        if row < 0:
            raise KeyError(key)
        return self._table.ids[row]

    def upsert(
        self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Refused: a row in one leg alone would never be found in the other."""
        raise StoreError("the store of an index is written by Index.ingest, with the words of the same texts")

    def delete(self, ids: Sequence[str]) -> int:
        """Refused, like :meth:`upsert`."""
        raise StoreError("rows of an index are removed by Index.delete, with the words of the same texts")

    def close(self) -> None:
        """Release the store's files."""
        self.store.close()


@dataclass(frozen=True, slots=True)
class Version:
    """What a search needs; never changed, so that a search that has begun ends with the version it began."""

    manifest: Manifest
    table: Table
    documents: Documents
    bm25: BM25
    store: StoreView

    @classmethod
    def open(
        cls,
        folder: Path,
        wanted: Fingerprint | None = None,
        store: VectorStore | None = None,
        *,
        check: bool = True,
    ) -> Version:
        """The version that is in force.

        Args:
            wanted: refuse an index of another embedder.
            store: an open store, no snapshot, that is the one of the version in force.
            check: False lets a store pass that has lost rows, or cannot be opened; to rebuild from it.

        Raises:
            StoreError: no index there, or it is damaged.
            IdentityMismatchError: built with another embedder.
        """
        for attempt in range(TRIES):
            manifest = Manifest.read(folder)
            check_identity(f"the index {folder}", manifest.identity, wanted)
            try:
                version = cls.of(folder, manifest, wanted, store, check=check)
            except (OSError, ValueError, StoreError) as error:
                if attempt + 1 < TRIES and Manifest.read(folder).generation != manifest.generation:
                    continue  # a writer has replaced it meanwhile
                if isinstance(error, RagCoreError):
                    raise
                raise StoreError(f"{folder} is damaged: {error}; build it again") from error
            # The rows taken away with a version are gone from the store as well: the two must be of one age.
            if store is version.store.store or Manifest.read(folder).generation == manifest.generation:
                return version
            version.close()
        raise StoreError(f"{folder}: new versions appear faster than one can be opened; try again")

    @classmethod
    def of(
        cls,
        folder: Path,
        manifest: Manifest,
        wanted: Fingerprint | None = None,
        store: VectorStore | None = None,
        *,
        check: bool = True,
    ) -> Version:
        """The version that ``manifest`` describes; errors of the disk are passed on."""
        generation = folder / "generations" / manifest.table
        table = Table.open(generation)
        documents = Documents(table, [Segment(folder / "texts" / name) for name in manifest.segments])
        bm25 = BM25.open(generation / "bm25")
        is_ours = store is None
        if store is None:
            store = _opened(folder, manifest, wanted, check)
        try:
            if check:
                check_rows(folder, manifest, table, store)
            return cls(manifest, table, documents, bm25, StoreView(store, table))
        except BaseException:
            if is_ours:  # else its readers go on with it
                store.close()
            raise

    def newest(self, folder: Path, wanted: Fingerprint | None = None) -> Version:
        """This version if it is still in force, else the one that is; with ``wanted`` as in :meth:`open`."""
        manifest = Manifest.read(folder)
        if manifest == self.manifest:
            return self
        store = self.store.store
        shares = manifest.vectors == self.manifest.vectors and not is_snapshot(store)
        return Version.open(folder, wanted, store if shares else None)

    def digest(self) -> str:
        """See :meth:`rag_core.index.Index.digest`."""
        failed = "\0".join(sorted(self.manifest.failed))
        whole = f"{self.manifest.identity.digest} {self.bm25.analyser.name} {self.table.digest()} {failed}"
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()

    def close(self) -> None:
        """Release the store's files."""
        self.store.close()


def _opened(folder: Path, manifest: Manifest, wanted: Fingerprint | None, check: bool) -> VectorStore:
    try:
        return open_store(manifest.store, folder / "vectors" / manifest.vectors, wanted)
    except IdentityMismatchError:
        raise
    except StoreError as error:
        if check and any(words in str(error) for words in ("rebuild the store", "holds no store")):
            raise damaged(folder, str(error).replace("; rebuild the store", "")) from error
        if check:
            raise
        return LostStore(manifest.identity, error)

"""One folder that answers questions: texts, vectors, BM25 and the identity of the embedder.

::

    index.json            which version is in force, and the files that belong to it
    generations/N-…/      ids, rows and the BM25 index of that version, opened by memory map
    texts/N-….jsonl       documents; a new version adds a file and rewrites none
    vectors/N-…/          the vector store
    pending-…/            vectors of an ingest under way; the next run uses them
    intent.json           rows that a writer is adding to the store or taking away; there while it does
    writer.lock           held by the one process that writes
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rag_core.analysis import Analyser
from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.index_change import delete_rows, ingest_documents, plan_documents, rebuild_rows
from rag_core.index_files import MANIFEST, disk_errors, writing
from rag_core.index_journal import Journal
from rag_core.index_open import OpenIndex
from rag_core.index_report import IngestPlan, IngestReport
from rag_core.index_search import Hit, SearchResult
from rag_core.index_sources import Given, given_documents
from rag_core.index_view import Version
from rag_core.index_write import first_version, new_name
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.stores import create_store
from rag_core.types import Document

if TYPE_CHECKING:
    from rag_core.scale.ahead import Ahead
    from rag_core.scale.engine import EmbedEngine

__all__ = ["Hit", "Index", "IngestPlan", "IngestReport", "SearchResult"]

BATCH = 64


class Index(OpenIndex):
    """Documents with their vectors and BM25 postings, opened with the embedder that built it.

    An open index shows one version, whole, until :meth:`refresh` or its own writing moves it on. Any number
    of processes may read a folder while one writes it.

    >>> from rag_core import Document, get_embedder
    >>> index = Index.build(folder, [Document("d1", "The ferry leaves at nine.")], get_embedder("fake"))
    >>> index.hybrid_search("ferry")[0].document.doc_id
    'd1'
    >>> index.ingest([Document("d2", "The bus leaves at ten.")]).added
    1
    """

    @classmethod
    def create(
        cls,
        path: str | Path,
        embedder: EmbedProvider,
        *,
        reranker: Reranker | None = None,
        store: str = "flat",
        analyser: Analyser | None = None,
    ) -> Self:
        """A new, empty index, to be filled by :meth:`ingest`, of which a crash loses one batch at most.

        ``path`` may be what a process that was killed while creating an index left.

        Raises:
            StoreError: ``path`` holds an index or something else, or cannot be written.
            UnknownNameError: no store of that name.
        """
        path = Path(path)
        ours = ("writer.lock", "generations", "vectors")
        if path.exists() and (
            not path.is_dir()
            or any(f.name not in ours and not f.match(f".{MANIFEST}.*.tmp") for f in path.iterdir())
        ):
            raise StoreError(f"{path} exists and is not an empty folder; choose another, or delete it first")
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            with writing(path):
                for part in ours[1:]:
                    shutil.rmtree(path / part, ignore_errors=True)
                for found in path.glob(f".{MANIFEST}.*.tmp"):
                    found.unlink()
                vectors = new_name(1)
                create_store(store, path / "vectors" / vectors, embedder.fingerprint).close()
                first_version(path, store, vectors, embedder.fingerprint, analyser)
        return cls.open(path, embedder, reranker=reranker)

    @classmethod
    def build(
        cls,
        path: str | Path,
        documents: Iterable[Document],
        embedder: EmbedProvider,
        *,
        reranker: Reranker | None = None,
        store: str = "flat",
        analyser: Analyser | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Embed and index ``documents`` into the new folder ``path``, whole or not at all.

        An empty document stays a known id, is not sent to the embedder and is never a hit. For documents that
        come over time, or whose embedding must survive a crash: :meth:`create` and :meth:`ingest`.

        Args:
            progress: called with (documents embedded, documents in all).

        Raises:
            StoreError: ``path`` exists and is not an empty folder.
            InvalidArgumentError: two documents have the same id.
            ProviderError: the embedder failed; nothing is left behind.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError(f"{path} exists and is not an empty folder; choose another, or delete it first")
        given = list(documents)
        filled = sum(not document.is_empty for document in given)

        def told(stage: str, done: int, total: int) -> None:
            if progress is not None and stage == "embed":
                progress(done, filled)

        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.building-"))
        try:
            index = cls.create(building, embedder, store=store, analyser=analyser)
            try:
                index._ingest(given, told, BATCH, strict=True)
            finally:
                index.close()
            with disk_errors(path):
                if path.exists():
                    path.rmdir()
                building.rename(path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return cls.open(path, embedder, reranker=reranker)

    def ingest(
        self,
        source: Iterable[Document] | str | Path,
        *,
        progress: Progress | None = None,
        batch: int = BATCH,
        prune: bool = False,
        max_tokens: int = 256,
        overlap: int = 32,
        engine: EmbedEngine | None = None,
    ) -> IngestReport:
        """Bring the index up to date with ``source``; what has not changed is neither embedded nor rewritten.

        Readers see the version before until the new one is whole. A process that is killed, or whose
        embedder goes down, keeps every batch it had finished: run the same ingest again. Texts that the
        embedder refuses are named in the report, and the index is marked partial; a changed document of
        that kind stays searchable in its old form.

        Args:
            source: documents; or a folder or file of .txt, .md, .html, .pdf and .jsonl, which is read and cut
                into chunks. Chunks that a file no longer holds are removed.
            progress: called with ("embed", "index words", "store" or "index vectors", done, total); total 0
                if not known.
            batch: texts embedded, and safe, at a time.
            prune: also remove what ``source`` does not hold; nothing of a file that could not be read.
            max_tokens: of a chunk with its title.
            overlap: tokens that a chunk repeats of the one before.
            engine: makes the vectors, and the store's index of them where it has one, elsewhere, such as
                :class:`rag_core.scale.RayEngine`; the result is the same. ``source`` is then gone through
                twice.

        Raises:
            InvalidArgumentError: no embedder, an iterator for an engine, an id that stands twice, metadata
                that are not JSON values.
            IdentityMismatchError: the index has been rebuilt with another embedder meanwhile.
            ProviderError: the embedder is down; finished batches are kept.
            StoreError: another writer is at work (it is named), or the disk is full.
        """
        return self._ingest(
            source, progress, batch, prune=prune, max_tokens=max_tokens, overlap=overlap, engine=engine
        )

    def _ingest(
        self,
        source: Iterable[Document] | str | Path,
        progress: Progress | None,
        batch: int,
        *,
        prune: bool = False,
        max_tokens: int = 256,
        overlap: int = 32,
        strict: bool = False,
        engine: EmbedEngine | None = None,
    ) -> IngestReport:
        embedder = self._own_embedder()

        def given_now() -> Given:
            return given_documents(
                source, embedder.count_tokens, max_tokens=max_tokens, overlap=overlap, prune=prune
            )

        def ahead(version: Version, journal: Journal) -> Ahead:
            from rag_core.scale.ahead import embed_ahead

            assert engine is not None
            documents = given_now().documents
            return embed_ahead(engine, version, embedder, journal, documents, batch=batch, progress=progress)

        if engine is not None and isinstance(source, Iterator):
            raise InvalidArgumentError(
                "an engine goes through the documents twice, and the source is an iterator; accepted: "
                "a folder, a file, or an object that can be gone through again"
            )
        given = given_now()
        version, report = ingest_documents(
            self.path,
            self._version,
            embedder,
            given,
            prune=prune,
            batch=batch,
            strict=strict,
            progress=progress,
            ahead=ahead if engine is not None else None,
            elsewhere=engine.elsewhere if engine is not None else None,
        )
        self._version = version
        return report

    def plan(
        self,
        source: Iterable[Document] | str | Path,
        *,
        prune: bool = False,
        max_tokens: int = 256,
        overlap: int = 32,
    ) -> IngestPlan:
        """What :meth:`ingest` would do, and the texts it would embed; nothing is embedded or written."""
        embedder = self._own_embedder()
        given = given_documents(
            source, embedder.count_tokens, max_tokens=max_tokens, overlap=overlap, prune=prune
        )
        return plan_documents(
            self._version, Journal(self.path, self.identity, read_only=True), given, prune=prune
        )

    def delete(self, ids: Iterable[str]) -> int:
        """Remove documents from both legs; returns how many there were. Unknown ids are no error.

        Raises:
            StoreError: another writer is at work, or the disk is full.
        """
        if isinstance(ids, str):
            raise InvalidArgumentError(f"ids is one string, {ids!r}; accepted: several, such as [{ids!r}]")
        self._version, count = delete_rows(self.path, self._version, set(ids))
        return count

    def rebuild(
        self,
        embedder: EmbedProvider,
        *,
        store: str | None = None,
        progress: Progress | None = None,
        batch: int = BATCH,
    ) -> IngestReport:
        """Embed every text with ``embedder``, into a new store; the old version answers until that is whole.

        Also the way to another store. An interrupted rebuild goes on where it was.

        Raises:
            ProviderError: the embedder is down; finished batches are kept, the old version stands.
            StoreError: another writer is at work, or the disk is full.
        """
        version, report = rebuild_rows(
            self.path, self._version, embedder, store or self.store_name, batch=batch, progress=progress
        )
        self._version, self.embedder = version, embedder
        return report

    def _own_embedder(self) -> EmbedProvider:
        if self.embedder is None:
            raise InvalidArgumentError("the index was opened without an embedder: Index.open(path, embedder)")
        return self.embedder

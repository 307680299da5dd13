"""The vectors of an ingest, made by an engine ahead of the writer, which then finds every one at hand.

The documents are gone through twice: here, to write the texts without a vector into shards; and by the
writer. What stays in this process between two documents does not grow with the corpus.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rag_core.errors import ProviderError
from rag_core.index_files import disk_errors
from rag_core.index_journal import Journal
from rag_core.index_table import FAILED, tags_of
from rag_core.index_view import Version
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider
from rag_core.scale.engine import EmbedEngine, EmbedJob, shard_path
from rag_core.scale.shards import write_shard
from rag_core.seen import SeenKeys
from rag_core.types import Document

__all__ = ["Ahead", "embed_ahead"]

SHARDS = "shards"


@dataclass(slots=True)
class Ahead:
    """What an engine did.

    Attributes:
        texts: texts without a vector.
        embedded: of these, texts that have one now.
        failed: tag -> why it has none.
    """

    texts: int = 0
    embedded: int = 0
    failed: dict[bytes, str] = field(default_factory=dict)


def embed_ahead(
    engine: EmbedEngine,
    version: Version,
    embedder: EmbedProvider,
    journal: Journal,
    documents: Iterable[Document],
    *,
    batch: int,
    progress: Progress | None = None,
) -> Ahead:
    """Bring the vectors of ``documents`` that are not at hand into ``journal``.

    A run that was cut short left the fragments it had finished in the journal; only the rest goes out.

    Args:
        documents: those that the writer will go through.
        batch: texts of a call of the embedder.

    Raises:
        ProviderError: the embedder is down, or refuses everything; finished fragments are kept.
        StoreError: the disk is full.
    """
    folder = journal.folder / SHARDS
    size = max(batch, engine.shard_texts // batch * batch)
    with disk_errors(journal.folder.parent):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        n_shards, done = 0, Ahead()
        for tags, texts in _shards(_texts(version, journal, documents), size):
            write_shard(shard_path(folder, n_shards), tags, texts)
            done.texts += len(tags)
            n_shards += 1
    job = EmbedJob(
        provider=engine.provider or embedder.name,
        target=embedder.target,
        identity=embedder.fingerprint.as_dict(),
        shards=str(folder.absolute()),
        fragments=str(journal.folder.absolute()),
        batch=batch,
    )
    try:
        _collect(engine, job, n_shards, done, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    journal.reread()
    return done


def _collect(
    engine: EmbedEngine, job: EmbedJob, n_shards: int, done: Ahead, progress: Progress | None
) -> None:
    if not n_shards:
        return
    for report in engine.run(job, n_shards):
        if report.error is not None:
            raise report.error
        done.embedded += report.embedded
        done.failed.update(report.failed)
        shard_path(Path(job.shards), report.number).unlink(missing_ok=True)
        if progress is not None:
            progress("embed", done.embedded + len(done.failed), done.texts)
    if not done.embedded:
        raise ProviderError(f"{job.provider}: no text could be embedded: {next(iter(done.failed.values()))}")


def _texts(version: Version, journal: Journal, documents: Iterable[Document]) -> Iterator[tuple[bytes, str]]:
    """Each text that neither the journal nor the version in force has a vector of, once, in order."""
    table, takes_over = version.table, hasattr(version.store.store, "vectors_of")
    with SeenKeys() as seen:
        for document in documents:
            if document.is_empty:
                continue
            tags = tags_of(document)
            row = table.find(document.doc_id)
            if row >= 0 and table.rows["state"][row] != FAILED and table.content(row) == tags.content:
                continue
            if tags.text in journal or (takes_over and table.row_of_text(tags.text) >= 0):
                continue
            if seen.add(tags.text):
                yield tags.text, document.indexed_text


def _shards(pairs: Iterator[tuple[bytes, str]], size: int) -> Iterator[tuple[list[bytes], list[str]]]:
    tags, texts = list[bytes](), list[str]()
    for tag, text in pairs:
        tags.append(tag)
        texts.append(text)
        if len(tags) == size:
            yield tags, texts
            tags, texts = [], []
    if tags:
        yield tags, texts

"""From documents to rows: what is new, what is embedded, what failed. Nothing here becomes visible."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import (
    InvalidArgumentError,
    NoFallbackError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    TransientError,
)
from rag_core.index_files import disk_errors
from rag_core.index_journal import Journal
from rag_core.index_rows import NewRows
from rag_core.index_table import EMPTY, FAILED, LIVE, ROW, SegmentWriter, Table, Tags, line_of, tags_of
from rag_core.index_view import Version
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider, Vectors
from rag_core.seen import SeenKeys
from rag_core.types import Document

__all__ = ["Classified", "Ingest", "classify", "embed_all", "row_record", "vector_check"]

#: Errors that the next text would meet as well.
STOPPING = (TransientError, PermanentError, NoFallbackError)
Record = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Classified:
    """A document against the version in force. ``row`` is its row there, or -1."""

    document: Document
    tags: Tags
    row: int
    is_unchanged: bool


def classify(table: Table, seen: SeenKeys, document: Document) -> Classified:
    """Compare ``document`` with ``table``; ``seen`` takes its id.

    Raises:
        InvalidArgumentError: the id was seen before, or the metadata are not plain JSON values.
    """
    doc_id = document.doc_id
    tags = tags_of(document)
    if not seen.add(doc_id.encode()):
        raise InvalidArgumentError(f"document id {doc_id!r} stands twice; ids must be distinct")
    row = table.find(doc_id)
    same = row >= 0 and table.rows["state"][row] != FAILED and table.content(row) == tags.content
    return Classified(document, tags, row, same)


def vector_check(vectors: Vectors) -> list[int]:
    """64 bits over each row, to tell whether two builds hold the same vectors."""
    return [
        int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")
        for row in np.ascontiguousarray(vectors, "<f4")
    ]


def row_record(tags: Tags, vector: int, place: tuple[int, int], segment: int, state: int) -> Record:
    """The values of a :data:`rag_core.index_table.ROW`."""
    words = [tuple(int(word) for word in np.frombuffer(tag, "<u8")) for tag in (tags.content, tags.text)]
    return (*words, vector, *place, segment, state)


def embed_all(
    embedder: EmbedProvider, texts: Sequence[str], *, strict: bool
) -> tuple[Vectors, dict[int, str]]:
    """Embed ``texts``; those that have no vector come back with the reason (position -> reason).

    A call that fails as a whole, and not for a reason that every call would meet, is halved until the
    text at fault stands alone.

    Raises:
        ProviderError: the embedder is down or refuses everything; with ``strict``, whatever failed.
    """
    try:
        return embedder.embed(texts, role="document"), {}
    except PartialEmbedError as error:
        if strict or (error.is_transient and len(error.failed) == len(texts)):
            raise
        return error.vectors, dict(error.failed)
    except STOPPING:
        raise
    except ProviderError as error:
        if strict:
            raise
        if len(texts) == 1:
            return np.zeros((1, embedder.dim), np.float32), {0: str(error)}
        half = len(texts) // 2
        left, failed = embed_all(embedder, texts[:half], strict=False)
        right, more = embed_all(embedder, texts[half:], strict=False)
        failed.update({half + position: reason for position, reason in more.items()})
        return np.concatenate([left, right]), failed


class Ingest:
    """The rows of a version to come, made batch by batch; each batch is in the journal before the next.

    Attributes:
        added: the new rows.
        failed: id -> why it has no vector.
        refused: tag of a text -> why it has no vector, where it was asked for before.
        replaced: bool per old row: another form of its document stands in the new rows.
        given: bool per old row: the source holds its id.
        counts: of :class:`rag_core.index_report.IngestReport`.
    """

    def __init__(
        self,
        version: Version,
        embedder: EmbedProvider,
        journal: Journal,
        segment: SegmentWriter,
        *,
        batch: int,
        strict: bool,
        progress: Progress | None,
        total: int,
    ) -> None:
        if batch < 1:
            raise InvalidArgumentError(f"batch is {batch}; accepted: a whole number from 1")
        self._version, self._embedder, self._journal, self._segment = version, embedder, journal, segment
        self._number = len(version.manifest.segments)
        self._batch, self._strict, self._progress, self._total = batch, strict, progress, total
        self._seen = SeenKeys()
        self._waiting: list[Classified] = []
        self._asked: dict[bytes, str] = {}
        self._taken: dict[bytes, str] = {}
        self._done = self._told = 0
        self.added = NewRows(segment.path.parent.parent)
        self.failed: dict[str, str] = {}
        self.refused: dict[bytes, str] = {}
        self.replaced: NDArray[np.bool_] = np.zeros(len(version.table), bool)
        self.given: NDArray[np.bool_] = np.zeros(len(version.table), bool)
        self.counts = dict.fromkeys(
            ("added", "updated", "unchanged", "empty", "embedded_texts", "reused_vectors"), 0
        )

    def saw(self, doc_id: str) -> bool:
        """Whether the source held ``doc_id``."""
        return doc_id.encode() in self._seen

    def close(self) -> None:
        """Let go of what is held beside memory."""
        self._seen.close()
        self.added.close()

    def take(self, documents: Iterable[Document]) -> None:
        """Go through ``documents``.

        Raises:
            InvalidArgumentError: an id stands twice, or metadata are not plain JSON values.
            ProviderError: the embedder is down; the batches before are in the journal.
            StoreError: the disk is full.
        """
        for document in documents:
            found = classify(self._version.table, self._seen, document)
            if found.row >= 0:
                self.given[found.row] = True
            if document.is_empty:
                self.counts["empty"] += 1
            if found.is_unchanged:
                self.counts["unchanged"] += 1
                self._done += not document.is_empty
                continue
            if not document.is_empty and not self._at_hand(found):
                self._asked[found.tags.text] = document.indexed_text
            self._waiting.append(found)
            if len(self._asked) == self._batch or len(self._waiting) == 16 * self._batch:
                self._flush()
        self._flush()

    def _at_hand(self, found: Classified) -> bool:
        """Whether the vector of its text is in the journal, or can be taken over from the store."""
        tag = found.tags.text
        if tag in self._asked or tag in self._taken or tag in self._journal or tag in self.refused:
            return True
        row = self._version.table.row_of_text(tag)
        if row < 0 or not hasattr(self._version.store.store, "vectors_of"):
            return False
        self._taken[tag] = self._version.table.key(row)
        return True

    def _flush(self) -> None:
        failed = {
            one.tags.text: self.refused[one.tags.text]
            for one in self._waiting
            if one.tags.text in self.refused
        }
        if self._taken:
            rows = self._version.store.store.vectors_of(list(self._taken.values()))  # type: ignore[attr-defined]
            with disk_errors(self._journal.folder.parent):
                self._journal.add(list(self._taken), rows)
        if self._asked:
            tags = list(self._asked)
            vectors, positions = embed_all(self._embedder, list(self._asked.values()), strict=self._strict)
            failed |= {tags[position]: reason for position, reason in positions.items()}
            kept = [position for position in range(len(tags)) if position not in positions]
            with disk_errors(self._journal.folder.parent):
                self._journal.add([tags[position] for position in kept], vectors[kept])
            if not kept and len(tags) == self._batch > 1 and not self.counts["embedded_texts"]:
                raise ProviderError(f"{self._embedder.name}: no text could be embedded: {positions[0]}")
            self.counts["embedded_texts"] += len(kept)
        with disk_errors(self._segment.path.parent.parent):
            self._write(failed)
        self._asked.clear()
        self._taken.clear()
        self._waiting.clear()
        if self._progress is not None and self._done != self._told:
            self._told = self._done
            self._progress("embed", self._done, self._total)

    def _write(self, failed: Mapping[bytes, str]) -> None:
        filled = (one for one in self._waiting if not one.document.is_empty)
        tags = [tag for tag in dict.fromkeys(one.tags.text for one in filled) if tag not in failed]
        checks = dict(zip(tags, vector_check(self._journal.fetch(tags))))
        for tag in tags:
            # a vector taken over counts as what it was: bringing it to length 1 again may move its last bit
            if (row := self._version.table.row_of_text(tag)) >= 0:
                checks[tag] = int(self._version.table.rows["vector"][row])
        self.counts["reused_vectors"] += len(set(checks) - set(self._asked))
        ids, records = list[str](), list[Record]()
        for one in self._waiting:
            doc_id = one.document.doc_id
            is_empty = one.document.is_empty
            self._done += not is_empty
            if one.tags.text in failed:
                self.failed[doc_id] = failed[one.tags.text]
                continue
            was_known = one.row >= 0 and self._version.table.rows["state"][one.row] != FAILED
            self.counts["updated" if was_known else "added"] += 1
            if one.row >= 0:
                self.replaced[one.row] = True
            place = self._segment.write(line_of(one.document))
            check, state = (0, EMPTY) if is_empty else (checks[one.tags.text], LIVE)
            ids.append(doc_id)
            records.append(row_record(one.tags, check, place, self._number, state))
        self.added.add(ids, np.array(records, ROW))

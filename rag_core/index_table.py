"""The rows of one version of an index, and the texts they point to: opened by mapping, nothing parsed."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.packed import PackedStrings, let_go, map_array, write_array
from rag_core.types import Document

__all__ = [
    "EMPTY",
    "FAILED",
    "LIVE",
    "ROW",
    "Documents",
    "Rows",
    "Segment",
    "SegmentWriter",
    "Table",
    "Tags",
    "key_of",
    "line_of",
    "tags_of",
]

#: States of a row: in both legs; known, with nothing to index; kept, but in no leg for want of a vector.
LIVE, EMPTY, FAILED = 0, 1, 2
#: content and text: 128 bits each; where the JSON line stands; 64 bits over the vector.
ROW = np.dtype(
    [
        ("content", "<u8", (2,)),
        ("text", "<u8", (2,)),
        ("vector", "<u8"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("segment", "<i4"),
        ("state", "u1"),
    ]
)
#: Parts an id from the digest of its content in the keys of the store. Low, so that keys sort as ids do.
MARK = "\x1f"
Rows = NDArray[np.void]
#: Rows looked at before their pages are let go, where all of a table are gone through.
STRIDE = 1 << 16
#: Documents read likewise.
TEXTS = 1 << 13


@dataclass(frozen=True, slots=True)
class Tags:
    """Two digests of a document, 16 bytes each: of all it holds, and of the text that is embedded."""

    content: bytes
    text: bytes


def tags_of(document: Document) -> Tags:
    """The digests of ``document``.

    Raises:
        InvalidArgumentError: its metadata are not plain JSON values, or its id is no text.
    """
    if not isinstance(document.doc_id, str) or not document.doc_id:
        raise InvalidArgumentError(f"document id {document.doc_id!r} is not a non-empty string")
    metadata = dict(document.metadata)
    try:
        # a lone surrogate may stand in a text, but not where stores look things up
        document.doc_id.encode()
        json.dumps(metadata, ensure_ascii=False).encode()
        content = json.dumps([document.title, document.text, metadata], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"document {document.doc_id!r}: its id or metadata are not plain JSON values: {error}"
        ) from error
    return Tags(_digest(content), _digest(json.dumps(document.indexed_text)))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def key_of(doc_id: str, content: bytes) -> str:
    """The key of a row in the vector store: an id in one form. Another form of it is another row."""
    return f"{doc_id}{MARK}{content[:8].hex()}"


class Table:
    """Ids in the order of their bytes, and a :data:`ROW` for each."""

    def __init__(self, ids: PackedStrings, rows: Rows) -> None:
        self.ids, self.rows = ids, rows

    @classmethod
    def make(cls, ids: Sequence[str], rows: Rows) -> Table:
        """A table of ``ids``, in any order, and their rows."""
        encoded = [doc_id.encode("utf-8", "surrogatepass") for doc_id in ids]
        order = sorted(range(len(ids)), key=encoded.__getitem__)
        return cls(PackedStrings.pack([ids[i] for i in order]), rows[order])

    @classmethod
    def open(cls, folder: Path) -> Table:
        """What :meth:`save` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged.
        """
        ids, rows = PackedStrings.open(folder, "ids"), map_array(folder / "rows.npy")
        if rows.dtype != ROW or len(ids) != len(rows):
            raise ValueError(f"{folder}: {len(ids)} ids and {len(rows)} rows of {rows.dtype}")
        return cls(ids, rows)

    def save(self, folder: Path) -> None:
        """Write the table into ``folder`` and flush it."""
        self.ids.save(folder, "ids")
        write_array(folder / "rows.npy", self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, doc_id: str) -> int:
        """The row of ``doc_id``, or -1."""
        return self.ids.find(doc_id)

    def count(self, state: int) -> int:
        """Rows in ``state``."""
        return self._counts[state]

    @cached_property
    def _counts(self) -> list[int]:
        counts = np.zeros(1 << 8, np.int64)
        for start in range(0, len(self), STRIDE):
            counts += np.bincount(self.rows["state"][start : start + STRIDE], minlength=counts.size)
            let_go(self.rows)
        return [int(count) for count in counts]

    def let_go(self) -> None:
        """Take what was read out of this process's memory, see :func:`rag_core.packed.let_go`."""
        let_go(self.rows)
        self.ids.let_go()

    def content(self, row: int) -> bytes:
        """The digest of all that the document in ``row`` holds."""
        found: bytes = self.rows["content"][row].tobytes()
        return found

    def key(self, row: int) -> str:
        """The key of ``row`` in the vector store."""
        return key_of(self.ids[row], self.content(row))

    def row_of_key(self, key: str) -> int:
        """The row that is searched under ``key``, or -1 where the key belongs to another version."""
        doc_id, _, tag = key.rpartition(MARK)
        row = self.find(doc_id)
        if row < 0 or self.rows["state"][row] != LIVE or self.content(row)[:8].hex() != tag:
            return -1
        return row

    def row_of_text(self, text: bytes) -> int:
        """A row whose embedded text has this digest, or -1."""
        first, second = np.frombuffer(text, "<u8")
        words, order = self._by_text
        at = int(np.searchsorted(words, first))
        while at < len(words) and words[at] == first:
            row = int(order[at])
            if self.rows["text"][row, 1] == second and self.rows["state"][row] == LIVE:
                return row
            at += 1
        return -1

    @cached_property
    def _by_text(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        words = np.ascontiguousarray(self.rows["text"][:, 0])
        order = np.argsort(words, kind="stable")
        return words[order], order

    def digest(self) -> str:
        """64 hexadecimal digits over ids, contents, states and vectors; not over where the texts lie."""
        total = hashlib.sha256()
        total.update(len(self).to_bytes(8, "little"))
        for row in range(len(self)):
            total.update(self.ids[row].encode("utf-8", "surrogatepass") + b"\0")
        for name in ("content", "state", "vector"):
            total.update(np.ascontiguousarray(self.rows[name]).tobytes())
        return total.hexdigest()


class Segment:
    """One file of JSON lines, mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self.size = os.fstat(stream.fileno()).st_size
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from ``offset``; fewer where the file ends."""
        return self._map[offset : offset + length]

    def let_go(self) -> None:
        """Take what was read out of this process's memory, see :func:`rag_core.packed.let_go`."""
        if (advice := getattr(mmap, "MADV_DONTNEED", None)) is not None:
            self._map.madvise(advice)


class SegmentWriter:
    """Writes documents as JSON lines into a new file; the file exists once the first one is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self._stream: Any = None

    def write(self, line: bytes) -> tuple[int, int]:
        """Append ``line``; returns its offset and length."""
        if self._stream is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self.path.open("xb")
        self._stream.write(line)
        at, self.offset = self.offset, self.offset + len(line)
        return at, len(line)

    def finish(self) -> None:
        """Flush to the disk."""
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()

    def abandon(self) -> None:
        """Remove the file; nothing after :meth:`finish` of a version in force."""
        if self._stream is not None:
            with suppress(OSError):  # what it still held does not fit either
                self._stream.close()
            self.path.unlink(missing_ok=True)


def line_of(document: Document) -> bytes:
    """``document`` as one JSON line."""
    row = {
        "_id": document.doc_id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
    }
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


class Documents(Mapping[str, Document]):
    """id -> document, for the rows that are live or empty; each is parsed when it is asked for."""

    def __init__(self, table: Table, segments: Sequence[Segment]) -> None:
        self._table, self.segments = table, list(segments)
        self._length = len(table) - table.count(FAILED)

    def __getitem__(self, doc_id: str) -> Document:
        row = self._table.find(doc_id) if isinstance(doc_id, str) else -1
        if row < 0 or self._table.rows["state"][row] == FAILED:
            raise KeyError(doc_id)
        return self.at(row)

    def __contains__(self, doc_id: object) -> bool:
        row = self._table.find(doc_id) if isinstance(doc_id, str) else -1
        return row >= 0 and bool(self._table.rows["state"][row] != FAILED)

    def __iter__(self) -> Iterator[str]:
        states = self._table.rows["state"]
        return (self._table.ids[row] for row in range(len(self._table)) if states[row] != FAILED)

    def __len__(self) -> int:
        return self._length

    def line(self, row: int) -> bytes:
        """The JSON line of ``row``."""
        place = self._table.rows[row]
        return self.segments[int(place["segment"])].read(int(place["offset"]), int(place["length"]))

    def at(self, row: int) -> Document:
        """The document of ``row``, whatever its state.

        Raises:
            StoreError: its line is damaged.
        """
        try:
            values = json.loads(self.line(row).decode("utf-8", "surrogatepass"))
            return Document(values["_id"], values["text"], values["title"], values["metadata"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise StoreError(
                f"the text of {self._table.ids[row]!r} is damaged ({error}); build the index again"
            ) from error

    def all(self, rows: Iterable[int]) -> Iterator[Document]:
        """The documents of ``rows``, of any number: what was read does not stay in memory."""
        for number, row in enumerate(rows, 1):
            yield self.at(row)
            if number % TEXTS == 0:
                self.let_go()

    def let_go(self) -> None:
        """Take what was read out of this process's memory, see :func:`rag_core.packed.let_go`."""
        self._table.let_go()
        for segment in self.segments:
            segment.let_go()

"""What an ingest is given: documents as they are, or a folder that is read and cut into chunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.chunking import OVERSIZE, check_limits, chunk
from rag_core.errors import InvalidArgumentError
from rag_core.index_table import STRIDE, Table
from rag_core.reading import read_folder
from rag_core.seen import SeenKeys
from rag_core.types import Document

__all__ = ["Given", "given_documents", "removed_rows", "source_of"]

#: Ends the id of a chunk; before it stands the name of its source.
CHUNK_ID = re.compile(r"#[0-9a-f]{12}(?:-\d+)?$")


@dataclass(slots=True)
class Given:
    """Documents to go through once. What was read on the way is known when they are through.

    Attributes:
        documents: the documents.
        total: how many; 0 where that is not known.
        sources: names of the sources that were read, in UTF-8; empty where documents were given.
        skipped: file -> why it, or a part of it, was not read.
        oversize: chunks above the limit.
        is_folder: whether the documents come from files.
    """

    documents: Iterable[Document]
    total: int = 0
    sources: SeenKeys = field(default_factory=SeenKeys)
    skipped: dict[str, str] = field(default_factory=dict)
    oversize: int = 0
    is_folder: bool = False

    def has_read(self, source: str | None) -> bool:
        """Whether ``source`` was among those read."""
        return source is not None and source.encode("utf-8", "surrogatepass") in self.sources


def given_documents(
    source: Iterable[Document] | str | Path,
    count_tokens: Callable[[Sequence[str]], Sequence[int]] | None,
    *,
    max_tokens: int,
    overlap: int,
    prune: bool,
) -> Given:
    """``source`` as documents; a path is a folder or a file to read.

    Raises:
        InvalidArgumentError: no such path, or ``prune`` with a single file.
    """
    if not isinstance(source, (str, Path)):
        return Given(source, len(source) if isinstance(source, Sized) else 0)
    path = Path(source)
    if not path.exists():
        raise InvalidArgumentError(f"{path} does not exist; accepted: a folder or a file to read")
    if prune and not path.is_dir():
        raise InvalidArgumentError(f"prune with one file, {path}, would remove all others; give their folder")
    if count_tokens is None:
        raise InvalidArgumentError(
            f"reading {path} needs an embedder, to count tokens; open the index with one"
        )
    check_limits(max_tokens, overlap)
    given = Given((), is_folder=True)
    given.documents = _chunks(given, path, count_tokens, max_tokens, overlap)
    return given


def _chunks(
    given: Given,
    path: Path,
    count_tokens: Callable[[Sequence[str]], Sequence[int]],
    max_tokens: int,
    overlap: int,
) -> Iterator[Document]:
    for source in read_folder(path, on_skip=given.skipped.__setitem__):
        given.sources.add(source.name.encode("utf-8", "surrogatepass"))
        chunks = chunk(source, max_tokens=max_tokens, overlap=overlap, count_tokens=count_tokens)
        given.oversize += sum(OVERSIZE in one.metadata for one in chunks)
        yield from chunks


def removed_rows(
    table: Table, held: NDArray[np.bool_], failed: Collection[str], given: Given, *, prune: bool
) -> NDArray[np.bool_]:
    """Which old rows go: bool per row of ``table``.

    Chunks that a source no longer has always go, unless a new chunk of that source failed: its old version
    then stays whole. With ``prune`` so does every other row that was not given, except those of files that
    could not be read this time.

    Raises:
        InvalidArgumentError: ``prune``, and not one document could be read from the files.
    """
    gone = np.zeros(len(table), bool)
    if not given.is_folder:
        return ~held if prune else gone
    if prune and not given.sources and len(table):
        raise InvalidArgumentError(
            f"nothing could be read, so prune would remove all {len(table)} documents; "
            "check the folder, or delete the index"
        )
    waiting = {name for doc_id in failed if (name := source_of(doc_id)) is not None}
    unread = {_file_of(name) for name in given.skipped}
    for start in range(0, len(table), STRIDE):
        for row in (np.flatnonzero(~held[start : start + STRIDE]) + start).tolist():
            name = source_of(table.ids[row])
            if given.has_read(name):
                gone[row] = name not in waiting
            elif prune:
                gone[row] = name is None or not (name in unread or name.partition(":")[0] in unread)
        table.let_go()
    return gone


def source_of(doc_id: str) -> str | None:
    """The name of the source of a chunk; None for any other id."""
    found = CHUNK_ID.search(doc_id)
    return doc_id[: found.start()] if found else None


def _file_of(skipped: str) -> str:
    return re.sub(r" line \d+$", "", skipped)

"""A new version of an index: everything is written aside and flushed, then one rename makes it the version.

The order is what keeps both legs in step. The store first gets the rows of the new version, under keys that
no other version knows; then the manifest names the new texts, rows and BM25 index; then the rows that died
are taken from the store. A process killed anywhere leaves a version whose rows are all in both legs, and
``intent.json`` with the keys that the next writer must take back out.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index_check import INTENT, STALE, check_kept, intended, stale, write_intent
from rag_core.index_files import VERSIONED, Manifest, clean, disk_errors, sync_folder
from rag_core.index_journal import Journal
from rag_core.index_rows import NewRows, live_rows, write_table
from rag_core.index_table import (
    FAILED,
    LIVE,
    ROW,
    STRIDE,
    Documents,
    Rows,
    Segment,
    SegmentWriter,
    Table,
)
from rag_core.index_view import Version, is_snapshot
from rag_core.progress import Progress
from rag_core.protocols import Elsewhere, VectorStore

__all__ = ["INTENT", "Change", "commit", "first_version", "new_name", "recover"]

#: Rows handed to a store at once: a snapshot writes all it has each time, a database keeps a call in memory.
SLICE_OF_SNAPSHOT, SLICE = 1 << 16, 1 << 13
#: Texts are rewritten where less than this share of a file is in use, and all but the largest file when
#: there are more than this.
USED_SHARE = 0.5
MOST_SEGMENTS = 16


@dataclass(frozen=True, slots=True)
class Change:
    """What a new version changes.

    Attributes:
        dropped: bool per old row: not part of the new version, or there in another form.
        added: rows added.
        failed: id -> why its newest form has no vector.
        store, vectors, identity: of the new version.
        fills_store: whether ``vectors`` is a new store, which gets every row.
    """

    dropped: NDArray[np.bool_]
    added: NewRows
    failed: dict[str, str]
    store: str
    vectors: str
    identity: Fingerprint
    fills_store: bool = False


def new_name(generation: int) -> str:
    """A name for a part of ``generation`` that no part has had."""
    return f"{generation:06d}-{secrets.token_hex(4)}"


def first_version(
    folder: Path, store: str, vectors: str, identity: Fingerprint, analyser: Analyser | None
) -> None:
    """Write an empty index; its store exists already."""
    manifest = Manifest(1, store, vectors, new_name(1), (), identity)
    generation = folder / "generations" / manifest.table
    generation.mkdir(parents=True)
    Table.make([], np.zeros(0, ROW)).save(generation)
    BM25.build([], analyser=analyser).save(generation / "bm25")
    sync_folder(generation.parent)
    manifest.write(folder)


def commit(
    folder: Path,
    old: Version,
    change: Change,
    segment: SegmentWriter,
    store: VectorStore,
    journal: Journal,
    progress: Progress | None = None,
    *,
    keeps_journal: bool = False,
    elsewhere: Elsewhere | None = None,
) -> Manifest:
    """Make the version after ``old`` and put it in force; returns its manifest.

    Args:
        elsewhere: where the store works on what it was given, if it does; None: here.

    Raises:
        StoreError: the disk is full or refuses; the old version stands.
        ProviderError: ``elsewhere`` has no place for that work, or breaks off; the old version stands.
    """
    number = old.manifest.generation + 1
    name = new_name(number)
    generation = folder / "generations" / name
    try:
        with disk_errors(folder):
            generation.mkdir(parents=True)
            names, is_new = _rows(generation, old, change, segment)
            segment.finish()
            table = Table.open(generation)
            texts = Documents(table, [Segment(folder / "texts" / one) for one in names])
            if progress is not None:
                progress("index words", 0, len(texts))
            BM25.write(generation / "bm25", texts.all(_searched(table)), old.bm25.analyser)
            dead = [] if change.fills_store else _dead_keys(old, change, table)
            waits = not is_snapshot(store) and not change.fills_store
            (generation / STALE).write_text(json.dumps(dead if waits else []), encoding="utf-8")
            if waits:  # readers of the version before this one may still look for what died with it
                dead = [key for key in stale(folder, old.manifest) if table.row_of_key(key) < 0]
            wanted = None if change.fills_store else is_new
            with _in_bulk(store, elsewhere, progress):
                _fill(folder, store, change.vectors, table, wanted, texts, journal, dead, progress)
            for part in VERSIONED:
                if (folder / part).is_dir():
                    sync_folder(folder / part)
            sync_folder(generation)
            manifest = Manifest(
                number,
                change.store,
                change.vectors,
                name,
                names,
                change.identity,
                dict(sorted(change.failed.items())),
            )
            manifest.write(folder)
    except BaseException:
        if not _in_force(folder, name):
            segment.abandon()
            shutil.rmtree(generation, ignore_errors=True)
        raise
    with suppress(OSError, StoreError):  # if the store refuses, the intent stays and the next writer does it
        if dead:
            store.delete(dead)
        (folder / INTENT).unlink(missing_ok=True)
    if not keeps_journal:
        journal.discard()
    clean(folder, manifest, pending=change.fills_store)
    return manifest


def _in_force(folder: Path, name: str) -> bool:
    try:
        return Manifest.read(folder).table == name
    except Exception:  # noqa: BLE001 - whatever is wrong with it, nothing that may be named is removed
        return True


def _rows(
    generation: Path, old: Version, change: Change, segment: SegmentWriter
) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Write the table of the new version; its files of texts, and which rows were added.

    Files of texts of which little is in use are rewritten.
    """
    segments = old.documents.segments
    n = len(segments)
    used, held = np.zeros(n + 1), np.zeros(n + 1, np.int64)  # bytes and rows; the last is the new file
    for rows in chain(_kept(old.table, change.dropped), change.added.all_rows()):
        used += np.bincount(rows["segment"], rows["length"], minlength=n + 1)
        held += np.bincount(rows["segment"], minlength=n + 1)
    rewritten = {i for i, part in enumerate(segments) if used[i] < USED_SHARE * part.size}
    if n - len(rewritten) > MOST_SEGMENTS:
        rewritten |= set(range(n)) - {int(np.argmax(used[:-1]))}
    stays = [i for i in range(n) if held[i] and i not in rewritten]
    numbers = np.full(n + 1, len(stays), np.int32)
    numbers[stays] = np.arange(len(stays))
    is_written = held[-1] or any(held[i] for i in rewritten)
    names = [*(old.manifest.segments[i] for i in stays), *([segment.path.name] if is_written else [])]

    def moved(rows: Rows) -> Rows:
        for position in np.flatnonzero(np.isin(rows["segment"], sorted(rewritten))).tolist():
            place = rows[position]
            texts = segments[int(place["segment"])]
            line = texts.read(int(place["offset"]), int(place["length"]))
            rows["offset"][position], rows["length"][position] = segment.write(line)
        rows["segment"] = numbers[rows["segment"]]
        for i in rewritten:
            segments[i].let_go()
        return rows

    return tuple(names), write_table(generation, old.table, change.dropped, change.added, moved)


def _kept(table: Table, dropped: NDArray[np.bool_]) -> Iterator[Rows]:
    """The rows of ``table`` that are not ``dropped``, in parts."""
    for start in range(0, len(table), STRIDE):
        yield table.rows[start : start + STRIDE][~dropped[start : start + STRIDE]]
        table.let_go()


def _searched(table: Table) -> Iterator[int]:
    """Rows whose words are indexed, in descending order of id."""
    for stop in range(len(table), 0, -STRIDE):
        start = max(0, stop - STRIDE)
        rows = np.flatnonzero(table.rows["state"][start:stop] != FAILED) + start
        yield from rows[::-1].tolist()


def _dead_keys(old: Version, change: Change, table: Table) -> list[str]:
    rows = np.flatnonzero(change.dropped & (old.table.rows["state"] == LIVE))
    return [key for row in rows.tolist() if table.row_of_key(key := old.table.key(row)) < 0]


def _fill(
    folder: Path,
    store: VectorStore,
    vectors: str,
    table: Table,
    wanted: NDArray[np.bool_] | None,
    texts: Documents,
    journal: Journal,
    dead: Sequence[str],
    progress: Progress | None,
) -> None:
    """Give the store the live rows that are ``wanted``; None: all."""
    size = SLICE_OF_SNAPSHOT if is_snapshot(store) else SLICE
    total = sum(map(len, live_rows(table, wanted, size)))
    if not total and not dead:
        return
    keys = (table.key(row) for rows in live_rows(table, wanted, size) for row in rows.tolist())
    with disk_errors(folder):
        write_intent(folder, vectors, chain(keys, dead))
    done = 0
    for rows in live_rows(table, wanted, size):
        part = rows.tolist()
        add = [table.key(row) for row in part]
        tags = [tag.tobytes() for tag in table.rows["text"][rows]]
        metadata = [document.metadata for document in texts.all(part)]
        texts.let_go()
        store.upsert(add, journal.fetch(tags), metadata)
        check_kept(folder, store, add)
        done += len(part)
        if progress is not None:
            progress("store", done, total)


@contextmanager
def _in_bulk(store: VectorStore, elsewhere: Elsewhere | None, progress: Progress | None) -> Iterator[None]:
    """For all writes of a version: what the store has to do after a write, it does once, and tells of it."""
    bulk = getattr(store, "bulk", None)
    if bulk is None:
        yield
        return

    def told(call: Callable[[], None]) -> None:
        if progress is not None:
            progress("index vectors", 0, 0)
        call() if elsewhere is None else elsewhere(call)

    with bulk(told):
        yield


def recover(folder: Path, version: Version, store: VectorStore) -> None:
    """Take out of the store what a writer that did not finish left there."""
    if (found := intended(folder)) is None:
        return
    vectors, named = found
    with disk_errors(folder):
        if vectors == version.manifest.vectors:
            keys = (key for key in named if version.table.row_of_key(key) < 0)
            while part := list(islice(keys, SLICE_OF_SNAPSHOT)):
                store.delete(part)
        (folder / INTENT).unlink(missing_ok=True)

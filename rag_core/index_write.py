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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.errors import StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.index_check import INTENT, STALE, check_kept, intended, stale
from rag_core.index_files import VERSIONED, Manifest, clean, disk_errors, sync_folder, write_whole
from rag_core.index_journal import Journal
from rag_core.index_table import FAILED, LIVE, ROW, Documents, Rows, Segment, SegmentWriter, Table
from rag_core.index_view import Version, is_snapshot
from rag_core.progress import Progress
from rag_core.protocols import VectorStore

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
        ids, records: rows added.
        failed: id -> why its newest form has no vector.
        store, vectors, identity: of the new version.
        fills_store: whether ``vectors`` is a new store, which gets every row.
    """

    dropped: NDArray[np.bool_]
    ids: Sequence[str]
    records: Rows
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
) -> Manifest:
    """Make the version after ``old`` and put it in force; returns its manifest.

    Raises:
        StoreError: the disk is full or refuses; the old version stands.
    """
    number = old.manifest.generation + 1
    name = new_name(number)
    generation = folder / "generations" / name
    try:
        with disk_errors(folder):
            generation.mkdir(parents=True)
            table, names = _rows(old, change, segment)
            segment.finish()
            table.save(generation)
            texts = Documents(table, [Segment(folder / "texts" / one) for one in names])
            searched = np.flatnonzero(table.rows["state"] != FAILED)
            if progress is not None:
                progress("index words", 0, len(searched))
            BM25.build(texts.all(searched.tolist()), analyser=old.bm25.analyser).save(generation / "bm25")
            dead = [] if change.fills_store else _dead_keys(old, change, table)
            waits = not is_snapshot(store) and not change.fills_store
            (generation / STALE).write_text(json.dumps(dead if waits else []), encoding="utf-8")
            if waits:  # readers of the version before this one may still look for what died with it
                dead = [key for key in stale(folder, old.manifest) if table.row_of_key(key) < 0]
            _fill(folder, store, change, table, texts, journal, dead, progress)
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


def _rows(old: Version, change: Change, segment: SegmentWriter) -> tuple[Table, tuple[str, ...]]:
    """The table of the new version and its files of texts; rewrites those of which little is in use."""
    kept = np.flatnonzero(~change.dropped)
    rows = np.concatenate([old.table.rows[kept], change.records])
    ids = [old.table.ids[int(row)] for row in kept] + list(change.ids)
    sizes = [part.size for part in old.documents.segments]
    used = np.bincount(rows["segment"], weights=rows["length"], minlength=len(sizes) + 1)
    rewritten = {i for i, size in enumerate(sizes) if used[i] < USED_SHARE * size}
    if len(sizes) - len(rewritten) > MOST_SEGMENTS:
        rewritten |= set(range(len(sizes))) - {int(np.argmax(used[:-1]))}
    for position in np.flatnonzero(np.isin(rows["segment"], sorted(rewritten))):
        place = rows[position]
        line = old.documents.segments[int(place["segment"])].read(int(place["offset"]), int(place["length"]))
        rows["offset"][position], rows["length"][position] = segment.write(line)
        rows["segment"][position] = len(sizes)
    names = [*old.manifest.segments, segment.path.name]
    in_use = np.unique(rows["segment"]).tolist()
    numbers = np.zeros(len(names), np.int32)
    numbers[in_use] = np.arange(len(in_use))
    rows["segment"] = numbers[rows["segment"]]
    return Table.make(ids, rows), tuple(names[i] for i in in_use)


def _dead_keys(old: Version, change: Change, table: Table) -> list[str]:
    rows = np.flatnonzero(change.dropped & (old.table.rows["state"] == LIVE))
    return [key for row in rows.tolist() if table.row_of_key(key := old.table.key(row)) < 0]


def _fill(
    folder: Path,
    store: VectorStore,
    change: Change,
    table: Table,
    texts: Documents,
    journal: Journal,
    dead: Sequence[str],
    progress: Progress | None,
) -> None:
    """Give the store the rows that are new to it."""
    if change.fills_store:
        rows = np.flatnonzero(table.rows["state"] == LIVE).tolist()
    else:
        found = map(table.find, change.ids)
        rows = sorted(row for row in found if table.rows["state"][row] == LIVE)
    if not rows and not dead:
        return
    add = [table.key(row) for row in rows]
    intent = json.dumps({"vectors": change.vectors, "keys": [*add, *dead]})
    write_whole(folder / INTENT, intent.encode("utf-8", "surrogatepass"))
    size = SLICE_OF_SNAPSHOT if is_snapshot(store) else SLICE
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        tags = [table.rows["text"][row].tobytes() for row in part]
        metadata = [document.metadata for document in texts.all(part)]
        store.upsert(add[start : start + size], journal.fetch(tags), metadata)
        check_kept(folder, store, add[start : start + size])
        if progress is not None:
            progress("store", min(start + size, len(rows)), len(rows))


def recover(folder: Path, version: Version, store: VectorStore) -> None:
    """Take out of the store what a writer that did not finish left there."""
    if (found := intended(folder)) is None:
        return
    vectors, named = found
    keys = [key for key in named if version.table.row_of_key(key) < 0]
    with disk_errors(folder):
        if keys and vectors == version.manifest.vectors:
            store.delete(keys)
        (folder / INTENT).unlink(missing_ok=True)

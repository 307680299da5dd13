"""The three ways to a new version: ingest, delete, rebuild. Each holds the writer's lock from end to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rag_core.errors import ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import Manifest, clean, disk_errors, writing
from rag_core.index_ingest import Ingest, classify, embed_all, vector_check
from rag_core.index_journal import Journal
from rag_core.index_report import IngestPlan, IngestReport
from rag_core.index_rows import NewRows
from rag_core.index_sources import Given, removed_rows, source_of
from rag_core.index_table import EMPTY, FAILED, LIVE, STRIDE, TEXTS, SegmentWriter, Table
from rag_core.index_view import Version, is_snapshot
from rag_core.index_write import Change, commit, new_name, recover
from rag_core.progress import Progress
from rag_core.protocols import Elsewhere, EmbedProvider
from rag_core.seen import SeenKeys
from rag_core.stores import create_store

if TYPE_CHECKING:
    from rag_core.scale.ahead import Ahead

__all__ = ["delete_rows", "ingest_documents", "plan_documents", "rebuild_rows"]

#: Rows of a rebuild handled together.
BLOCK = 1 << 13


@contextmanager
def _newest(
    folder: Path, shown: Version, wanted: Fingerprint | None, *, check: bool = True
) -> Iterator[Version]:
    """The version in force, for its one writer, with what killed writers left put in order.

    A store that is a snapshot is opened anew, so that searches under way keep theirs.
    """
    with writing(folder):
        manifest = Manifest.read(folder)
        shares = not is_snapshot(shown.store.store) and manifest.vectors == shown.manifest.vectors
        version = Version.open(folder, wanted, shown.store.store if shares else None, check=check)
        try:
            recover(folder, version, version.store.store)
            yield version
        finally:
            if not shares:
                version.close()


def _segment(folder: Path, version: Version) -> SegmentWriter:
    return SegmentWriter(folder / "texts" / f"{new_name(version.manifest.generation + 1)}.jsonl")


def ingest_documents(
    folder: Path,
    shown: Version,
    embedder: EmbedProvider,
    given: Given,
    *,
    prune: bool,
    batch: int,
    strict: bool,
    progress: Progress | None,
    ahead: Callable[[Version, Journal], Ahead] | None = None,
    elsewhere: Elsewhere | None = None,
) -> tuple[Version, IngestReport]:
    """See :meth:`rag_core.index.Index.ingest`; returns the version to show and the report.

    ``ahead`` may bring vectors into the journal before the documents are gone through, and ``elsewhere`` is
    where the store works on what it was given.
    """
    started = time.perf_counter()
    identity = embedder.fingerprint
    with ExitStack() as held:
        old = held.enter_context(_newest(folder, shown, identity))
        clean(folder, old.manifest)
        journal = held.enter_context(closing(Journal(folder, identity)))
        before = ahead(old, journal) if ahead is not None else None
        segment = _segment(folder, old)
        work = held.enter_context(
            closing(
                Ingest(
                    old,
                    embedder,
                    journal,
                    segment,
                    batch=batch,
                    strict=strict,
                    progress=progress,
                    total=given.total,
                )
            )
        )
        if before is not None:
            work.refused = before.failed
        try:
            work.take(given.documents)
            gone = removed_rows(old.table, work.given, work.failed, given, prune=prune)
        except BaseException:
            segment.abandon()
            raise
        failed = {
            doc_id: reason
            for doc_id, reason in old.manifest.failed.items()
            if not work.saw(doc_id)
            and not ((row := old.table.find(doc_id)) >= 0 and gone[row])
            and not given.has_read(source_of(doc_id))
            and not (prune and doc_id not in old.documents)
        } | work.failed
        if len(work.added) or gone.any() or failed != dict(old.manifest.failed):
            change = Change(
                work.replaced | gone,
                work.added,
                failed,
                old.manifest.store,
                old.manifest.vectors,
                identity,
            )
            commit(folder, old, change, segment, old.store.store, journal, progress, elsewhere=elsewhere)
        else:
            segment.abandon()
            journal.discard()
    shown = shown.newest(folder, identity)
    counts = work.counts
    embedded = before.embedded if before is not None else 0
    return shown, IngestReport(
        added=counts["added"],
        updated=counts["updated"],
        removed=int(gone.sum()),
        unchanged=counts["unchanged"],
        empty=counts["empty"],
        failed=dict(sorted(work.failed.items())),
        embedded_texts=counts["embedded_texts"] + embedded,
        reused_vectors=counts["reused_vectors"] - embedded,
        skipped=dict(given.skipped),
        oversize=given.oversize,
        seconds=time.perf_counter() - started,
    )


def plan_documents(version: Version, journal: Journal, given: Given, *, prune: bool) -> IngestPlan:
    """See :meth:`rag_core.index.Index.plan`."""
    table, seen = version.table, SeenKeys()
    counts = dict.fromkeys(("added", "updated", "unchanged", "empty"), 0)
    texts: dict[bytes, str] = {}
    held = np.zeros(len(table), bool)
    takes_over = hasattr(version.store.store, "vectors_of")
    for document in given.documents:
        found = classify(table, seen, document)
        if found.row >= 0:
            held[found.row] = True
        counts["empty"] += document.is_empty
        if found.is_unchanged:
            counts["unchanged"] += 1
            continue
        counts["updated" if found.row >= 0 and table.rows["state"][found.row] != FAILED else "added"] += 1
        tag = found.tags.text
        if not (document.is_empty or tag in journal or (takes_over and table.row_of_text(tag) >= 0)):
            texts[tag] = document.indexed_text
    gone = removed_rows(table, held, (), given, prune=prune)
    return IngestPlan(
        added=counts["added"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        empty=counts["empty"],
        removed=int(gone.sum()),
        texts=tuple(texts.values()),
        skipped=dict(given.skipped),
        oversize=given.oversize,
    )


def delete_rows(folder: Path, shown: Version, ids: set[str]) -> tuple[Version, int]:
    """See :meth:`rag_core.index.Index.delete`."""
    with _newest(folder, shown, None) as old:
        gone = np.zeros(len(old.table), bool)
        rows = [row for doc_id in ids if (row := old.table.find(doc_id)) >= 0]
        gone[rows] = True
        failed = {doc_id: reason for doc_id, reason in old.manifest.failed.items() if doc_id not in ids}
        if rows or failed != dict(old.manifest.failed):
            manifest = old.manifest
            change = Change(
                gone, NewRows(folder), failed, manifest.store, manifest.vectors, manifest.identity
            )
            # vectors of an ingest that was cut short stay of use
            journal = Journal(folder, manifest.identity)
            commit(folder, old, change, _segment(folder, old), old.store.store, journal, keeps_journal=True)
    return shown.newest(folder, None), len(rows)


def rebuild_rows(
    folder: Path,
    shown: Version,
    embedder: EmbedProvider,
    store_name: str,
    *,
    batch: int,
    progress: Progress | None,
) -> tuple[Version, IngestReport]:
    """See :meth:`rag_core.index.Index.rebuild`."""
    started = time.perf_counter()
    identity = embedder.fingerprint
    with ExitStack() as held:
        old = held.enter_context(_newest(folder, shown, None, check=False))
        clean(folder, old.manifest)
        journal = held.enter_context(closing(Journal(folder, identity)))
        embedded, failed = _embed_rows(old, embedder, journal, batch, progress)
        added, n_empty = held.enter_context(closing(NewRows(folder))), old.table.count(EMPTY)
        with disk_errors(folder):
            reasons = _made_anew(old.table, journal, failed, added)
        vectors = new_name(old.manifest.generation + 1)
        with disk_errors(folder):
            store = create_store(store_name, folder / "vectors" / vectors, identity)
        try:
            change = Change(
                np.ones(len(added), bool), added, reasons, store_name, vectors, identity, fills_store=True
            )
            commit(folder, old, change, _segment(folder, old), store, journal, progress)
        finally:
            store.close()
    shown = shown.newest(folder, identity)
    return shown, IngestReport(
        updated=len(added) - n_empty - len(reasons),
        empty=n_empty,
        failed=reasons,
        embedded_texts=embedded,
        seconds=time.perf_counter() - started,
    )


def _made_anew(table: Table, journal: Journal, failed: Mapping[bytes, str], added: NewRows) -> dict[str, str]:
    """Put every row into ``added`` with the vector that ``journal`` has; id -> why one has none."""
    reasons: dict[str, str] = {}
    for start in range(0, len(table), BLOCK):
        rows = table.rows[start : start + BLOCK].copy()
        ids = [
            doc_id.decode("utf-8", "surrogatepass") for doc_id in table.ids.bytes_of(start, start + len(rows))
        ]
        tags = [tag.tobytes() for tag in rows["text"]]
        wanted = np.flatnonzero(rows["state"] != EMPTY).tolist()
        lives = [position for position in wanted if tags[position] not in failed]
        rows["state"][wanted], rows["vector"][wanted] = FAILED, 0
        rows["state"][lives] = LIVE
        rows["vector"][lives] = vector_check(journal.fetch([tags[position] for position in lives]))
        reasons |= {ids[at]: failed[tags[at]] for at in wanted if tags[at] in failed}
        added.add(ids, rows)
        table.let_go()
    return reasons


def _embed_rows(
    old: Version, embedder: EmbedProvider, journal: Journal, batch: int, progress: Progress | None
) -> tuple[int, dict[bytes, str]]:
    """Bring the vectors of all rows into the journal; returns how many were embedded and which failed."""
    failed: dict[bytes, str] = {}
    with SeenKeys() as seen:
        total = sum(1 for _ in _without_vector(old.table, journal, seen))
    done = 0
    with SeenKeys() as seen:
        todo = _without_vector(old.table, journal, seen)
        while part := list(islice(todo, batch)):
            texts = [document.indexed_text for document in old.documents.all(row for row, _ in part)]
            vectors, positions = embed_all(embedder, texts, strict=False)
            failed.update({part[position][1]: reason for position, reason in positions.items()})
            kept = [position for position in range(len(part)) if position not in positions]
            with disk_errors(journal.folder.parent):
                journal.add([part[position][1] for position in kept], vectors[kept])
            done += len(part)
            if done // TEXTS != (done - len(part)) // TEXTS:
                old.documents.let_go()
            if progress is not None:
                progress("embed", done, total)
    if total and len(failed) == total:
        raise ProviderError(f"{embedder.name}: no text could be embedded: {next(iter(failed.values()))}")
    return total - len(failed), failed


def _without_vector(table: Table, journal: Journal, seen: SeenKeys) -> Iterator[tuple[int, bytes]]:
    """The first row of each text that the journal has no vector of, and its tag."""
    for start in range(0, len(table), STRIDE):
        rows = table.rows[start : start + STRIDE]
        for position in np.flatnonzero(rows["state"] != EMPTY).tolist():
            tag = rows["text"][position].tobytes()
            if tag not in journal and seen.add(tag):
                yield start + position, tag
        table.let_go()

"""Vectors on disk under 32-byte keys: appended by many processes, mapped and looked up by thousands.

A folder per vector space, segments in it (:mod:`rag_core.segments`). Each process appends to a segment of
its own and reads all of them, so reading needs no lock between processes. A lookup bisects for the first word
of each key in memory (:mod:`rag_core.keyindex`), then compares the whole key and the checksum; a record that
fails either is no record.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError
from rag_core.keyindex import KeyIndex
from rag_core.protocols import Vectors
from rag_core.segments import (
    BLOCK,
    ENTRY,
    KEYS,
    ROWS,
    Segment,
    SegmentWriter,
    checksums,
    entry_sums,
    row_sums,
)

__all__ = ["KEY_BYTES", "VectorLog"]

KEY_BYTES = 32
LARGEST_SEGMENT_BYTES = 128 << 20
#: Segments in the bound, so that dropping one loses a sixteenth of the log.
SEGMENTS = 16
#: Most segments of a folder: each holds two open files, and where locks do not work every process adds one.
MOST_SEGMENTS = 128
#: Fewest records that the bound must hold.
FEWEST_RECORDS = 64
ABOUT = "about.json"

log = logging.getLogger("rag_core")


class VectorLog:
    """A bounded, append-only store of float32 vectors, safe for many threads and processes.

    Attributes:
        folder: ``root / space``.
        expired: lookups that met a record older than the time to live.
        damaged: lookups that met a record whose checksum is wrong.
        dropped: segments dropped to keep the bound.
        is_writable: False once the disk has refused a write; reading goes on.
    """

    def __init__(
        self,
        root: Path,
        space: str,
        dim: int,
        *,
        max_bytes: int,
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.time,
        about: str = "",
    ) -> None:
        """Nothing is made or read before the first use.

        Args:
            root: folder of all spaces.
            space: name of the folder of this one; vectors of two spaces never meet.
            dim: width of a vector.
            max_bytes: bound of everything under ``root``. Every process checks it each time it has written
                a 64th of it, so one process keeps it and each further one may exceed it by that much.
            ttl_s: seconds after which a record is no longer found; None: never.
            clock: seconds since the epoch.
            about: text for ``about.json``, for whoever looks into the folder.

        Raises:
            InvalidArgumentError: ``max_bytes`` holds fewer than 64 records.
        """
        self.folder, self.dim, self.ttl_s = root / space, dim, ttl_s
        self._root, self._clock, self._about = root, clock, about
        self._record_bytes = ENTRY.itemsize + 4 * self.dim
        if max_bytes < FEWEST_RECORDS * self._record_bytes:
            raise InvalidArgumentError(
                f"the disk cache may have {max_bytes} bytes; accepted for vectors {dim} wide: "
                f"{FEWEST_RECORDS * self._record_bytes} or more"
            )
        self._max_bytes = max_bytes
        self._segment_bytes = min(LARGEST_SEGMENT_BYTES, max_bytes // SEGMENTS)
        self._unchecked_bytes = 0  # what may still be written before the bound is checked again
        self._lock = threading.RLock()
        self._writer: SegmentWriter | None = None
        self._segments: dict[str, tuple[int, Segment]] = {}
        self._by_number: dict[int, Segment] = {}
        self._next_number = 0
        self._index = KeyIndex()
        self.expired = self.damaged = self.dropped = 0
        self.is_writable = True

    def __len__(self) -> int:
        """Records known, those that are expired, damaged or written twice among them."""
        with self._lock:
            return sum(segment.count for segment in self._by_number.values())

    @property
    def n_bytes(self) -> int:
        """Size of this space's records."""
        return len(self) * self._record_bytes

    # reading

    def read(
        self, keys: Sequence[bytes], out: Vectors, rows: Sequence[int] | NDArray[np.intp] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Copy the vectors of ``keys`` into ``out``; rows of keys that are not found stay as they are.

        Args:
            keys: n keys of 32 bytes.
            out: float32 ``(m, dim)``.
            rows: the row of ``out`` for each key; None: 0 to n - 1.

        Returns:
            Which keys were found, ``(n,)``, and when each was written, in seconds (0 where not found).
        """
        wanted = _words(keys)
        target = np.arange(len(keys)) if rows is None else np.asarray(rows, np.intp)
        found, written_at = np.zeros(len(keys), np.bool_), np.zeros(len(keys))
        with self._lock:
            self._find(wanted, target, out, found, written_at)
            # other processes' records are looked for only when something is missing: a call of the model
            # that follows costs far more than the listing of a folder
            if not found.all() and self._look():
                self._find(wanted, target, out, found, written_at)
        return found, written_at

    def _find(
        self,
        wanted: NDArray[np.uint64],
        target: NDArray[np.intp],
        out: Vectors,
        found: NDArray[np.bool_],
        written_at: NDArray[np.float64],
    ) -> None:
        for rest, places in self._index.candidates(wanted[:, 0], found):
            self._take(places, rest, wanted, target, out, found, written_at)

    def _take(
        self,
        places: NDArray[np.int64],
        rest: NDArray[np.intp],
        wanted: NDArray[np.uint64],
        target: NDArray[np.intp],
        out: Vectors,
        found: NDArray[np.bool_],
        written_at: NDArray[np.float64],
    ) -> None:
        """Read the records at ``places`` for the keys numbered ``rest``, segment by segment."""
        oldest = -np.inf if self.ttl_s is None else self._clock() - self.ttl_s
        numbers = places >> 32
        for number in np.unique(numbers):
            mapped = self._by_number[int(number)].mapped()
            if mapped is None:
                continue
            all_entries, all_rows = mapped
            mine = np.flatnonzero(numbers == number)
            records = places[mine] & 0xFFFFFFFF
            in_order = np.argsort(records)  # a cold disk is read forwards
            mine, records = mine[in_order], records[in_order]
            entries = all_entries[records]
            is_key = (entries["key"] == wanted[rest[mine]]).all(axis=1)
            if not is_key.all():
                mine, records, entries = mine[is_key], records[is_key], entries[is_key]
            keys = rest[mine]
            expected = entries["check"] - entry_sums(entries["key"], entries["written_at"])
            is_young = entries["written_at"] >= oldest
            for start in range(0, len(keys), BLOCK):
                block = slice(start, start + BLOCK)
                vectors = all_rows[records[block]]
                good = row_sums(vectors) == expected[block]
                self.damaged += len(good) - int(np.count_nonzero(good))
                if not is_young[block].all():
                    self.expired += int(np.count_nonzero(good & ~is_young[block]))
                    good &= is_young[block]
                if good.all():
                    out[target[keys[block]]] = vectors
                else:
                    out[target[keys[block][good]]] = vectors[good]
                found[keys[block]] = good
            written_at[keys] = np.where(found[keys], entries["written_at"], 0)

    def _look(self) -> bool:
        """Learn what the folder holds now; whether there is anything new."""
        sizes: dict[str, int] = {}
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                if item.name.endswith(KEYS):
                    with contextlib.suppress(FileNotFoundError):  # dropped since the listing
                        sizes[item.name.removesuffix(KEYS)] = item.stat().st_size
        self._forget([name for name in self._segments if name not in sizes])
        is_new = False
        for name in sorted(sizes):  # by time of creation
            if name not in self._segments:
                self._know(name)
            number, segment = self._segments[name]
            before = segment.count
            if sizes[name] // ENTRY.itemsize > before and segment.grow(sizes[name]):
                mapped = segment.mapped()
                if mapped is None:
                    segment.count = before
                    continue
                self._index.add(number, before, mapped[0]["key"][before : segment.count, 0])
                is_new = True
        return is_new

    def _know(self, name: str) -> None:
        segment = Segment(self.folder, name, self.dim)
        self._segments[name] = self._next_number, segment
        self._by_number[self._next_number] = segment
        self._next_number += 1

    def _forget(self, names: Sequence[str]) -> None:
        if not names:
            return
        numbers = [self._segments.pop(name)[0] for name in names]
        for number in numbers:
            del self._by_number[number]
        self._index.drop(numbers)
        if self._writer is not None and self._writer.name in names:
            self._stop_writing()

    # writing

    def write(self, keys: Sequence[bytes], vectors: Vectors, written_at: float | None = None) -> int:
        """Append a record for each key; returns how many were written.

        A disk that is full or refuses leads to one warning in the log, and to no write ever after.

        Args:
            keys: n keys of 32 bytes.
            vectors: float32 ``(n, dim)``; the bits are kept.
            written_at: seconds since the epoch; None: now.
        """
        if not keys or not self.is_writable:
            return 0
        entries = np.zeros(len(keys), ENTRY)
        entries["key"] = _words(keys)
        entries["written_at"] = self._clock() if written_at is None else written_at
        rows = np.ascontiguousarray(vectors, np.float32)
        entries["check"] = checksums(entries["key"], entries["written_at"], rows)
        done = 0
        with self._lock:
            try:
                while done < len(keys):
                    writer, room = self._ready_writer()
                    part = slice(done, done + room)
                    writer.append(entries[part], rows[part])
                    n_new = len(entries[part])
                    number, segment = self._segments[writer.name]
                    self._index.add(number, segment.count, entries["key"][part, 0])
                    segment.count = writer.count
                    self._unchecked_bytes -= n_new * self._record_bytes
                    done += n_new
            except OSError as error:
                self.is_writable = False
                self._stop_writing()
                log.warning("the cache in %s cannot be written and goes on without: %s", self.folder, error)
            except BaseException:  # interrupted: the segment may hold more than the index knows
                self._stop_writing()
                raise
        return done

    def _ready_writer(self) -> tuple[SegmentWriter, int]:
        """A writer and for how many records it has room (1 or more)."""
        writer = self._writer
        if writer is not None and (writer.pid != os.getpid() or writer.is_gone()):
            # a forked child leaves the parent's segment alone; a removed one would be written in vain
            self._stop_writing()
            writer = None
        if writer is not None and writer.n_bytes + self._record_bytes > self._segment_bytes:
            self._stop_writing()
            writer = None
        if writer is None:
            writer = self._writer = self._open_writer()
        if self._unchecked_bytes < self._record_bytes:
            self._keep_bound(writer.name)
        room_bytes = min(self._segment_bytes - writer.n_bytes, self._unchecked_bytes)
        return writer, max(1, room_bytes // self._record_bytes)

    def _open_writer(self) -> SegmentWriter:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._about and not (self.folder / ABOUT).exists():
            (self.folder / ABOUT).write_text(self._about, encoding="utf-8")
        self._look()
        full_count = self._segment_bytes // self._record_bytes
        for name, (_, segment) in sorted(self._segments.items(), reverse=True):
            # those with little room are left alone, or they would be tried again and again
            if segment.count <= full_count * 3 // 4:
                writer = SegmentWriter.adopt(self.folder, name, self.dim)
                if writer is not None:
                    self._look()  # what its last owner wrote since the look above
                    return writer
        writer = SegmentWriter.create(self.folder, self.dim)
        self._know(writer.name)
        return writer

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _keep_bound(self, active: str) -> None:
        """Drop the oldest segments under the root until another share of the bound can be written."""
        share_bytes = max(self._record_bytes, self._segment_bytes // 4)
        sizes: dict[tuple[str, str], int] = {}
        for path in self._root.glob(f"*/*{KEYS}"), self._root.glob(f"*/*{ROWS}"):
            for file in path:
                with contextlib.suppress(FileNotFoundError):
                    key = file.stem, str(file.parent)
                    sizes[key] = sizes.get(key, 0) + file.stat().st_size
        total_bytes = sum(sizes.values())
        n_here = sum(folder == str(self.folder) for _, folder in sizes)
        for (name, folder), size_bytes in sorted(sizes.items()):
            is_here = folder == str(self.folder)
            too_many = is_here and n_here > MOST_SEGMENTS
            if total_bytes + share_bytes <= self._max_bytes and not too_many:
                continue
            if is_here and name == active:
                continue
            with contextlib.suppress(OSError):  # another system may refuse while somebody reads it
                _remove(Path(folder), name)
                total_bytes -= size_bytes
                n_here -= is_here
                self.dropped += 1
                if is_here and name in self._segments:
                    self._forget([name])
        self._unchecked_bytes = share_bytes

    def clear(self) -> None:
        """Remove every record of this space; other processes notice at their next miss or write.

        Raises:
            OSError: a file cannot be removed.
        """
        with self._lock:
            self._look()
            self._stop_writing()
            names = list(self._segments)
            self._forget(names)
            for name in names:
                _remove(self.folder, name)

    def close(self) -> None:
        """Release all files; a later use opens them again."""
        with self._lock:
            self._stop_writing()
            self._segments.clear()
            self._by_number.clear()
            self._index.clear()


def _words(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(keys), "<u8").reshape(len(keys), KEY_BYTES // 8)


def _remove(folder: Path, name: str) -> None:
    """The keys first: without them there are no records."""
    for ending in (KEYS, ROWS):
        (folder / f"{name}{ending}").unlink(missing_ok=True)

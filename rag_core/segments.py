"""One segment of a vector log: two files that only ever grow at their end, and a checksum per record.

``NAME.keys`` holds 48 bytes a record (:data:`ENTRY`), ``NAME.vectors`` the float32 rows. Two files, because
opening a log then reads 48 bytes a record and not 4 KB, and because the rows form a plain matrix that is
mapped and gathered from. The row is written before its entry: a record exists once its entry is whole, so
that whatever a killed process left half done is not a record. A name begins with the time of creation, holds
hexadecimal digits and hyphens alone, and is never used twice.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.protocols import Vectors

if sys.platform != "win32":
    import fcntl

__all__ = [
    "BLOCK",
    "ENTRY",
    "KEYS",
    "ROWS",
    "Segment",
    "SegmentWriter",
    "checksums",
    "entry_sums",
    "row_sums",
]

#: A key as four little-endian words, the time of writing in seconds since the epoch, the checksum.
ENTRY = np.dtype([("key", "<u8", (4,)), ("written_at", "<f8"), ("check", "<u8")])
KEYS, ROWS = ".keys", ".vectors"
#: Records checked at once, so that their rows stay in the processor's cache.
BLOCK = 128

Words = NDArray[np.uint64]


@lru_cache(maxsize=16)
def _factors(n_words: int) -> Words:
    """``n_words`` odd 64-bit numbers, the same on every machine."""
    stream = hashlib.shake_256(b"rag_core vector log").digest(8 * n_words)
    return np.frombuffer(stream, "<u8").astype(np.uint64) | np.uint64(1)


def checksums(keys: Words, written_at: NDArray[np.float64], rows: Vectors) -> Words:
    """64-bit checksums over key, time and row of each record.

    The multilinear hash (Lemire and Kaser, "Strongly universal string hashing is fast", 2014): the sum of
    each 32-bit word times its 64-bit factor, modulo 2^64. The factors are odd, so a change within one word
    is always found; any other one passes with a chance of at most 2^-32 over the choice of factors. numpy
    runs it several times as fast as a CRC of each row.

    Args:
        keys: ``(n, 4)``.
        written_at: ``(n,)`` seconds.
        rows: float32 ``(n, dim)``, C-contiguous.
    """
    sums: Words = entry_sums(keys, written_at) + row_sums(rows)
    return sums


def entry_sums(keys: Words, written_at: NDArray[np.float64]) -> Words:
    """The share of key and time in the checksums: the first ten words."""
    factors = _factors(10)
    key_words = np.ascontiguousarray(keys, "<u8").view("<u4")
    time_words = np.ascontiguousarray(written_at, "<f8")[:, None].view("<u4")
    sums: Words = np.einsum("ij,j->i", key_words, factors[:8])
    sums += np.einsum("ij,j->i", time_words, factors[8:])
    return sums


def row_sums(rows: Vectors) -> Words:
    """The share of the row: all further words."""
    sums: Words = np.einsum("ij,j->i", rows.view("<u4"), _factors(10 + rows.shape[1])[10:])
    return sums


class Segment:
    """The whole records of one segment, mapped when they are first read.

    Attributes:
        name: name of both files without their endings.
        count: records known.
    """

    __slots__ = ("_dim", "_entries", "_folder", "_rows", "count", "name")

    def __init__(self, folder: Path, name: str, dim: int) -> None:
        """``dim``: width of a vector."""
        self._folder, self.name, self._dim, self.count = folder, name, dim, 0
        self._entries: NDArray[np.void] = np.zeros(0, ENTRY)
        self._rows: Vectors = np.zeros((0, dim), np.float32)

    def grow(self, keys_bytes: int) -> int:
        """Count the whole records where the file of keys has ``keys_bytes``; returns how many are new."""
        try:
            rows_bytes = (self._folder / f"{self.name}{ROWS}").stat().st_size
        except OSError:
            return 0
        count = min(keys_bytes // ENTRY.itemsize, rows_bytes // (4 * self._dim))
        before, self.count = self.count, max(self.count, count)
        return self.count - before

    def mapped(self) -> tuple[NDArray[np.void], Vectors] | None:
        """:data:`ENTRY` records ``(n,)`` and float32 ``(n, dim)``, n at least ``count``.

        None where the files are gone or shorter than they were: another process has dropped them.
        """
        if len(self._rows) < self.count:
            path = self._folder / self.name
            try:
                entries = np.memmap(path.with_name(f"{self.name}{KEYS}"), ENTRY, "r", shape=(self.count,))
                shape = self.count, self._dim
                rows = np.memmap(path.with_name(f"{self.name}{ROWS}"), "<f4", "r", shape=shape)
            except (OSError, ValueError):
                return None
            # plain views: slices of a memmap object cost microseconds more
            self._entries, self._rows = np.asarray(entries), np.asarray(rows)
        return self._entries, self._rows


class SegmentWriter:
    """The one process that appends to a segment; it holds a lock that the system drops when it dies.

    Attributes:
        name: the segment's name.
        count: records in it.
        pid: the process that opened it. A forked child shares the position in the files and must not write.
    """

    __slots__ = ("_dim", "_files", "count", "name", "pid")

    def __init__(self, name: str, files: tuple[int, int], dim: int) -> None:
        self.name, self._files, self._dim, self.count, self.pid = name, files, dim, 0, os.getpid()

    @classmethod
    def create(cls, folder: Path, dim: int) -> SegmentWriter:
        """A new, empty segment.

        Raises:
            OSError: the folder cannot be written.
        """
        while True:
            name = f"{time.time_ns():016x}-{os.getpid():x}-{secrets.token_hex(4)}"
            writer = cls._open(folder, name, dim, os.O_CREAT | os.O_EXCL)
            if writer is not None:  # nobody was faster to adopt or to drop it
                return writer

    @classmethod
    def adopt(cls, folder: Path, name: str, dim: int) -> SegmentWriter | None:
        """Go on with a segment that nobody writes any more; None where somebody does or that is unknown.

        A half-written record at its end is cut off.

        Raises:
            OSError: the files cannot be opened or cut.
        """
        if sys.platform == "win32":  # no lock that ends with its process is at hand: nothing is adopted
            return None
        try:
            return cls._open(folder, name, dim, 0)
        except FileNotFoundError:  # dropped by another process meanwhile
            return None

    @classmethod
    def _open(cls, folder: Path, name: str, dim: int, flags: int) -> SegmentWriter | None:
        flags |= os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        keys = os.open(folder / f"{name}{KEYS}", flags, 0o600)
        rows = -1
        try:
            is_new = bool(flags & os.O_EXCL)
            if not _locked(keys, must=not is_new) or os.fstat(keys).st_nlink == 0:
                os.close(keys)
                return None
            # the rows of a segment whose maker died between its two files do not exist yet
            rows = os.open(folder / f"{name}{ROWS}", flags & ~os.O_EXCL | os.O_CREAT, 0o600)
            writer = cls(name, (keys, rows), dim)
            writer._recount()
        except BaseException:
            os.close(keys)
            if rows >= 0:
                os.close(rows)
            raise
        return writer

    @property
    def n_bytes(self) -> int:
        """Size of the records."""
        return self.count * (ENTRY.itemsize + 4 * self._dim)

    def is_gone(self) -> bool:
        """Whether another process has removed the segment."""
        return os.fstat(self._files[0]).st_nlink == 0

    def append(self, entries: NDArray[np.void], rows: Vectors) -> None:
        """Write records; all of them exist afterwards.

        Raises:
            OSError: the disk is full or refuses. Like after any other exception, the writer must be closed.
        """
        try:
            _write(self._files[1], np.ascontiguousarray(rows, "<f4"))
            _write(self._files[0], entries)
        except BaseException:
            self._recount()
            raise
        self.count += len(entries)

    def _recount(self) -> None:
        """Count the whole records and cut off what stands behind them; no reader has mapped that."""
        sizes = ENTRY.itemsize, 4 * self._dim
        self.count = min(os.fstat(file).st_size // size for file, size in zip(self._files, sizes))
        for file, size in zip(self._files, sizes):
            if os.fstat(file).st_size > self.count * size:
                os.ftruncate(file, self.count * size)

    def close(self) -> None:
        """Give the segment to whoever adopts it next."""
        for file in self._files:
            os.close(file)


def _locked(file: int, *, must: bool) -> bool:
    """Lock ``file`` without waiting; where locks do not work, ``not must``."""
    if sys.platform == "win32":
        return not must
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        return not must
    return True


def _write(file: int, values: NDArray[np.generic]) -> None:
    view = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
    while view:
        view = view[os.write(file, view) :]

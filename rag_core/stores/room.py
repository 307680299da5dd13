"""Room on the disk for a database that does not survive a full one: asked for before it writes or repairs.

SurrealDB's engine leaves a torn record where the disk is full, and copies its log without that record when it
is opened again; where there is no room for the copy either, rows of long ago are lost with it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rag_core.errors import StoreError

__all__ = ["Room", "reserve"]

MARK = "writing"
#: Beyond what is asked for: manifests, and what other processes write meanwhile.
MARGIN_BYTES = 128 << 10
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Room:
    """Keeps the file ``writing`` in a store's folder while the engine writes; one that has outlived its
    writer says that the log may need repair."""

    def __init__(self, folder: Path) -> None:
        self._mark = folder / MARK

    @contextmanager
    def writing(self, size_bytes: int) -> Iterator[None]:
        """Around a write of about ``size_bytes``; the mark stays where it fails.

        Raises:
            StoreError: there is not that much room; nothing has been written.
        """
        reserve(self._mark, size_bytes)
        yield
        self._mark.unlink(missing_ok=True)

    @contextmanager
    def opening(self, log: Path) -> Iterator[None]:
        """Around opening the engine on the files of ``log``.

        Raises:
            StoreError: a writer did not finish, and there is no room to repair the log.
        """
        if self._mark.exists():
            sizes = [found.stat().st_size for found in log.rglob("*") if found.is_file()]
            reserve(self._mark, max(sizes, default=0))
        yield
        self._mark.unlink(missing_ok=True)


def reserve(mark: Path, size_bytes: int) -> None:
    """Make sure of ``size_bytes`` and a margin beside ``mark``, which is left behind, empty.

    Raises:
        StoreError: the disk is full, or refuses.
    """
    wanted = size_bytes + MARGIN_BYTES
    try:
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            _allocate(descriptor, mark, wanted)
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)
    except OSError as error:
        said = "the disk is full, or a limit on file sizes is reached" if error.errno in _FULL else error
        raise StoreError(
            f"{mark.parent}: {said}: {wanted:,} bytes are needed; nothing was written. Make room and run the "
            "same again"
        ) from error


def _allocate(descriptor: int, mark: Path, wanted: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, wanted)
    elif shutil.disk_usage(mark.parent).free < wanted:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

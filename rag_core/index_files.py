"""What keeps an index folder whole: one manifest replaced in one rename, one writer, errors of the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rag_core.errors import ProviderUnavailableError, RagCoreError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores.files import replace_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["FORMAT", "MANIFEST", "VERSIONED", "Manifest", "clean", "disk_errors", "write_whole", "writing"]

FORMAT = 2
MANIFEST = "index.json"
LOCK = "writer.lock"
#: Parts of an index, each a folder of versions of which the manifest names those in use.
VERSIONED = ("generations", "texts", "vectors")
#: None: numpy, when fewer bytes were written than it asked for.
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, None)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index. Whatever it does not name is not part of it.

    Attributes:
        generation: 1 for the first version, one more for each after it.
        store: name of the vector store.
        vectors: folder of the store below ``vectors/``.
        table: folder below ``generations/`` with the rows and the BM25 index.
        segments: files below ``texts/``, in the order that the rows count them.
        identity: of the embedder.
        failed: id -> why its newest form has no vector.
    """

    generation: int
    store: str
    vectors: str
    table: str
    segments: tuple[str, ...]
    identity: Fingerprint
    failed: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Make this the version that readers of ``folder`` open."""
        values = {
            "format": FORMAT,
            **asdict(self),
            "partial": bool(self.failed),
            "identity": self.identity.as_dict(),
        }
        write_whole(folder / MANIFEST, (json.dumps(values, indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The version in force.

        Raises:
            StoreError: no index there, one of another format, or a damaged manifest.
        """
        try:
            values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise StoreError(
                    f"{folder}: index format {values['format']!r}; accepted: {FORMAT}; build it again"
                )
            return cls(
                generation=int(values["generation"]),
                store=values["store"],
                vectors=values["vectors"],
                table=values["table"],
                segments=tuple(values["segments"]),
                identity=Fingerprint.from_dict(values["identity"]),
                failed=dict(values["failed"]),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"{folder} holds no index: {MANIFEST} is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, RagCoreError):
                raise
            raise StoreError(f"{folder / MANIFEST} is damaged: {error}; build the index again") from error


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` so that a crash leaves the old file or the new one, and the new one once this returns.

    Raises:
        OSError: the disk is full or refuses; the old file stands.
    """
    replace_file(path, lambda stream: stream.write(data))
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in ``folder``: a rename lasts only with them."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, RagCoreError):
            raise
        full = "the disk is full, or a limit on file sizes is reached" if error.errno in FULL else "refused"
        raise StoreError(
            f"{folder} could not be written: {full} ({error}); the version before it stands. "
            "Make room and run the same command again: what was embedded so far is kept"
        ) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the one writer of ``folder``. The system ends the lock with the process, however it ends.

    Raises:
        StoreError: another process, or another object in this one, is writing; its process id is named.
    """
    with disk_errors(folder):
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        if not _taken(lock):
            with suppress(OSError):
                holder = (folder / LOCK).read_text(encoding="ascii", errors="replace").strip()
                raise StoreError(
                    f"{folder} is being written by process {holder or 'unknown'}; one writer at a time: "
                    "wait for it, or end it"
                )
            raise StoreError(f"{folder} is being written by another process; wait for it, or end it")
        with suppress(OSError):  # on a full disk the lock holds without the number
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else None
        yield
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks: there is nobody to ask
        return True
    return True


def clean(folder: Path, manifest: Manifest, *, pending: bool = False) -> None:
    """Remove the versions that ``manifest`` does not name and what killed writers left. For the writer only.

    Args:
        pending: also vectors that no version has taken up.
    """
    named = {manifest.table, *manifest.segments, manifest.vectors}
    for part in VERSIONED:
        for found in (folder / part).glob("*"):
            if found.name not in named and _let_go(found):
                _remove(found)
    for found in (*folder.glob(".*.tmp"), *(folder.glob("pending-*") if pending else ())):
        _remove(found)


def _let_go(path: Path) -> bool:
    """Whether what ``path`` keeps elsewhere is gone; else the next writer tries again."""
    if path.parent.name != "vectors":
        return True
    from rag_core.stores import discard_store

    try:
        discard_store(path)
    except (StoreError, ProviderUnavailableError):
        return False
    return True


def _remove(path: Path) -> None:
    # what a reader on Windows holds open stays until the next writer comes by
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()

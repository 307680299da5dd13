"""Vectors that were paid for and are not part of a version yet: each batch is on disk before the next one."""

from __future__ import annotations

import io
import secrets
import shutil
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from rag_core.errors import MissingExtraError
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import write_whole
from rag_core.protocols import Vectors

__all__ = ["Journal"]


class Journal:
    """Vectors by the digest of their text, for one embedder, in a folder of batches.

    A batch is one file that appears whole or not at all, with checksums (it is a zip, or a fragment of
    :mod:`rag_core.scale.shards`), so a killed process loses the batch that was in flight. Whoever runs the
    same ingest again finds the others here.
    """

    def __init__(self, index: Path, identity: Fingerprint, *, read_only: bool = False) -> None:
        self.folder = index / self.name(identity)
        self._dim = identity.dim
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._count = 0
        self._load = lru_cache(maxsize=4)(_vectors)
        self._known: set[str] = set()
        self.reread(read_only=read_only)

    def reread(self, *, read_only: bool = False) -> None:
        """Take in the batches that others have written."""
        for path in sorted(self.folder.glob("*")):
            if path.suffix in (".npz", ".parquet") and path.name not in self._known:
                self._adopt(path, read_only)

    @staticmethod
    def name(identity: Fingerprint) -> str:
        """Name of the folder for ``identity``."""
        return f"pending-{identity.digest}"

    def _adopt(self, path: Path, read_only: bool) -> None:
        try:
            tags, vectors = _batch(path)
            if vectors.shape != (len(tags), self._dim) or vectors.dtype != np.float32:
                raise ValueError(f"vectors of shape {vectors.shape}")
        except MissingExtraError:
            return  # fragments of an engine: whoever has the package can use them
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            if not read_only:  # damaged: embedding its texts again costs less than a wrong vector
                path.unlink(missing_ok=True)
            return
        self._count += 1
        self._known.add(path.name)
        for row, tag in enumerate(tags):
            self._places[tag] = path, row

    def __contains__(self, tag: bytes) -> bool:
        return tag in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, tags: Sequence[bytes], vectors: Vectors) -> None:
        """Keep ``vectors`` ``(n, dim)`` under ``tags``; they are on the disk when this returns.

        Raises:
            OSError: the disk is full or refuses.
        """
        if not tags:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = io.BytesIO()
        words = np.frombuffer(b"".join(tags), "<u8").reshape(-1, 2)
        np.savez(packed, tags=words, vectors=np.ascontiguousarray(vectors, np.float32))
        # counted, so that the batches of one run sort in its order, and unlike those of any other
        path = self.folder / f"{self._count:08d}-{secrets.token_hex(4)}.npz"
        write_whole(path, packed.getvalue())
        self._count += 1
        self._known.add(path.name)
        for row, tag in enumerate(tags):
            self._places[tag] = path, row

    def fetch(self, tags: Sequence[bytes]) -> Vectors:
        """The vectors of ``tags``, float32 ``(n, dim)``. KeyError where one was never added."""
        found = np.empty((len(tags), self._dim), np.float32)
        by_batch: dict[Path, tuple[list[int], list[int]]] = {}
        for position, tag in enumerate(tags):  # in whatever order: each file is read once
            path, row = self._places[tag]
            positions, rows = by_batch.setdefault(path, ([], []))
            positions.append(position)
            rows.append(row)
        for path, (positions, rows) in by_batch.items():
            found[positions] = self._load(path)[rows]
        return found

    def discard(self) -> None:
        """Forget everything: it is part of a version, or of no use any more."""
        self._load.cache_clear()
        self._places.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def _batch(path: Path) -> tuple[list[bytes], Vectors]:
    if path.suffix == ".parquet":
        from rag_core.scale.shards import read_fragment

        return read_fragment(path)
    with np.load(path, allow_pickle=False) as stored:
        return [tag.tobytes() for tag in stored["tags"]], stored["vectors"]


def _vectors(path: Path) -> Vectors:
    return _batch(path)[1]

"""Vectors that were paid for and are not part of a version yet: each batch is on disk before the next one."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from rag_core.errors import MissingExtraError
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import write_whole
from rag_core.protocols import Vectors
from rag_core.seen import KeyPlaces

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
        self._places = KeyPlaces()  # tag -> number of its batch << 32 | row
        self._load = lru_cache(maxsize=4)(_vectors)
        self._batches: list[str] = []
        self._known: set[str] = set()
        self.reread(read_only=read_only)

    def reread(self, *, read_only: bool = False) -> None:
        """Take in the batches that others have written."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(os.listdir(self.folder)):
                if name.endswith((".npz", ".parquet")) and name not in self._known:
                    self._adopt(self.folder / name, read_only)

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
        self._take_in(path.name, tags)

    def _take_in(self, name: str, tags: Sequence[bytes]) -> None:
        first = len(self._batches) << 32
        self._batches.append(name)
        self._known.add(name)
        for row, tag in enumerate(tags):
            self._places[tag] = first + row

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
        path = self.folder / f"{len(self._batches):08d}-{secrets.token_hex(4)}.npz"
        write_whole(path, packed.getvalue())
        self._take_in(path.name, tags)

    def fetch(self, tags: Sequence[bytes]) -> Vectors:
        """The vectors of ``tags``, float32 ``(n, dim)``. KeyError where one was never added."""
        found = np.empty((len(tags), self._dim), np.float32)
        by_batch: dict[int, tuple[list[int], list[int]]] = {}
        for position, tag in enumerate(tags):  # in whatever order: each file is read once
            place = self._places.get(tag)
            if place < 0:
                raise KeyError(tag)
            positions, rows = by_batch.setdefault(place >> 32, ([], []))
            positions.append(position)
            rows.append(place & 0xFFFFFFFF)
        for batch, (positions, rows) in by_batch.items():
            found[positions] = self._load(self.folder / self._batches[batch])[rows]
        return found

    def discard(self) -> None:
        """Forget everything: it is part of a version, or of no use any more."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Let go of what is held to find vectors; they stay on the disk."""
        self._load.cache_clear()
        self._places.clear()


def _batch(path: Path) -> tuple[list[bytes], Vectors]:
    if path.suffix == ".parquet":
        from rag_core.scale.shards import read_fragment

        return read_fragment(path)
    with np.load(path, allow_pickle=False) as stored:
        return [tag.tobytes() for tag in stored["tags"]], stored["vectors"]


def _vectors(path: Path) -> Vectors:
    return _batch(path)[1]

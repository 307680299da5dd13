"""Exact search over one memory-mapped float32 matrix: the default store, and the oracle of the others.

A folder holds ``manifest.json`` and the two files it names, ``vectors-N.npy`` (float32 ``(n, dim)``,
rows of length 1) and ``rows-N.json`` (ids and metadata in row order). A write makes the files of
generation N + 1 and then replaces the manifest in one rename, so that a reader or a crash sees the
state before or after, never between.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.errors import StoreError
from rag_core.filters import compile_where
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors
from rag_core.stores.files import replace_file
from rag_core.stores.identity import check_identity, check_k, refuse_existing
from rag_core.stores.rows import ROUNDING, checked_rows, rescored, unit_query
from rag_core.types import EMPTY_RANKING, Ranking

__all__ = ["FlatStore"]

FORMAT = 1
MANIFEST = "manifest.json"
#: Masks kept for repeated filters, for example one per conversation of a data set.
KEPT_MASKS = 256


class FlatStore:
    """Vectors in one matrix, searched row by row; exact, and the fastest choice up to about 100,000 rows."""

    #: An open store keeps its own rows, whatever other processes write.
    is_snapshot = True

    def __init__(self, path: Path, identity: Fingerprint, generation: int) -> None:
        self.path = path
        self._identity = identity
        self._generation = generation
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self._metadata: list[Mapping[str, Any]] = []
        self._vectors: Vectors = np.zeros((0, identity.dim), np.float32)
        self._masks: OrderedDict[str, np.ndarray[Any, Any]] = OrderedDict()
        self._closed = False

    @classmethod
    def create(cls, path: Path, identity: Fingerprint) -> FlatStore:
        """Make an empty store in the folder ``path``, which may exist but may not hold a store.

        Raises:
            StoreError: a store is there already.
        """
        refuse_existing(path)
        path.mkdir(parents=True, exist_ok=True)
        store = cls(path, identity, generation=0)
        store._write([], [], store._vectors)
        return store

    @classmethod
    def open(cls, path: Path, identity: Fingerprint | None = None) -> FlatStore:
        """Open the store in ``path``.

        Raises:
            StoreError: no store there, or a file is missing or damaged.
            IdentityMismatchError: ``identity`` is given and is not the stored one.
        """
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if manifest.get("format") != FORMAT:
                raise StoreError(f"{path}: store format {manifest.get('format')!r}; accepted: {FORMAT}")
            stored = Fingerprint.from_dict(manifest["identity"])
        except FileNotFoundError as error:
            raise StoreError(f"{path} holds no store ({MANIFEST} is missing)") from error
        except (ValueError, KeyError, AttributeError) as error:
            raise StoreError(f"{path / MANIFEST} is damaged: {error}; rebuild the store") from error
        check_identity(f"the store {path}", stored, identity)
        store = cls(path, stored, int(manifest["generation"]))
        store._load(manifest)
        return store

    def __repr__(self) -> str:
        return f"FlatStore({str(self.path)!r}, {len(self._ids)} rows)"

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors are stored."""
        return self._identity

    @property
    def ids(self) -> tuple[str, ...]:
        """Document ids in row order."""
        return tuple(self._ids)

    def count(self) -> int:
        """Rows stored."""
        return len(self._ids)

    def vectors_of(self, ids: Sequence[str]) -> Vectors:
        """The stored rows of ``ids``, float32 ``(n, dim)``. KeyError where one is unknown."""
        self._check_open()
        return np.asarray(self._vectors[[self._row_of[doc_id] for doc_id in ids]], np.float32)

    def upsert(
        self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Insert or replace rows, all of them or none.

        Args:
            ids: n distinct, non-empty document ids.
            vectors: ``(n, dim)``; rows are brought to length 1.
            metadata: n mappings of plain JSON values; None for empty ones.

        Raises:
            InvalidArgumentError: another number or width, a repeated id, a row without direction.
        """
        self._check_open()
        rows, _ = checked_rows(self.path, self._identity, ids, vectors, metadata)
        all_ids, all_metadata, row_of = list(self._ids), list(self._metadata), dict(self._row_of)
        fresh = [position for position, doc_id in enumerate(ids) if doc_id not in row_of]
        for position in fresh:
            row_of[ids[position]] = len(all_ids)
            all_ids.append(ids[position])
            all_metadata.append({})
        matrix = np.empty((len(all_ids), self._identity.dim), np.float32)
        matrix[: len(self._ids)] = self._vectors
        for position, doc_id in enumerate(ids):
            row = row_of[doc_id]
            matrix[row] = rows[position]
            all_metadata[row] = dict(metadata[position]) if metadata is not None else {}
        self._write(all_ids, all_metadata, matrix)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove rows; returns how many there were. Unknown ids are no error."""
        self._check_open()
        gone = {self._row_of[doc_id] for doc_id in ids if doc_id in self._row_of}
        if gone:
            kept = [row for row in range(len(self._ids)) if row not in gone]
            self._write(
                [self._ids[row] for row in kept],
                [self._metadata[row] for row in kept],
                np.ascontiguousarray(self._vectors[kept]),
            )
        return len(gone)

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """The ``k`` rows of highest cosine with ``vector``, of those whose metadata match ``where``.

        Scores are dot products in float64 of the stored float32 rows; equal rows score equally,
        whatever their position. A zero vector (a blank query) is near nothing: an empty ranking.

        Raises:
            InvalidArgumentError: ``k`` below 1, a vector of another width, or a malformed ``where``.
        """
        self._check_open()
        check_k(k)
        unit = unit_query(self.path, self._identity, vector)
        if unit is None or not self._ids:
            return EMPTY_RANKING
        scores = self._vectors @ unit
        if where:
            allowed = np.flatnonzero(self._mask(where))
            if not allowed.size:
                return EMPTY_RANKING
            scores = scores[allowed]
        else:
            allowed = None
        if k < scores.size:
            threshold = np.partition(scores, scores.size - k)[scores.size - k]
            near = np.flatnonzero(scores >= threshold - ROUNDING)
        else:
            near = np.arange(scores.size)
        rows = near if allowed is None else allowed[near]
        return rescored([self._ids[row] for row in rows], self._vectors[rows], unit, k)

    def close(self) -> None:
        """Release the mapping; further calls raise StoreError."""
        self._vectors = np.zeros((0, self._identity.dim), np.float32)
        self._masks.clear()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")

    def _mask(self, where: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        key = repr(where)  # unlike JSON, tells 1 from "1" and True
        mask = self._masks.get(key)
        if mask is None:
            matches = compile_where(where)
            mask = np.fromiter((matches(m) for m in self._metadata), bool, len(self._metadata))
            self._masks[key] = mask
            if len(self._masks) > KEPT_MASKS:
                self._masks.popitem(last=False)
        return mask

    def _write(self, ids: list[str], metadata: list[Mapping[str, Any]], vectors: Vectors) -> None:
        generation = self._generation + 1
        names = {"vectors": f"vectors-{generation}.npy", "rows": f"rows-{generation}.json"}
        rows = json.dumps({"ids": ids, "metadata": metadata}, ensure_ascii=False, allow_nan=False)
        manifest = {
            "format": FORMAT,
            "generation": generation,
            "count": len(ids),
            "identity": self._identity.as_dict(),
            "files": names,
        }
        replace_file(
            self.path / names["vectors"], lambda stream: np.save(stream, vectors, allow_pickle=False)
        )
        replace_file(self.path / names["rows"], lambda stream: stream.write(rows.encode("utf-8")))
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        replace_file(self.path / MANIFEST, lambda stream: stream.write(text.encode("utf-8")))
        self._generation = generation
        self._load(manifest)
        for stale in (*self.path.glob("vectors-*.npy"), *self.path.glob("rows-*.json")):
            if stale.name not in names.values():
                stale.unlink(missing_ok=True)

    def _load(self, manifest: Mapping[str, Any]) -> None:
        names, count = manifest["files"], manifest["count"]
        try:
            rows = json.loads((self.path / names["rows"]).read_text(encoding="utf-8"))
            # an empty file cannot be mapped
            mode = "r" if count else None
            vectors = np.load(self.path / names["vectors"], mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
            ids, metadata = rows["ids"], rows["metadata"]
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise StoreError(f"{self.path} is damaged: {error}; rebuild the store") from error
        if vectors.shape != (count, self._identity.dim) or len(ids) != count or len(metadata) != count:
            raise StoreError(
                f"{self.path} is damaged: {len(ids)} ids and vectors of shape {vectors.shape} for "
                f"{count} rows of width {self._identity.dim}; rebuild the store"
            )
        self._ids, self._metadata, self._vectors = ids, metadata, vectors
        self._row_of = {doc_id: row for row, doc_id in enumerate(ids)}
        self._masks.clear()

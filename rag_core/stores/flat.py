"""Exact search over one memory-mapped float32 matrix: the default store, and the oracle of the others.

A folder holds ``manifest.json`` and the files it names: ``vectors-N.npy`` (float32 ``(n, dim)``, rows of
length 1), ``rows-N.bin`` (ids and metadata in row order, :mod:`rag_core.stores.flatrows`) and, with the
option ``scan=int8``, ``codes-N.bin`` (:mod:`rag_core.stores.codes`). A write makes the files of generation
N + 1, a block of rows at a time, and then replaces the manifest in one rename, so that a reader or a crash
sees the state before or after, never between. All files are mapped: in memory is what the system keeps of
them, and a few megabytes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.filters import compile_where
from rag_core.fingerprint import Fingerprint
from rag_core.packed import let_go, map_array
from rag_core.protocols import Vectors
from rag_core.stores.arrayfile import write_parts
from rag_core.stores.codes import Codes, near_by_codes, write_codes
from rag_core.stores.files import replace_file
from rag_core.stores.flatrows import Change, FlatRows
from rag_core.stores.identity import check_identity, refuse_existing
from rag_core.stores.rows import checked_rows, unit_query
from rag_core.stores.scan import Rows, best_of, near, near_many
from rag_core.types import EMPTY_RANKING, Ranking, check_k

__all__ = ["FlatStore"]

FORMAT = 2
#: Rows as one JSON object, as they were written first; read, and written anew by the next change.
FORMAT_JSON = 1
MANIFEST = "manifest.json"
SCANS = ("exact", "int8")
#: Masks kept for repeated filters, for example one per conversation of a data set; one bit a row each.
KEPT_MASKS = 256
#: Bytes of vectors copied at a time.
COPIED_BYTES = 1 << 24


class FlatStore:
    """Vectors in one matrix, searched row by row; exact, and the fastest choice up to about 100,000 rows.

    Option ``scan``: ``exact`` (default) multiplies the matrix itself. ``int8`` looks through bytes first, a
    quarter of the memory, and scores the best candidates exactly: where the extra ``fast`` is installed one
    query takes about a third of the time; elsewhere, and for many queries at once, it searches as ``exact``.
    """

    #: An open store keeps its own rows, whatever other processes write.
    is_snapshot = True

    def __init__(self, path: Path, identity: Fingerprint, generation: int, scan: str = "exact") -> None:
        self.path, self.scan = path, scan
        self._identity = identity
        self._generation = generation
        self._rows = FlatRows.of([], [])
        self._vectors: Vectors = np.zeros((0, identity.dim), np.float32)
        self._codes: Codes | None = None
        self._masks: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()
        self._closed = False

    @classmethod
    def check_options(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """``options`` as values, completed.

        Raises:
            InvalidArgumentError: an unknown option, or a value it does not take.
        """
        for option in options:
            if option != "scan":
                raise InvalidArgumentError(f"store 'flat' has no option {option!r}; accepted: scan")
        scan = options.get("scan", "exact")
        if scan not in SCANS:
            raise InvalidArgumentError(f"store 'flat': scan is {scan!r}; accepted: {', '.join(SCANS)}")
        return {"scan": scan}

    @classmethod
    def create(cls, path: Path, identity: Fingerprint, **options: str) -> FlatStore:
        """Make an empty store in the folder ``path``, which may exist but may not hold a store.

        Raises:
            InvalidArgumentError: an unknown option, or a value it does not take.
            StoreError: a store is there already.
        """
        settings = cls.check_options(options)
        refuse_existing(path)
        path.mkdir(parents=True, exist_ok=True)
        store = cls(path, identity, 0, **settings)
        store._write(Change(), [], [], store._vectors)
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
            if manifest.get("format") not in (FORMAT, FORMAT_JSON):
                raise StoreError(f"{path}: store format {manifest.get('format')!r}; accepted: {FORMAT}")
            stored = Fingerprint.from_dict(manifest["identity"])
        except FileNotFoundError as error:
            raise StoreError(f"{path} holds no store ({MANIFEST} is missing)") from error
        except (ValueError, KeyError, AttributeError) as error:
            raise StoreError(f"{path / MANIFEST} is damaged: {error}; rebuild the store") from error
        check_identity(f"the store {path}", stored, identity)
        store = cls(path, stored, int(manifest["generation"]), manifest.get("scan", "exact"))
        store._load(manifest)
        return store

    def __repr__(self) -> str:
        return f"FlatStore({str(self.path)!r}, {len(self._rows)} rows)"

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors are stored."""
        return self._identity

    @property
    def ids(self) -> tuple[str, ...]:
        """Document ids in row order."""
        return tuple(self._rows.ids[row] for row in range(len(self._rows)))

    def count(self) -> int:
        """Rows stored."""
        return len(self._rows)

    def vectors_of(self, ids: Sequence[str]) -> Vectors:
        """The stored rows of ``ids``, float32 ``(n, dim)``. KeyError where one is unknown."""
        self._check_open()
        rows = self._rows.find(ids)
        for doc_id, row in zip(ids, rows.tolist()):
            if row < 0:
                raise KeyError(doc_id)
        return np.asarray(self._vectors[rows], np.float32)

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
        given, texts = checked_rows(self.path, self._identity, ids, vectors, metadata)
        rows = self._rows.find(ids).tolist()
        replaced = {row: position for position, row in enumerate(rows) if row >= 0}
        added = [position for position, row in enumerate(rows) if row < 0]
        self._write(Change(replaced=replaced, added=added), ids, texts, given)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove rows; returns how many there were. Unknown ids are no error."""
        self._check_open()
        gone = self._rows.find(list(dict.fromkeys(ids)))
        gone = gone[gone >= 0]
        if gone.size:
            stays = np.ones(len(self._rows), np.bool_)
            stays[gone] = False
            self._write(Change(kept=np.flatnonzero(stays)), [], [], self._vectors[:0])
        return int(gone.size)

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """The ``k`` rows of highest cosine with ``vector``, of those whose metadata match ``where``.

        Scores are dot products in float64 of the stored float32 rows; equal rows score equally,
        whatever their position. A zero vector (a blank query) is near nothing: an empty ranking.

        Raises:
            InvalidArgumentError: ``k`` below 1, a vector of another width, or a malformed ``where``.
        """
        self._check_open()
        check_k(k)
        unit = self._unit(vector)
        if unit is None or not len(self._rows):
            return EMPTY_RANKING
        allowed = self._allowed(where) if where else None
        if allowed is not None and not allowed.size:
            return EMPTY_RANKING
        rows = near_by_codes(self._codes, unit, k, allowed) if self._codes is not None else None
        if rows is None:
            rows = near(self._vectors, unit, k, allowed)
        return best_of(self._rows.ids, self._vectors, rows, unit, k)

    def search_many(self, vectors: Vectors, k: int, where: Mapping[str, Any] | None = None) -> list[Ranking]:
        """:meth:`search` for each row of ``vectors`` ``(q, dim)``, the matrix read once for 64 of them.

        The rankings are those of the exact scan, with ``scan=int8`` as well.

        Raises:
            InvalidArgumentError: as of :meth:`search`.
        """
        self._check_open()
        check_k(k)
        found = [EMPTY_RANKING] * len(vectors)
        units = {n: unit for n, row in enumerate(vectors) if (unit := self._unit(row)) is not None}
        allowed = self._allowed(where) if where else None
        if not units or not len(self._rows) or (allowed is not None and not allowed.size):
            return found
        near_rows = near_many(self._vectors, np.stack(list(units.values())), k, allowed)
        for (n, unit), rows in zip(units.items(), near_rows):
            found[n] = best_of(self._rows.ids, self._vectors, rows, unit, k)
        return found

    def close(self) -> None:
        """Release the mapping; further calls raise StoreError."""
        self._rows, self._codes = FlatRows.of([], []), None
        self._vectors = np.zeros((0, self._identity.dim), np.float32)
        self._masks.clear()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")

    def _unit(self, vector: Vectors) -> Vectors | None:
        return unit_query(self.path, self._identity, vector)

    def _allowed(self, where: Mapping[str, Any]) -> Rows:
        key = repr(where)  # unlike JSON, tells 1 from "1" and True
        bits = self._masks.get(key)
        if bits is None:
            bits = self._masks[key] = np.packbits(self._rows.matching(compile_where(where)))
            if len(self._masks) > KEPT_MASKS:
                self._masks.popitem(last=False)
        return np.flatnonzero(np.unpackbits(bits, count=len(self._rows)))

    def _write(self, change: Change, ids: Sequence[str], metadata: Sequence[str], given: Vectors) -> None:
        generation = self._generation + 1
        names = {"vectors": f"vectors-{generation}.npy", "rows": f"rows-{generation}.bin"}
        count, dim = change.count(len(self._rows)), self._identity.dim
        replace_file(
            self.path / names["vectors"],
            lambda stream: write_parts(stream, (count, dim), np.float32, self._blocks(change, given)),
        )
        replace_file(
            self.path / names["rows"], lambda stream: self._rows.write(stream, change, ids, metadata)
        )
        if self.scan == "int8":
            names["codes"] = f"codes-{generation}.bin"
            vectors = map_array(self.path / names["vectors"])
            replace_file(self.path / names["codes"], lambda stream: write_codes(stream, vectors))
        manifest = {
            "format": FORMAT,
            "generation": generation,
            "count": count,
            "scan": self.scan,
            "identity": self._identity.as_dict(),
            "files": names,
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        replace_file(self.path / MANIFEST, lambda stream: stream.write(text.encode("utf-8")))
        self._generation = generation
        self._load(manifest)
        for part in ("vectors", "rows", "codes"):
            for stale in self.path.glob(f"{part}-*"):
                if stale.name not in names.values():
                    stale.unlink(missing_ok=True)

    def _blocks(self, change: Change, given: Vectors) -> Iterator[Vectors]:
        """The vectors that ``change`` makes of those that are there and those given."""
        size = max(1, COPIED_BYTES // (4 * self._identity.dim))
        kept = change.kept
        n_kept = len(self._rows) if kept is None else len(kept)
        replaced = np.array(sorted(change.replaced), np.int64)
        for start in range(0, n_kept, size):
            stop = min(start + size, n_kept)
            block = self._vectors[start:stop] if kept is None else self._vectors[kept[start:stop]]
            first, last = np.searchsorted(replaced, (start, stop))
            if first < last:
                block = block.copy()
                for row in replaced[first:last].tolist():
                    block[row - start] = given[change.replaced[row]]
            yield block
            let_go(self._vectors)  # it is copied, not kept in memory
        for start in range(0, len(change.added), size):
            yield given[list(change.added[start : start + size])]

    def _load(self, manifest: Mapping[str, Any]) -> None:
        names, count, dim = manifest["files"], manifest["count"], self._identity.dim
        try:
            if manifest["format"] == FORMAT_JSON:
                held = json.loads((self.path / names["rows"]).read_text(encoding="utf-8"))
                rows = FlatRows.of(held["ids"], [json.dumps(fields) for fields in held["metadata"]])
            else:
                rows = FlatRows.open(self.path / names["rows"])
            vectors = map_array(self.path / names["vectors"])
            codes = (
                Codes.open(self.path / names["codes"], (count, dim)) if "codes" in names and count else None
            )
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise StoreError(f"{self.path} is damaged: {error}; rebuild the store") from error
        if vectors.shape != (count, dim) or len(rows) != count:
            raise StoreError(
                f"{self.path} is damaged: {len(rows)} ids and vectors of shape {vectors.shape} for "
                f"{count} rows of width {dim}; rebuild the store"
            )
        self._rows, self._vectors, self._codes = rows, vectors, codes
        self._masks.clear()

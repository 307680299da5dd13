"""What the stores share that leave their rows to a database: checks, identity, ties, scores, processes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from rag_core.errors import InvalidArgumentError, RagCoreError, StoreError
from rag_core.extras import require
from rag_core.filters import Node, parse_where
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors
from rag_core.stores.identity import check_identity, read_identity, refuse_existing, write_identity
from rag_core.stores.rows import ROUNDING, checked_rows, rescored, unit_query
from rag_core.types import EMPTY_RANKING, Ranking, check_k

__all__ = ["BackedStore", "Found", "first_line", "stacked"]

#: Rows asked for beyond ``k``, so that the order among equal scores can be settled here.
MORE = 16


class Found(NamedTuple):
    """Rows a database found, nearest first: n ids, float32 ``(n, dim)``, n cosine distances."""

    ids: Sequence[str]
    rows: Vectors
    distances: Sequence[float]


class BackedStore(ABC):
    """A store of kind ``name`` whose database is the package ``package``.

    A subclass connects in ``_create`` and ``_connect`` and writes ``_put``, ``_remove``, ``_stored``,
    ``_vectors``, ``_nearest``, ``_count`` and ``_disconnect``. It gets checked rows of length 1 and gives
    candidates: scores are worked out here in float64 from the stored vectors, so that they equal those of
    the exact store, and the order among equal scores is that of :class:`~rag_core.types.Ranking`.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str]
    #: Option -> what it accepts.
    options: ClassVar[Mapping[str, str]] = {}

    def __init__(self, path: Path, identity: Fingerprint, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, dict(settings)
        self._identity = identity
        self._process = os.getpid()
        self._closed = False

    @classmethod
    def create(cls, path: Path, identity: Fingerprint, **options: str) -> Self:
        """Make an empty store in the folder ``path``, which may exist but may not hold a store.

        Raises:
            MissingExtraError: the database's package is not installed.
            InvalidArgumentError: an unknown option, or a value it does not take.
            StoreError: a store is there already.
        """
        store = cls(path, identity, cls.check_options(options))
        cls._require()
        refuse_existing(path)
        path.mkdir(parents=True, exist_ok=True)
        store._create()
        write_identity(path, cls.name, identity, store.settings)
        return store

    @classmethod
    def open(cls, path: Path, identity: Fingerprint | None = None) -> Self:
        """Open the store in ``path``.

        Raises:
            MissingExtraError: the database's package is not installed.
            StoreError: no store of this kind there, or it is damaged.
            IdentityMismatchError: ``identity`` is given and is not the stored one.
        """
        stored, settings = read_identity(path, cls.name)
        check_identity(f"the store {path}", stored, identity)
        cls._require()
        store = cls(path, stored, settings)
        store._connect()
        return store

    @classmethod
    def check_options(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """``options`` as values, completed: they stand in ``store.json``.

        Raises:
            InvalidArgumentError: an unknown option, or a value it does not take.
        """
        for option in options:
            if option not in cls.options:
                accepted = "; ".join(f"{name}: {what}" for name, what in cls.options.items())
                raise InvalidArgumentError(
                    f"store {cls.name!r} has no option {option!r}; accepted: {accepted}"
                )
        return cls._settings(options)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (self.path, self._identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors are stored."""
        return self._identity

    def count(self) -> int:
        """Rows stored."""
        self._check_open()
        return self._count()

    def upsert(
        self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Insert or replace rows.

        Args:
            ids: n distinct, non-empty document ids.
            vectors: ``(n, dim)``; rows are brought to length 1.
            metadata: n mappings of plain JSON values; None for empty ones.

        Raises:
            InvalidArgumentError: another number or width, a repeated id, a row without direction; nothing
                is written.
            StoreError: the database failed.
        """
        self._check_open()
        rows, texts = checked_rows(self.path, self._identity, ids, vectors, metadata)
        if len(ids):
            self._put(list(ids), rows, texts)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove rows; returns how many there were. Unknown ids are no error."""
        self._check_open()
        wanted = list(dict.fromkeys(ids))
        return self._remove(wanted) if wanted else 0

    def missing(self, ids: Sequence[str]) -> list[str]:
        """Those of ``ids`` that no row has, once each, in their order."""
        self._check_open()
        wanted = list(dict.fromkeys(ids))
        stored = self._stored(wanted) if wanted else set()
        return [doc_id for doc_id in wanted if doc_id not in stored]

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """The ``k`` rows of highest cosine with ``vector``, of those whose metadata match ``where``.

        Raises:
            InvalidArgumentError: ``k`` below 1, a vector of another width, or a malformed ``where``.
        """
        self._check_open()
        check_k(k)
        unit = unit_query(self.path, self._identity, vector)
        tree = parse_where(where) if where else None
        if unit is None:
            return EMPTY_RANKING
        wanted = k + MORE
        while True:
            found = self._nearest(unit, wanted, tree)
            if len(found.ids) < wanted or found.distances[-1] > found.distances[k - 1] + ROUNDING:
                return rescored(found.ids, found.rows, unit, k)
            wanted *= 4  # rows as near as the k-th may stand behind the last one

    def vectors_of(self, ids: Sequence[str]) -> Vectors:
        """The stored rows of ``ids``, float32 ``(n, dim)``. KeyError where one is unknown."""
        self._check_open()
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return stacked([], self._identity.dim)
        found, rows = self._vectors(wanted)
        place = {doc_id: position for position, doc_id in enumerate(found)}
        return rows[[place[doc_id] for doc_id in ids]]

    def close(self) -> None:
        """Release files; further calls raise StoreError."""
        if not self._closed and os.getpid() == self._process:
            self._disconnect()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")
        if os.getpid() != self._process:
            raise StoreError(
                f"the store {self.path} was opened in another process, and threads of {self.package} do not "
                "survive a fork; start processes by spawn, or open the store in this one"
            )

    def _guarded(self, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``call(*args, **kwargs)``; what the database raises becomes a StoreError, errors of ours stay."""
        try:
            return call(*args, **kwargs)
        except RagCoreError:
            raise
        except self._failures() as error:
            raise StoreError(f"{self.path}: {self.package} could not {what}: {first_line(error)}") from error

    def _failures(self) -> tuple[type[Exception], ...]:
        return OSError, RuntimeError, ValueError

    @classmethod
    def _require(cls) -> Any:
        return require(f"store {cls.name!r}", cls.package, cls.extra)

    @classmethod
    @abstractmethod
    def _settings(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """The values of known ``options``, completed; InvalidArgumentError for one it does not take."""

    @abstractmethod
    def _create(self) -> None:
        """Make the empty database, over what a crash may have left, and connect to it."""

    @abstractmethod
    def _connect(self) -> None:
        """Connect to the database; StoreError where it cannot be read."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Release files and threads."""

    @abstractmethod
    def _count(self) -> int:
        """Rows stored."""

    @abstractmethod
    def _put(self, ids: list[str], rows: Vectors, metadata: list[str]) -> None:
        """Insert or replace; ``metadata`` are JSON texts."""

    @abstractmethod
    def _remove(self, ids: list[str]) -> int:
        """Delete the rows of distinct ``ids``; how many there were."""

    @abstractmethod
    def _vectors(self, ids: list[str]) -> tuple[Sequence[str], Vectors]:
        """Those of the distinct ``ids`` that there are, in any order, and their rows float32 ``(n, dim)``."""

    @abstractmethod
    def _stored(self, ids: list[str]) -> set[str]:
        """Those of distinct ``ids`` that a row has."""

    @abstractmethod
    def _nearest(self, unit: Vectors, wanted: int, where: Node | None) -> Found:
        """The ``wanted`` nearest rows that satisfy ``where``, fewer only where there are no more."""


def first_line(error: BaseException) -> str:
    """The first line of a message: databases append where in their own source it was raised."""
    return str(error).strip().split("\n", 1)[0]


def stacked(parts: Sequence[Any], dim: int) -> Vectors:
    """``parts``, each any number of whole rows, as float32 ``(n, dim)``; also of no parts."""
    empty = np.zeros((0, dim), np.float32)
    return np.concatenate([empty, *(np.asarray(p, dtype=np.float32).reshape(-1, dim) for p in parts)])

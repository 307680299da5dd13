"""Vector stores by name. Each backend is one file, imported when it is asked for."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rag_core.errors import InvalidArgumentError, MissingExtraError, UnknownNameError
from rag_core.factory import SpecString
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import VectorStore
from rag_core.registry import load_attribute, nearest
from rag_core.stores.identity import IDENTITY_FILE

__all__ = ["STORES", "StoreSpec", "check_store", "create_store", "discard_store", "open_store"]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """One kind of store.

    Attributes:
        load: ``module:class`` with ``create(path, identity, **options)`` and ``open(path, identity=None)``.
        note: one line for tables.
        requires: import name of the package it needs; empty for none.
        extra: the extra of this distribution that installs it.
    """

    load: str
    note: str
    requires: str = ""
    extra: str = ""


STORES: Mapping[str, StoreSpec] = {
    "chroma": StoreSpec(
        "rag_core.stores.chroma:ChromaStore", "embedded, HNSW, approximate", "chromadb", "chroma"
    ),
    "flat": StoreSpec("rag_core.stores.flat:FlatStore", "numpy, memory-mapped, exact: the default"),
    "lancedb": StoreSpec(
        "rag_core.stores.lancedb:LanceStore",
        "columns on disk, exact to 100,000 rows, then HNSW or IVF-PQ",
        "lancedb",
        "lancedb",
    ),
    "surrealdb": StoreSpec(
        "rag_core.stores.surrealdb:SurrealStore",
        "graph and vectors in one query, exact or HNSW, embedded or on a server",
        "surrealdb",
        "surrealdb",
    ),
}


def create_store(name: str, path: Path, identity: Fingerprint) -> VectorStore:
    """Make an empty store in ``path`` for the vectors of ``identity``.

    Args:
        name: name and options, for example ``flat`` or ``lancedb?index=hnsw_sq``.

    Raises:
        UnknownNameError: no store of that name.
        InvalidArgumentError: an option it does not have, or a value it does not take.
        MissingExtraError: its package is not installed.
        StoreError: ``path`` already holds a store.
    """
    kind, options = _kind(name)
    return cast(VectorStore, kind.create(path, identity, **options))


def open_store(name: str, path: Path, identity: Fingerprint | None = None) -> VectorStore:
    """Open the store in ``path``; with ``identity``, refuse one that was built by another embedder.

    Args:
        name: as for :func:`create_store`; the options that the store was made with stay as they are.

    Raises:
        UnknownNameError: no store of that name.
        MissingExtraError: its package is not installed.
        StoreError: there is no store, or it is damaged.
        IdentityMismatchError: built with another fingerprint; both stand in the message.
    """
    kind, _ = _kind(name)
    return cast(VectorStore, kind.open(path, identity))


def check_store(name: str) -> None:
    """Refuse, without importing its package, a store that cannot be made here.

    Raises:
        UnknownNameError, InvalidArgumentError: as for :func:`create_store`.
        MissingExtraError: its package is not installed.
    """
    _kind(name)
    parsed = SpecString.parse(name)
    spec = STORES[parsed.name]
    if spec.requires and not _is_installed(spec.requires):
        raise MissingExtraError(f"store {parsed.name!r}", spec.requires, spec.extra)


def discard_store(path: Path) -> None:
    """Remove what the store in the folder ``path`` keeps elsewhere; the folder itself is the caller's.

    Raises:
        StoreError: that cannot be reached.
        MissingExtraError: its package is not installed.
    """
    try:
        content = json.loads((path / IDENTITY_FILE).read_text(encoding="utf-8"))
        kind: Any = load_attribute(STORES[content["store"]].load)
        settings = dict(content["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # not whole, or of a kind that keeps everything here
    if hasattr(kind, "discard"):
        kind.discard(settings)


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def _kind(name: str) -> tuple[Any, Mapping[str, str]]:
    parsed = SpecString.parse(name)
    if parsed.name not in STORES:
        raise UnknownNameError(f"unknown store {parsed.name!r}{nearest(parsed.name, STORES)}")
    if parsed.model or parsed.target:
        raise InvalidArgumentError(f"store {name!r}: accepted: name[?option=value&…]")
    kind: Any = load_attribute(STORES[parsed.name].load)
    if hasattr(kind, "check_options"):
        kind.check_options(parsed.options)
    elif parsed.options:
        raise InvalidArgumentError(f"store {parsed.name!r} takes no options; got {', '.join(parsed.options)}")
    return kind, parsed.options

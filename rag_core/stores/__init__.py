"""Vector stores by name. Each backend is one file, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rag_core.errors import UnknownNameError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import VectorStore
from rag_core.registry import load_attribute, nearest

__all__ = ["STORES", "create_store", "open_store"]

#: name -> class with ``create(path, identity)`` and ``open(path, identity=None)``
STORES: Mapping[str, str] = {"flat": "rag_core.stores.flat:FlatStore"}


def create_store(name: str, path: Path, identity: Fingerprint) -> VectorStore:
    """Make an empty store in ``path`` for the vectors of ``identity``.

    Raises:
        UnknownNameError: no store of that name.
        StoreError: ``path`` already holds a store.
    """
    return cast(VectorStore, _class(name).create(path, identity))  # type: ignore[attr-defined]


def open_store(name: str, path: Path, identity: Fingerprint | None = None) -> VectorStore:
    """Open the store in ``path``; with ``identity``, refuse one that was built by another embedder.

    Raises:
        UnknownNameError: no store of that name.
        StoreError: there is no store, or it is damaged.
        IdentityMismatchError: built with another fingerprint; both stand in the message.
    """
    return cast(VectorStore, _class(name).open(path, identity))  # type: ignore[attr-defined]


def _class(name: str) -> object:
    if name not in STORES:
        raise UnknownNameError(f"unknown store {name!r}{nearest(name, STORES)}")
    return load_attribute(STORES[name])

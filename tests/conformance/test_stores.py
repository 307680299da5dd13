"""Every store of the table, through the kit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_core.fingerprint import Fingerprint
from rag_core.protocols import VectorStore
from rag_core.stores import STORES, create_store, open_store
from rag_core.testing import VectorStoreConformance


def _case(name: str) -> type[VectorStoreConformance]:
    def make(self: Any, identity: Fingerprint, path: Path) -> VectorStore:
        return create_store(name, path, identity)

    def reopen(self: Any, path: Path, identity: Fingerprint | None = None) -> VectorStore:
        return open_store(name, path, identity)

    case = type(f"Test_{name}", (VectorStoreConformance,), {"make": make, "reopen": reopen})
    return pytest.mark.stores_external(case) if STORES[name].requires else case


globals().update({case.__name__: case for case in map(_case, STORES)})


def test_the_table_is_covered() -> None:
    assert {f"Test_{name}" for name in STORES} <= set(globals())

"""What the stores over a database share, over a database that is a dictionary in a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.filters import Node, tree_test
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors
from rag_core.stores.backed import BackedStore, Found, stacked
from rag_core.stores.identity import IDENTITY_FILE, read_identity
from rag_core.testing import VectorStoreConformance


class DictionaryStore(BackedStore):
    name: ClassVar[str] = "dictionary"
    package: ClassVar[str] = "json"
    extra: ClassVar[str] = "none"
    options: ClassVar[Mapping[str, str]] = {"colour": "any"}
    asked: ClassVar[list[int]] = []

    @classmethod
    def _settings(cls, options: Mapping[str, str]) -> dict[str, Any]:
        return {"colour": options.get("colour", "grey")}

    def _create(self) -> None:
        self._rows: dict[str, tuple[list[float], str]] = {}
        self._save()

    def _connect(self) -> None:
        self._rows = json.loads((self.path / "rows").read_text())

    def _save(self) -> None:
        (self.path / "rows").write_text(json.dumps(self._rows))

    def _disconnect(self) -> None:
        self._rows = {}

    def _count(self) -> int:
        return len(self._rows)

    def _put(self, ids: list[str], rows: Vectors, metadata: list[str]) -> None:
        self._rows.update(zip(ids, zip(rows.tolist(), metadata)))
        self._save()

    def _remove(self, ids: list[str]) -> int:
        gone = [doc_id for doc_id in ids if self._rows.pop(doc_id, None)]
        self._save()
        return len(gone)

    def _vectors(self, ids: list[str]) -> tuple[list[str], Vectors]:
        found = sorted(set(ids) & set(self._rows))
        return found, stacked([self._rows[doc_id][0] for doc_id in found], self._identity.dim)

    def _stored(self, ids: list[str]) -> set[str]:
        return self._rows.keys() & ids

    def _nearest(self, unit: Vectors, wanted: int, where: Node | None) -> Found:
        self.asked.append(wanted)
        matches = tree_test(where) if where is not None else lambda metadata: True
        kept = [(i, row) for i, (row, text) in self._rows.items() if matches(json.loads(text))]
        rows = stacked([row for _, row in kept], self._identity.dim)
        distances = 1 - rows @ unit
        best = np.argsort(distances, kind="stable")[:wanted]
        return Found([kept[i][0] for i in best], rows[best], distances[best].tolist())


class TestConformance(VectorStoreConformance):
    def make(self, identity: Fingerprint, path: Path) -> DictionaryStore:
        return DictionaryStore.create(path, identity)

    def reopen(self, path: Path, identity: Fingerprint | None = None) -> DictionaryStore:
        return DictionaryStore.open(path, identity)


IDENTITY = Fingerprint("fake", "m", "1", 4, "fp32", "mean")
ROW = np.eye(4, dtype=np.float32)[:1]


def test_rows_equal_to_the_last_one_are_asked_for(tmp_path: Path) -> None:
    """O27: ties beyond the margin: more is asked for until the last row is farther, or there are no more."""
    store = DictionaryStore.create(tmp_path / "s", IDENTITY)
    ids = [f"t{i:03}" for i in range(150)]
    store.upsert(ids, np.tile(ROW, (150, 1)))
    DictionaryStore.asked.clear()
    assert store.search(ROW[0], 1).doc_ids == ("t149",)
    assert DictionaryStore.asked == [17, 68, 272]
    store.upsert(["far"], np.eye(4, dtype=np.float32)[1:2])
    store.delete(ids[5:])
    DictionaryStore.asked.clear()
    assert store.search(ROW[0], 1).doc_ids == ("t004",)
    assert DictionaryStore.asked == [17]


def test_settings_are_kept_beside_the_identity(tmp_path: Path) -> None:
    DictionaryStore.create(tmp_path / "s", IDENTITY, colour="red").close()
    assert DictionaryStore.open(tmp_path / "s").settings == {"colour": "red"}
    assert read_identity(tmp_path / "s", "dictionary") == (IDENTITY, {"colour": "red"})
    with pytest.raises(InvalidArgumentError, match="no option 'shape'; accepted: colour: any"):
        DictionaryStore.create(tmp_path / "t", IDENTITY, shape="round")


def test_it_travels_by_its_folder(tmp_path: Path) -> None:
    store = DictionaryStore.create(tmp_path / "s", IDENTITY)
    store.upsert(["a"], ROW)
    copy = pickle.loads(pickle.dumps(store))
    assert copy.search(ROW[0], 1).doc_ids == ("a",)
    assert str(tmp_path / "s") in repr(copy)


def test_another_process_is_told_to_open_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DictionaryStore.create(tmp_path / "s", IDENTITY)
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(StoreError, match="start processes by spawn"):
        store.count()


def test_the_database_s_own_errors_become_store_errors(tmp_path: Path) -> None:
    store = DictionaryStore.create(tmp_path / "s", IDENTITY)

    def fail(words: str) -> None:
        raise OSError(f"{words}\nat src/lib.rs:7")

    with pytest.raises(StoreError, match=r"s: json could not write: no space left$"):
        store._guarded("write", fail, words="no space left")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 9}', "store format 9; accepted: 1"),
        ('{"format": 1, "store": "other"}', "of kind 'other', not 'dictionary'"),
        ('{"format": 1, "store": "dictionary"}', "is damaged: 'identity'"),
        ('{"format": 1, "store": "dictionary", "settings": {}, "identity": {}}', "is damaged: fingerprint"),
    ],
)
def test_a_bad_identity_file_is_reported(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / IDENTITY_FILE).write_text(text)
    with pytest.raises(StoreError, match=words):
        DictionaryStore.open(tmp_path)


def test_a_folder_of_another_kind_of_store_is_not_written_over(tmp_path: Path) -> None:
    from rag_core.stores import create_store, open_store

    create_store("flat", tmp_path / "f", IDENTITY).close()
    with pytest.raises(StoreError, match="already holds a store"):
        DictionaryStore.create(tmp_path / "f", IDENTITY)
    DictionaryStore.create(tmp_path / "d", IDENTITY).close()
    with pytest.raises(StoreError, match="already holds a store"):
        create_store("flat", tmp_path / "d", IDENTITY)
    with pytest.raises(StoreError, match="holds no store"):
        open_store("flat", tmp_path / "d")

"""Versions made in small blocks: the files of versions made in one, and no memory for each row."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rag_core import (
    Document,
    analysis,
    bm25_write,
    get_embedder,
    index_change,
    index_check,
    index_rows,
    index_sources,
    index_table,
    index_write,
    packed_find,
    seen,
    spill,
)
from rag_core.index import Index
from rag_core.index_check import intended, write_intent
from rag_core.index_rows import NewRows, live_rows, write_table
from rag_core.index_table import EMPTY, FAILED, LIVE, ROW, Rows, Table

BEFORE = [
    Document(f"d{i * 37 % 101:03d}", f"text {i}" if i % 10 else " ", f"T{i % 3}", {"n": i})
    for i in range(101)
]
AFTER = [
    *BEFORE[:30],
    *(Document(d.doc_id, d.text + " changed", d.title, d.metadata) for d in BEFORE[30:60]),
    *(Document(f"n{i * 7 % 50:02d}é", f"new text {i}") for i in range(50)),
]


def in_blocks_of(patch: pytest.MonkeyPatch, size: int) -> None:
    """Everything that is done in blocks, in blocks of about ``size``."""
    for module, name in (
        (index_rows, "BLOCK"),
        (index_change, "BLOCK"),
        (index_check, "KEYS_AT_ONCE"),
        (index_table, "TEXTS"),
        (index_write, "SLICE_OF_SNAPSHOT"),
        (bm25_write, "BLOCK_TEXTS"),
        (bm25_write, "WINDOW"),
        (analysis, "KEPT_WORDS"),
        (packed_find, "HASHED"),
    ):
        patch.setattr(module, name, size)
    for module in (index_change, index_rows, index_sources, index_table, index_write):
        patch.setattr(module, "STRIDE", size + 3)
    patch.setattr(spill, "FEWEST", 2)
    patch.setattr(spill.merge, "__defaults__", (2 * size,))
    patch.setattr(spill.Spill.__init__, "__defaults__", (0,))
    patch.setattr(seen.KeyPlaces.__init__, "__defaults__", (size,))
    patch.setattr(seen.SeenKeys.__init__, "__defaults__", (size,))


def life_of(path: Path) -> list[set[tuple[str, bytes]]]:
    """All files of an index under the names that are not random, after each of five changes."""
    states = []
    index = Index.create(path, get_embedder("fake?fail=poison"))
    changes = (
        lambda: index.ingest(BEFORE, batch=8),
        lambda: index.ingest(AFTER, prune=True, batch=8),
        lambda: index.delete([f"d{i:03d}" for i in range(0, 101, 2)]),
        lambda: index.rebuild(get_embedder("fake-e5-small?fail=poison"), batch=8),
        lambda: index.ingest([Document("bad", "poison"), *AFTER[:3]], batch=8),
    )
    for change in changes:
        change()
        folders = [*path.glob("texts/*"), *path.glob("generations/*/**/*.npy"), *path.glob("vectors/*/*.npy")]
        found = {(re.sub(r"[-0-9a-f]{8,}|-\d+", "", file.name), file.read_bytes()) for file in folders}
        states.append({("digest", index.digest().encode()), *found})
    return states


def test_files_do_not_depend_on_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = life_of(tmp_path / "whole")
    in_blocks_of(monkeypatch, 7)
    assert life_of(tmp_path / "blocks") == whole
    assert len(set(map(frozenset, whole))) == 5
    assert min(map(len, whole)) >= 12


def test_memory_does_not_grow_with_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's and numpy's own, at its highest, from the first document to the version in force."""
    in_blocks_of(monkeypatch, 200)
    monkeypatch.setattr("providers.fake.REMEMBERED", 10)

    class Passages:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Iterator[Document]:
            for number in range(self.n):
                yield Document(f"d{number * 7919 % self.n:06d}", f"a passage u{number}")

    def peak_bytes(n: int) -> int:
        # the raw analyser: PyStemmer keeps 10,000 words of its own
        index = Index.create(tmp_path / str(n), get_embedder("fake"), analyser=analysis.Analyser.raw())
        tracemalloc.start()
        try:
            index.ingest(Passages(n), batch=128)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(10)  # what is imported
    small, large = peak_bytes(1000), peak_bytes(4000)
    assert (large - small) / 3000 < 200


def test_the_table_that_old_and_new_rows_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_blocks_of(monkeypatch, 7)
    rng = np.random.default_rng(0)
    rows = np.zeros(40, ROW)
    rows["length"], rows["state"] = np.arange(40), rng.integers(0, 3, 40)
    old = Table.make([f"k{i:02d}" for i in range(0, 40, 2)], rows[::2])
    dropped = rng.random(20) < 0.5
    added = NewRows(tmp_path)
    for start in range(1, 40, 10):
        added.add([f"k{i:02d}" for i in range(start, start + 10, 2)], rows[start : start + 10 : 2])
    assert len(added) == 20
    passed: list[int] = []

    def moved(some: Rows) -> Rows:
        passed.extend(some["length"].tolist())
        return some

    is_new = write_table(tmp_path, old, dropped, added, moved)
    table = Table.open(tmp_path)
    stays = [i for i in range(40) if i % 2 or not dropped[i // 2]]
    assert [table.ids[row] for row in range(len(table))] == [f"k{i:02d}" for i in stays]
    assert table.rows["length"].tolist() == passed == stays
    assert is_new.tolist() == [bool(i % 2) for i in stays]
    assert [table.count(state) for state in (LIVE, EMPTY, FAILED)] == [
        int((rows["state"][stays] == state).sum()) for state in (LIVE, EMPTY, FAILED)
    ]
    found = list(live_rows(table, is_new, 3))
    assert [len(part) for part in found[:-1]] == [3] * (len(found) - 1)
    expected = [at for at, i in enumerate(stays) if i % 2 and rows["state"][i] == LIVE]
    assert np.concatenate(found).tolist() == expected
    added.close()


KEYS = ["a\x1f00", 'qu"ote', "é\u2028", "]", ",\n"]


@pytest.mark.parametrize("keys", [[], KEYS[:1], KEYS])
def test_what_a_writer_is_about_to_do_is_read_line_by_line(tmp_path: Path, keys: list[str]) -> None:
    write_intent(tmp_path, "000002-ab", iter(keys))
    assert json.loads((tmp_path / "intent.json").read_text()) == {"vectors": "000002-ab", "keys": keys}
    vectors, named = intended(tmp_path) or ("", iter(()))
    assert (vectors, list(named)) == ("000002-ab", keys)
    in_one_line = json.dumps({"vectors": "v", "keys": keys})  # as earlier versions wrote it
    (tmp_path / "intent.json").write_text(in_one_line)
    vectors, named = intended(tmp_path) or ("", iter(()))
    assert (vectors, list(named)) == ("v", keys)
    (tmp_path / "intent.json").write_text("{")
    vectors, named = intended(tmp_path) or ("?", iter(()))
    assert (vectors, list(named)) == ("", [])
    (tmp_path / "intent.json").unlink()
    assert intended(tmp_path) is None

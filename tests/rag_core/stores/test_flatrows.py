"""Ids and metadata of the exact store: lookup, and every way in which rows follow from rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.stores import flatrows
from rag_core.stores.arrayfile import map_arrays, write_parts
from rag_core.stores.flatrows import Change, FlatRows


def written(rows: FlatRows, path: Path, change: Change, ids: list[str], metadata: list[str]) -> FlatRows:
    with path.open("wb") as stream:
        rows.write(stream, change, ids, metadata)
    return FlatRows.open(path)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@given(
    old=st.dictionaries(TEXT, st.integers(0, 10**6), max_size=12),
    new=st.dictionaries(TEXT, st.integers(0, 10**6), max_size=6),
    gone=st.sets(st.integers(0, 11)),
)
@settings(max_examples=80, deadline=None)
def test_rows_follow_a_dict(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, int], new: dict[str, int], gone: set[int]
) -> None:
    path = tmp_path_factory.mktemp("rows")
    ids = list(old)
    rows = FlatRows.of(ids, [f'{{"v": {v}}}' for v in old.values()])
    found = rows.find(list(new)).tolist()
    change = Change(
        replaced={row: n for n, row in enumerate(found) if row >= 0},
        added=[n for n, row in enumerate(found) if row < 0],
    )
    assert change.count(len(rows)) == len(old | new)
    upserted = written(rows, path / "1", change, list(new), [f'{{"v": {v}}}' for v in new.values()])
    expected = list((old | new).items())
    kept = np.array([n for n in range(len(expected)) if n not in gone], np.int64)
    deleted = written(upserted, path / "2", Change(kept=kept), [], [])
    for held, wanted in ((upserted, expected), (deleted, [expected[n] for n in kept])):
        assert [held.ids[n] for n in range(len(held))] == [doc_id for doc_id, _ in wanted]
        assert [held.metadata[n] for n in range(len(held))] == [f'{{"v": {v}}}' for _, v in wanted]
        assert held.find([doc_id for doc_id, _ in wanted]).tolist() == list(range(len(wanted)))
        assert held.find(["not an id of these"]).tolist() == [-1]


def test_ids_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatrows, "_hashes", lambda encoded: np.full(len(encoded), 5, np.uint64))
    rows = FlatRows.of(["a", "b", "c"], ["{}"] * 3)
    assert rows.find(["c", "a", "x", "b"]).tolist() == [2, 0, -1, 1]


def test_filters_see_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatrows, "PARSED_ROWS", 7)
    monkeypatch.setattr(flatrows, "REMEMBERED", 2)
    rows = FlatRows.of([f"d{n}" for n in range(40)], [f'{{"n": {n % 5}}}' for n in range(40)])
    assert rows.matching(lambda fields: fields["n"] == 3).tolist() == [n % 5 == 3 for n in range(40)]


def test_arrays_of_different_lengths_are_damage() -> None:
    rows = FlatRows.of(["a", "b"], ["{}"] * 2)
    with pytest.raises(ValueError, match="5 arrays where 6 belong"):
        FlatRows(rows._arrays[:5])
    with pytest.raises(ValueError, match="different numbers"):
        FlatRows([*rows._arrays[:5], rows._arrays[5][:1]])


def test_arrays_in_one_file_are_aligned_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    with path.open("wb") as stream:
        write_parts(stream, (3,), np.uint8, [np.arange(3, dtype=np.uint8)])
        write_parts(stream, (2, 2), np.float64, [np.ones((1, 2)), np.zeros((1, 2))])
        write_parts(stream, (0, 4), np.float32, [])
    first, second, third = map_arrays(path)
    assert (first.tolist(), second.tolist(), third.shape) == ([0, 1, 2], [[1, 1], [0, 0]], (0, 4))
    assert not second.ctypes.data % 64
    assert not second.flags.writeable
    path.write_bytes(path.read_bytes()[:330])
    with pytest.raises(ValueError, match="is cut"):
        map_arrays(path)
    path.write_bytes(b"\x93NUMPY\x02\x00" + bytes(60))
    with pytest.raises(ValueError, match="something else"):
        map_arrays(path)


def test_parts_that_are_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="has 12 bytes; its parts have 8"):
        write_parts(io.BytesIO(), (3,), np.float32, [np.zeros(2, np.float32)])

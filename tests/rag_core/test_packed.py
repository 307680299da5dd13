"""Strings packed into arrays."""

from __future__ import annotations

import pickle
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.packed import PackedStrings, map_array, write_array


@given(st.sets(st.text(max_size=6), max_size=30), st.text(max_size=6))
def test_find_agrees_with_a_list(strings: set[str], other: str) -> None:
    ordered = sorted(strings, key=lambda s: s.encode("utf-8", "surrogatepass"))
    plain = PackedStrings.pack(ordered)
    for packed in (plain, plain.hashed()):
        assert [packed[i] for i in range(len(packed))] == ordered
        for string in {*strings, other}:
            assert packed.find(string) == (ordered.index(string) if string in strings else -1)


@given(
    st.sets(st.text(max_size=6), max_size=30), st.text(max_size=6), st.sampled_from([1, 3, 0xF8, 0xFFFFFFFF])
)
def test_find_by_hash_needs_no_order_and_survives_clashes(strings: set[str], other: str, bits: int) -> None:
    """``bits`` of the hash are used: with few, most strings are behind the place where they belong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag_core.packed_find.crc32", lambda data: crc32(data) & bits)
        packed = PackedStrings.pack([*strings]).hashed()
        for string in {*strings, other}:
            assert packed.find(string) == ([*strings].index(string) if string in strings else -1)


@given(
    st.lists(st.sampled_from(["", "a", "http://www.", "ñ", "\0", "图"]), max_size=4).map("".join), st.data()
)
def test_find_among_long_shared_beginnings(other: str, data: st.DataObject) -> None:
    """The signposts know eight bytes."""
    ends = data.draw(st.sets(st.text("ab\0ñ", max_size=5), min_size=1, max_size=40))
    ordered = sorted({"http://www." + end for end in ends} | ends, key=str.encode)
    packed = PackedStrings.pack(ordered)
    for string in {*ordered, other}:
        assert packed.find(string) == (ordered.index(string) if string in ordered else -1)


@pytest.mark.parametrize("whole", [0, 1 << 22])
@pytest.mark.parametrize("strings", [["", "one", "two\n", "three"], ["é", "\ud800", "图书馆", ""], [""]])
def test_take(strings: list[str], whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.packed.WHOLE", whole)
    packed = PackedStrings.pack(strings)
    for order in ([*range(len(strings))][::-1], [0, 0], []):
        assert packed.take(np.array(order, np.int64)) == [strings[i] for i in order]


def test_saved_and_mapped(tmp_path: Path) -> None:
    for strings in ([], ["", "a", "ñ", "図書館"]):
        PackedStrings.pack(strings).save(tmp_path, "x")
        again = PackedStrings.open(tmp_path, "x")
        assert [again[i] for i in range(len(again))] == strings
        copy = pickle.loads(pickle.dumps(again))
        assert [copy[i] for i in range(len(copy))] == strings
        PackedStrings.pack(strings).hashed().save(tmp_path, "h")
        hashed = PackedStrings.open(tmp_path, "h")
        for same in (hashed, pickle.loads(pickle.dumps(hashed))):
            assert same._places is not None
            assert [same.find(string) for string in (*strings, "x")] == [*range(len(strings)), -1]


def test_a_damaged_hash_table_is_told(tmp_path: Path) -> None:
    """One without a free last place would be searched past its end."""
    PackedStrings.pack(["a", "b"]).hashed().save(tmp_path, "x")
    places = map_array(tmp_path / "x.places.npy")
    for damaged in (places[:4], np.zeros_like(places)):
        write_array(tmp_path / "y.npy", damaged)
        (tmp_path / "y.npy").replace(tmp_path / "x.places.npy")
        with pytest.raises(ValueError, match=r"x\.places\.npy: \d places for 2 strings"):
            PackedStrings.open(tmp_path, "x")


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 3), (1,)])
def test_arrays_of_any_size_come_back_read_only(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    write_array(tmp_path / "x.npy", array)
    again = map_array(tmp_path / "x.npy")
    assert again.dtype == array.dtype
    assert again.tolist() == array.tolist()
    assert again.size == 0 or not again.flags.writeable


@pytest.mark.parametrize(
    "strings", [["a", "ab", "b", "longer than eight"], ["a", "é", "ß", "日本", "\ud800"]]
)
def test_answers_stay_the_same_once_all_strings_are_kept(strings: list[str]) -> None:
    strings = sorted(strings, key=lambda s: s.encode("utf-8", "surrogatepass"))
    packed = PackedStrings.pack(strings)
    asked = [*strings, "", "aa", "zz", "ü"]
    wanted = [strings.index(string) if string in strings else -1 for string in asked]
    assert packed._strings is None
    for _ in range(2):
        assert [packed.find(string) for string in asked] == wanted
        assert packed.take(np.array([2, 0, 2])) == [strings[2], strings[0], strings[2]]
    assert packed._strings is not None
    assert packed._strings.tolist() == strings
    assert packed.take(np.array([], np.int64)) == []


def test_large_lists_are_not_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.packed.WHOLE", 3)
    packed = PackedStrings.pack(["ab", "cd"])
    for _ in range(3):
        assert packed.find("cd") == 1
        assert packed.take(np.array([1, 0])) == ["cd", "ab"]
    assert packed._strings is None


def test_arrays_of_python_objects_are_not_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["a", None], object))
    with pytest.raises(ValueError, match=r"x\.npy holds Python objects"):
        map_array(tmp_path / "x.npy")

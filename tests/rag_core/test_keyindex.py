from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core import keyindex
from rag_core.keyindex import KeyIndex


def places(index: KeyIndex, word: int) -> list[tuple[int, int]]:
    """All places of ``word`` in the order in which they are offered, as if none were the right one."""
    found = np.zeros(1, np.bool_)
    rounds = list(index.candidates(np.array([word], np.uint64), found))
    assert all(rest.tolist() == [0] for rest, _ in rounds)
    return [divmod(int(place), 1 << 32) for _, offered in rounds for place in offered]


def test_newer_records_come_first() -> None:
    index = KeyIndex()
    index.add(0, 0, np.array([5, 7, 5], np.uint64))
    index.add(1, 10, np.array([5], np.uint64))
    assert places(index, 5) == [(1, 10), (0, 2), (0, 0)]
    index.add(0, 3, np.array([5], np.uint64))
    assert places(index, 5) == [(0, 3), (1, 10), (0, 2), (0, 0)]
    assert places(index, 6) == places(index, 9) == []


def test_what_is_found_is_offered_no_more() -> None:
    index = KeyIndex()
    index.add(0, 0, np.array([5, 5, 8, 8], np.uint64))
    found = np.zeros(3, np.bool_)
    offered = []
    for rest, _ in index.candidates(np.array([8, 1, 5], np.uint64), found):
        offered.append(rest.tolist())
        found[0] = True
    assert offered == [[0, 2], [2]]


def test_dropped_segments_and_clear() -> None:
    index = KeyIndex()
    index.add(0, 0, np.array([5], np.uint64))
    index.add(1, 0, np.array([5], np.uint64))
    index.drop([1, 4])
    assert places(index, 5) == [(0, 0)]
    index.add(2, 0, np.array([5], np.uint64))
    index.clear()
    assert places(index, 5) == []


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.lists(st.integers(0, 9), max_size=20)),
        st.tuples(st.just("ask"), st.integers(0, 10), st.just([])),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just([])),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(OPERATIONS, st.sampled_from([0, 8, 4096]))
def test_behaves_like_a_list(operations: list[tuple[str, int, list[int]]], small: int) -> None:
    index, model, counts = KeyIndex(), list[tuple[int, tuple[int, int]]](), [0] * 4
    before, keyindex.SMALL = keyindex.SMALL, small  # parts are merged at different times
    try:
        for what, number, words in operations:
            if what == "add":
                index.add(number, counts[number], np.array(words, np.uint64))
                model += [(word, (number, counts[number] + row)) for row, word in enumerate(words)]
                counts[number] += len(words)
            elif what == "drop":
                index.drop([number])
                model = [entry for entry in model if entry[1][0] != number]
            else:
                assert places(index, number) == [place for word, place in reversed(model) if word == number]
    finally:
        keyindex.SMALL = before

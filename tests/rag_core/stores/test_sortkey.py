"""Keys compare as values do in the filter language."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rag_core.filters import compile_where
from rag_core.stores.sortkey import ORDERED_LETTERS, sort_key

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(10**320), 10**320),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64 + 1, 0, -0.0, 1e-320, 10**400, -(10**400)]),
    st.floats(allow_nan=False),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=4))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


def holds(sign: str, value: Any, wanted: Any) -> bool:
    return compile_where({"f": {sign: wanted}})({"f": value})


@given(value=VALUES, wanted=VALUES)
def test_equal_keys_are_equal_values(value: Any, wanted: Any) -> None:
    assert (sort_key(value) == sort_key(wanted)) == holds("$eq", value, wanted)


@given(value=SCALARS, wanted=SCALARS)
def test_the_order_of_keys_is_that_of_values_of_one_type(value: Any, wanted: Any) -> None:
    mine, theirs = sort_key(value), sort_key(wanted)
    assert mine is not None
    assert theirs is not None
    is_ordered = mine[0] == theirs[0] and mine[0] in ORDERED_LETTERS
    assert (is_ordered and mine.encode() < theirs.encode()) == holds("$lt", value, wanted)


@given(numbers=st.lists(NUMBERS, max_size=6))
def test_numbers_sort_by_their_keys(numbers: list[float]) -> None:
    assert sorted(numbers, key=lambda n: sort_key(n) or "") == sorted(numbers)


def test_what_equals_nothing_has_no_key() -> None:
    for value in (math.nan, (1, 2), object(), [math.nan], {"a": (1,)}):
        assert sort_key(value) is None


def test_true_is_one_inside_a_list_alone() -> None:
    assert sort_key([True]) == sort_key([1.0])
    assert sort_key(True) != sort_key(1)

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.lru import ENTRY_BYTES, VectorLRU
from rag_core.protocols import Vectors

DIM = 4
ENTRY = 4 * DIM + ENTRY_BYTES
EVER = -np.inf


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def vectors(numbers: list[int]) -> Vectors:
    return np.array([[number] * DIM for number in numbers], np.float32).reshape(-1, DIM)


def put(lru: VectorLRU, numbers: list[int], written_at: float = 0.0) -> None:
    lru.put([key(n) for n in numbers], vectors(numbers), np.full(len(numbers), written_at))


def found(lru: VectorLRU, numbers: list[int], oldest: float = EVER) -> list[int]:
    out = np.full((len(numbers), DIM), -1, np.float32)
    missing = lru.read([key(n) for n in numbers], out, oldest)
    left = [number for row, number in enumerate(numbers) if row not in missing]
    expected = vectors([-1 if row in missing else number for row, number in enumerate(numbers)])
    assert (out == expected).all()
    return left


def test_least_recently_used_goes_first() -> None:
    lru = VectorLRU(3 * ENTRY, DIM)
    put(lru, [1, 2, 3])
    assert found(lru, [1]) == [1]
    put(lru, [4])
    assert found(lru, [1, 2, 3, 4]) == [1, 3, 4]
    assert lru.evictions == 1
    assert (len(lru), lru.n_bytes) == (3, 3 * ENTRY)


def test_more_than_fits() -> None:
    lru = VectorLRU(3 * ENTRY + ENTRY - 1, DIM)
    put(lru, [0])
    put(lru, list(range(10)))
    assert found(lru, list(range(10))) == [7, 8, 9]
    assert lru.n_bytes <= 4 * ENTRY - 1


def test_no_room_at_all() -> None:
    lru = VectorLRU(0, DIM)
    put(lru, [1])
    assert found(lru, [1]) == []


def test_old_vectors_are_missing_until_replaced() -> None:
    lru = VectorLRU(3 * ENTRY, DIM)
    put(lru, [1], written_at=10.0)
    assert found(lru, [1], oldest=10.0) == [1]
    assert found(lru, [1], oldest=10.5) == []
    put(lru, [1], written_at=11.0)
    assert found(lru, [1], oldest=10.5) == [1]
    assert len(lru) == 1


def test_what_is_given_and_taken_are_copies() -> None:
    lru = VectorLRU(3 * ENTRY, DIM)
    given_in = vectors([1])
    lru.put([key(1)], given_in, np.zeros(1))
    given_in[:] = 9
    out = np.zeros((1, DIM), np.float32)
    lru.read([key(1)], out, EVER)
    out[:] = 9
    assert found(lru, [1]) == [1]


def test_clear() -> None:
    lru = VectorLRU(3 * ENTRY, DIM)
    put(lru, [1, 2])
    lru.clear()
    assert found(lru, [1, 2]) == []
    assert lru.n_bytes == 0
    put(lru, [1])
    assert found(lru, [1, 2]) == [1]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=5, unique=True)), max_size=25),
)
def test_behaves_like_an_ordered_dictionary(capacity: int, operations: list[tuple[bool, list[int]]]) -> None:
    lru = VectorLRU(capacity * ENTRY, DIM)
    model: OrderedDict[int, None] = OrderedDict()
    for is_put, numbers in operations:
        if is_put:
            put(lru, numbers)
            for number in numbers:
                model.pop(number, None)
                model[number] = None
                while len(model) > capacity:
                    model.popitem(last=False)
        else:
            here = [number for number in numbers if number in model]
            assert found(lru, numbers) == here
            for number in here:
                model.move_to_end(number)
    assert found(lru, list(range(10))) == sorted(model)

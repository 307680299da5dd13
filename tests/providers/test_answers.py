from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from providers._answers import read_rows, value_at, width_of
from rag_core.errors import PermanentError

A, B, C = [1.0, 0.0], [0.0, 2.0], [3.0, 4.0]


def listed(*rows: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"index": index, "embedding": vector} for index, vector in rows]


def test_o12_rows_out_of_order_go_to_their_own_texts() -> None:
    found = read_rows(listed((2, C), (0, A), (1, B)), 3, 2, "jina")
    assert not found.bad
    np.testing.assert_array_equal(found.vectors, [A, B, C])


def test_o12_a_missing_index_is_named_and_shifts_nothing() -> None:
    found = read_rows(listed((0, A), (2, C)), 3, 2, "jina")
    assert list(found.bad) == [1]
    np.testing.assert_array_equal(found.vectors, [A, [0, 0], C])


def test_o12_an_index_given_twice_is_trusted_neither_time() -> None:
    found = read_rows(listed((0, A), (0, B), (2, C)), 3, 2, "jina")
    assert found.bad == {
        0: "the service's answer has several vectors of its index",
        1: "the service's answer has no vector of its index",
    }
    np.testing.assert_array_equal(found.vectors[2], C)


@pytest.mark.parametrize("index", [3, -1, None, "0"])
def test_an_index_of_no_text_makes_the_whole_answer_doubtful(index: Any) -> None:
    assert set(read_rows(listed((0, A), (1, B), (index, C)), 3, 2, "jina").bad) == {0, 1, 2}


@pytest.mark.parametrize("rows", [[A, B], [A, B, C, A], [], None, "text", {"0": A}])
def test_rows_without_index_of_another_number_are_all_doubtful(rows: Any) -> None:
    assert set(read_rows(rows, 3, 2, "cohere").bad) == {0, 1, 2}


@pytest.mark.parametrize(
    "vector, reason",
    [
        ([float("nan"), 1.0], "length nan"),
        ([float("inf"), 1.0], "length inf"),
        ([None, 1.0], "length nan"),
        ([0.0, 0.0], "length 0"),
        ([1e39, 0.0], "length inf"),
        ([1.0], "1 wide, not 2"),
        ("AAA", "something else than a vector"),
        ({"a": 1}, "something else than a vector"),
        ([[1.0, 2.0]], "something else than a vector"),
        (None, "something else than a vector"),
    ],
)
def test_a_vector_without_direction_is_bad_and_its_neighbours_are_kept(vector: Any, reason: str) -> None:
    for rows in ([A, vector, C], listed((0, A), (1, vector), (2, C))):
        found = read_rows(rows, 3, 2, "jina")
        assert list(found.bad) == [1]
        assert reason in found.bad[1]
        np.testing.assert_array_equal(found.vectors, [A, [0, 0], C])


def test_base64_is_little_endian_float32() -> None:
    text = base64.b64encode(np.array(C, "<f4").tobytes()).decode()
    np.testing.assert_array_equal(read_rows(listed((0, text)), 1, 2, "openai").vectors, [C])


def test_another_width_everywhere_is_an_error_of_its_own() -> None:
    with pytest.raises(
        PermanentError, match=r"^jina: the service answers vectors 2 wide; expected 3 \(option dim\)"
    ):
        read_rows(listed((0, A), (1, B)), 2, 3, "jina")


def test_paths_and_widths() -> None:
    assert value_at({"meta": {"billed_units": {"input_tokens": 4}}}, "meta.billed_units.input_tokens") == 4
    assert value_at({"meta": []}, "meta.billed_units") is None
    assert value_at(None, "usage") is None
    assert [width_of(rows) for rows in ([A], listed((0, C)), [], None, [{}], ["?"])] == [2, 2, 0, 0, 0, 0]

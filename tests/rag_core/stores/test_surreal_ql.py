"""Filters, texts and paths as SurrealQL: no database needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError
from rag_core.filters import parse_where
from rag_core.stores.surreal_ql import (
    ESCAPE,
    Parameters,
    arrows,
    condition,
    relation_name,
    shown_text,
    stored_text,
    stored_value,
)

NULL = object()


def translated(where: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    parameters = Parameters(NULL)
    return condition(parse_where(where), parameters), parameters.values


@pytest.mark.parametrize(
    "where, text, values",
    [
        ({"lang": "en"}, "meta[$p0] = $p1", ["lang", "en"]),
        ({"x": None}, "meta[$p0] = $p1", ["x", NULL]),
        ({"x": {"$ne": 1}}, "!(meta[$p0] = $p1)", ["x", 1]),
        ({"x": {"$in": ["a", 2]}}, "meta[$p0] IN $p1", ["x", ["a", 2]]),
        ({"x": {"$nin": []}}, "!(meta[$p0] IN $p1)", ["x", []]),
        ({"x": {"$gt": 2.5}}, "(type::is::number(meta[$p0]) AND meta[$p0] > $p1)", ["x", 2.5]),
        ({"x": {"$lte": "m"}}, "(type::is::string(meta[$p0]) AND meta[$p0] <= $p1)", ["x", "m"]),
        ({"x": {"$lt": True}}, "(type::is::bool(meta[$p0]) AND meta[$p0] < $p1)", ["x", True]),
        ({"x": {"$gte": None}}, "false", []),
        ({"x": {"$gte": [1]}}, "false", []),
        ({"a": 1, "b": 2}, "(meta[$p0] = $p1 AND meta[$p2] = $p3)", ["a", 1, "b", 2]),
        ({"$or": [{"a": 1}, {"b": 2}]}, "(meta[$p0] = $p1 OR meta[$p2] = $p3)", ["a", 1, "b", 2]),
        ({"$not": {"a": 1}}, "!(meta[$p0] = $p1)", ["a", 1]),
        ({"$not": {}}, "!(true)", []),
    ],
)
def test_filters(where: dict[str, Any], text: str, values: list[Any]) -> None:
    found, bound = translated(where)
    assert found == text
    assert list(bound.values()) == values
    assert list(bound) == [f"p{i}" for i in range(len(values))]


@given(name=st.text().filter(lambda name: not name.startswith("$")), value=st.text())
def test_nothing_that_a_caller_says_stands_in_the_query(name: str, value: str) -> None:
    assert translated({name: value})[0] == "meta[$p0] = $p1"
    assert translated({name: {"$in": [value]}})[0] == "meta[$p0] IN $p1"


@given(st.text(st.characters()) | st.text(st.sampled_from(["\0", ESCAPE, "0", ";", "\ud800", "a"])))
def test_every_text_comes_back_and_can_be_sent(text: str) -> None:
    kept = stored_text(text)
    assert "\0" not in kept
    kept.encode("utf-8")
    assert shown_text(kept) == text


@given(st.lists(st.text(st.sampled_from(["\0", ESCAPE, "0", ";", "a"])), min_size=2, max_size=2, unique=True))
def test_two_texts_stay_two(texts: list[str]) -> None:
    assert stored_text(texts[0]) != stored_text(texts[1])


def test_values() -> None:
    value = {"a": None, "b": [True, 1, 1.5, ("x",)], "c\0": {"d": "\0"}}
    assert stored_value(value, NULL) == {
        "a": NULL,
        "b": [True, 1, 1.5, ["x"]],
        f"c{ESCAPE}0;": {"d": f"{ESCAPE}0;"},
    }


def test_whole_numbers_beyond_64_bits_become_floats() -> None:
    """The driver would wrap 2**63 to a negative number without a word."""
    assert stored_value(2**63 - 1, NULL) == 2**63 - 1
    assert isinstance(stored_value(2**63, NULL), float)
    assert stored_value(-(2**63), NULL) == -(2**63)
    assert stored_value(10**400, NULL) == float("inf")
    assert stored_value(-(10**400), NULL) == float("-inf")


@pytest.mark.parametrize("value", [float("nan"), b"x", {1: 2}, {1, 2}, object()])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="no JSON value"):
        stored_value(value, NULL)


@pytest.mark.parametrize(
    "path, text",
    [
        ("cites", "->`cites`->?"),
        ("->cites", "->`cites`->?"),
        ("<-part_of", "<-`part_of`<-?"),
        ("->cites<-part_of", "->`cites`->?<-`part_of`<-?"),
    ],
)
def test_paths(path: str, text: str) -> None:
    assert arrows(path) == text


@pytest.mark.parametrize(
    "path",
    ["", "->", "->a->", "a b", "->a`; DELETE chunk; `", "a;b", "->a-b", "->chunk", "->1a", "->é", "a\n"],
)
def test_paths_that_do_not_parse(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted"):
        arrows(path)


@pytest.mark.parametrize("name", ["in", "ID", "Chunk", "entity", "a" * 64, "", "a`b"])
def test_relations_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: a letter"):
        relation_name(name)

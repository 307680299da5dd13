"""Filters for Chroma, evaluated by its rules: a missing field satisfies ``$ne`` and ``$nin`` alone."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from rag_core.filters import compile_where, parse_where
from rag_core.stores.chroma_where import Inexpressible, is_kept, to_chroma

ORDERS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def kind(value: Any) -> str:
    return "n" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def chroma_matches(where: Mapping[str, Any] | bool, fields: Mapping[str, Any]) -> bool:
    """What Chroma 1.5 does, with its own refusals as assertions."""
    if isinstance(where, bool):
        return where
    ((name, condition),) = where.items()
    if name in ("$and", "$or"):
        assert len(condition) > 1
        return (all if name == "$and" else any)(chroma_matches(part, fields) for part in condition)
    ((sign, wanted),) = condition.items()
    if sign in ORDERS:
        assert kind(wanted) == "n"
        value = fields.get(name)
        return kind(value) == "n" and ORDERS[sign](float(value), float(wanted))
    if sign in ("$eq", "$ne"):
        wanted = [wanted]
    assert wanted
    assert len({kind(one) for one in wanted}) == 1
    is_in = name in fields and any(kind(fields[name]) == kind(one) and fields[name] == one for one in wanted)
    return is_in == (sign in ("$eq", "$in"))


def test_chroma_selects_what_the_filter_selects(shapes: SimpleNamespace) -> None:
    expressed = 0

    @settings(max_examples=300)
    @given(metadata=shapes.metadata, where=shapes.wheres)
    def check(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> None:
        nonlocal expressed
        try:
            translated = to_chroma(parse_where(where))
        except Inexpressible:
            return
        expressed += 1
        kept = {field: value for field, value in metadata.items() if is_kept(field, value)}
        assert chroma_matches(translated, kept) == compile_where(where)(metadata)

    check()
    assert expressed > 30


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"a": {"$in": []}}, False),
        ({"a": {"$nin": []}}, True),
        ({"a": "x"}, {"a": {"$eq": "x"}}),
        ({"a": "x", "b": 1}, {"$and": [{"a": {"$eq": "x"}}, {"b": {"$eq": 1.0}}]}),
        ({"a": {"$in": ["x", 1]}}, {"$or": [{"a": {"$eq": "x"}}, {"a": {"$eq": 1.0}}]}),
        ({"a": {"$nin": [True, "x"]}}, {"$and": [{"a": {"$ne": "x"}}, {"a": {"$ne": True}}]}),
        ({"a": {"$nin": ["x", "y"]}}, {"a": {"$nin": ["x", "y"]}}),
        ({"$not": {"$or": [{"a": "x"}, {"b": "y"}]}}, {"$and": [{"a": {"$ne": "x"}}, {"b": {"$ne": "y"}}]}),
        ({"a": {"$gt": None}}, False),
        ({"a": {"$gte": 2020, "$lt": 2024}}, {"$and": [{"a": {"$gte": 2020}}, {"a": {"$lt": 2024}}]}),
    ],
)  # fmt: skip
def test_what_it_says(where: dict[str, Any], expected: Any) -> None:
    assert to_chroma(parse_where(where)) == expected


@pytest.mark.parametrize(
    "where",
    [{"a": None}, {"a": [1]}, {"a": {"$gt": "x"}}, {"$not": {"a": {"$gt": 1}}}, {"": 1}, {"a": 2**53}],
)
def test_what_chroma_cannot_say(where: dict[str, Any]) -> None:
    with pytest.raises(Inexpressible):
        to_chroma(parse_where(where))

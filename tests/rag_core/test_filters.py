"""The filter language."""

from __future__ import annotations

from typing import Any

import pytest

from rag_core.errors import InvalidArgumentError
from rag_core.filters import compile_where

METADATA = {"lang": "en", "year": 2021, "flag": True, "none": None}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"lang": "en"}, True),
        ({"lang": "es"}, False),
        ({"lang": "en", "year": 2021}, True),
        ({"lang": "en", "year": 2020}, False),
        ({"year": {"$gte": 2020, "$lt": 2022}}, True),
        ({"year": {"$gt": 2021}}, False),
        ({"year": {"$lte": 2021.0}}, True),
        ({"lang": {"$gt": "de"}}, True),
        ({"lang": {"$gt": 5}}, False),
        ({"year": {"$gt": "2020"}}, False),
        ({"missing": {"$gt": 1}}, False),
        ({"missing": 1}, False),
        ({"missing": {"$ne": 1}}, True),
        ({"missing": {"$nin": [1]}}, True),
        ({"missing": {"$in": [1]}}, False),
        ({"none": None}, True),
        ({"lang": {"$eq": "en"}}, True),
        ({"lang": {"$ne": "en"}}, False),
        ({"lang": {"$in": ["es", "en"]}}, True),
        ({"lang": {"$nin": ["es", "en"]}}, False),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"flag": {"$gte": 1}}, False),
        ({"year": {"$gt": False}}, False),
        ({"flag": {"$gt": False}}, True),
        ({"none": {"$lt": 1}}, False),
        ({"$or": [{"lang": "es"}, {"year": 2021}]}, True),
        ({"$and": [{"lang": "en"}, {"year": 1}]}, False),
        ({"$not": {"lang": "es"}}, True),
    ],
)
def test_what_matches(where: dict[str, Any], expected: bool) -> None:
    assert compile_where(where)(METADATA) is expected


@pytest.mark.parametrize(
    "where",
    [
        {"a": {"$like": "x"}},
        {"$nor": []},
        {"$or": []},
        {"$and": {"a": 1}},
        {"a": {"$in": "abc"}},
        {"a": {}},
        ["a"],
        {"$not": 3},
        {3: 4},
    ],
)
def test_what_is_refused(where: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="where"):
        compile_where(where)

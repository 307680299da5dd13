"""Filters as they are typed."""

from __future__ import annotations

from typing import Any

import pytest

from rag_core.app.where import parse_where
from rag_core.errors import InvalidArgumentError
from rag_core.filters import compile_where


@pytest.mark.parametrize(
    "clauses, expected",
    [
        ([], None),
        (["lang=en"], {"lang": "en"}),
        ([" lang = en "], {"lang": "en"}),
        (["url=a=b"], {"url": "a=b"}),
        (["lang="], {"lang": ""}),
        (["year=2020"], {"$or": [{"year": 2020}, {"year": "2020"}]}),
        (['year="2020"'], {"year": "2020"}),
        (["draft!=true"], {"$and": [{"draft": {"$ne": True}}, {"draft": {"$ne": "true"}}]}),
        (["year>=2020", "year<2024"], {"$and": [{"year": {"$gte": 2020}}, {"year": {"$lt": 2024}}]}),
        (["date>2024-01-01"], {"date": {"$gt": "2024-01-01"}}),
        (["x=NaN"], {"x": "NaN"}),
        (["x=null"], {"x": "null"}),
        (['{"lang": {"$in": ["en", "pt"]}}'], {"lang": {"$in": ["en", "pt"]}}),
    ],
)
def test_what_is_typed_becomes_a_filter(clauses: list[str], expected: Any) -> None:
    assert parse_where(clauses) == expected


@pytest.mark.parametrize(
    "metadata, found",
    [({"year": 2020}, True), ({"year": "2020"}, True), ({"year": 2021}, False), ({}, False)],
)
def test_a_number_is_found_in_either_form(metadata: dict[str, Any], found: bool) -> None:
    where = parse_where(["year=2020"])
    assert where is not None
    assert compile_where(where)(metadata) is found


@pytest.mark.parametrize("clause", ["lang", "=en", "", "{lang", '{"year": {"$near": 3}}', '{"$and": []}'])
def test_what_is_no_filter_is_refused(clause: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_where([clause])

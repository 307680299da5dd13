"""SQL for LanceDB, run by another SQL engine over the same keys."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.filters import compile_where, parse_where
from rag_core.stores.lance_where import quoted, to_sql
from rag_core.stores.sortkey import sort_key


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.create_function("json_get_string", 2, lambda text, field: json.loads(text).get(field))
    yield connection
    connection.close()


def test_sql_selects_what_the_filter_selects(sqlite: sqlite3.Connection, shapes: SimpleNamespace) -> None:
    @given(metadata=shapes.metadata, where=shapes.wheres)
    def check(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> None:
        keys = json.dumps({field: sort_key(value) for field, value in metadata.items()})
        sql = f"SELECT ({to_sql(parse_where(where))}) FROM (SELECT ? AS keys)"
        assert sqlite.execute(sql, [keys]).fetchone() == (compile_where(where)(metadata),)

    check()


def test_quotes_cannot_be_left(sqlite: sqlite3.Connection) -> None:
    @given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
    def check(text: str) -> None:
        assert sqlite.execute(f"SELECT {quoted(text)}").fetchone() == (text,)

    check()


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        ({}, "true"),
        ({"a": {"$in": []}}, "false"),
        ({"a": {"$gt": None}}, "false"),
        ({"a": {"$in": ["x", "x"]}}, "coalesce(json_get_string(keys, 'a') = 'sx', false)"),
        (
            {"a": {"$gte": "x"}},
            "coalesce(json_get_string(keys, 'a') >= 'sx' AND json_get_string(keys, 'a') < 't', false)",
        ),
        ({"a": {"$ne": "x"}}, "(NOT coalesce(json_get_string(keys, 'a') = 'sx', false))"),
    ],
)
def test_what_it_says(where: dict[str, Any], sql: str) -> None:
    assert to_sql(parse_where(where)) == sql

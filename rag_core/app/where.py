"""Metadata filters as they are typed: ``lang=en``, ``year>=2020``, or a filter in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rag_core.errors import InvalidArgumentError
from rag_core.filters import compile_where

__all__ = ["parse_where"]

_CLAUSE = re.compile(r"\s*([^=!<>\s][^=!<>]*?)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = {"!=": "$ne", ">=": "$gte", "<=": "$lte", ">": "$gt", "<": "$lt"}
ACCEPTED = """field=value, !=, >, >=, <, <=, or a filter in JSON such as '{"lang": {"$in": ["en", "pt"]}}'"""


def parse_where(clauses: Sequence[str]) -> dict[str, Any] | None:
    """One filter of :mod:`rag_core.filters` that holds where all ``clauses`` do; None for no clause.

    A value is read as JSON where it is JSON, else as text. What reads as a number or as true or false is
    looked for in that form and as the same text, since metadata may hold either; ``year="2020"``, with
    quotes, asks for the text alone.

    Raises:
        InvalidArgumentError: a clause that does not parse.
    """
    filters = [_clause(text) for text in clauses]
    if not filters:
        return None
    where = filters[0] if len(filters) == 1 else {"$and": filters}
    compile_where(where)
    return where


def _clause(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(
                f"--where {text!r} is not JSON: {error}; accepted: {ACCEPTED}"
            ) from error
        return dict(found)
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(f"--where is {text!r}; accepted: {ACCEPTED}")
    field, sign, typed = match.groups()
    value = _value(typed)
    if sign in (">", ">=", "<", "<="):
        return {field: {_OPERATORS[sign]: value}}
    forms = [value] if isinstance(value, str) else [value, typed]
    if sign == "!=":
        unequal = [{field: {"$ne": form}} for form in forms]
        return unequal[0] if len(unequal) == 1 else {"$and": unequal}
    equal = [{field: form} for form in forms]
    return equal[0] if len(equal) == 1 else {"$or": equal}


def _value(typed: str) -> str | float | bool:
    """A number, a truth value or a text; other JSON (null, lists, objects) is text as it stands."""
    try:
        value = json.loads(typed, parse_constant=lambda name: name)
    except ValueError:
        return typed
    return value if isinstance(value, (str, int, float, bool)) else typed

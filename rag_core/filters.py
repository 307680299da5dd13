"""One small filter language over metadata, the same for every store.

``{"lang": "en"}`` (equal), ``{"year": {"$gte": 2020, "$lt": 2024}}``, ``{"kind": {"$in": ["a", "b"]}}``,
``{"$and": [...]}``, ``{"$or": [...]}``, ``{"$not": {...}}``. Several keys must all hold. A missing field, or
a value of another type, satisfies only ``$ne`` and ``$nin``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from rag_core.errors import InvalidArgumentError

__all__ = ["compile_where"]

Test = Callable[[Mapping[str, Any]], bool]
_ORDERED = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_MISSING = object()


def compile_where(where: Mapping[str, Any]) -> Test:
    """A function that tells whether a document's metadata satisfy ``where``.

    Raises:
        InvalidArgumentError: an unknown operator, or a value of a kind the operator does not take.
    """
    if not isinstance(where, Mapping):
        raise InvalidArgumentError(f"where is {where!r}; accepted: a mapping from field to value")
    for name in where:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"where: a field is {name!r}; accepted: a string")
    tests = [_clause(name, value) for name, value in where.items()]
    return lambda metadata: all(test(metadata) for test in tests)


def _clause(name: str, value: Any) -> Test:
    if name in ("$and", "$or"):
        if not isinstance(value, (list, tuple)) or not value:
            raise InvalidArgumentError(f"where: {name} takes a non-empty list of filters, not {value!r}")
        parts = [compile_where(part) for part in value]
        join = all if name == "$and" else any
        return lambda metadata: join(part(metadata) for part in parts)
    if name == "$not":
        inner = compile_where(value)
        return lambda metadata: not inner(metadata)
    if name.startswith("$"):
        raise InvalidArgumentError(
            f"where: unknown operator {name!r}; accepted here: $and, $or, $not, or a field"
        )
    if isinstance(value, Mapping):
        tests = [_comparison(name, sign, wanted) for sign, wanted in value.items()]
        if not tests:
            raise InvalidArgumentError(f"where: field {name!r} has an empty condition")
        return lambda metadata: all(test(metadata.get(name, _MISSING)) for test in tests)
    return lambda metadata: _equal(metadata.get(name, _MISSING), value)


def _comparison(name: str, sign: str, wanted: Any) -> Callable[[Any], bool]:
    if sign == "$eq":
        return lambda value: _equal(value, wanted)
    if sign == "$ne":
        return lambda value: not _equal(value, wanted)
    if sign in ("$in", "$nin"):
        if not isinstance(wanted, (list, tuple, set, frozenset)):
            raise InvalidArgumentError(f"where: {name}: {sign} takes a list, not {wanted!r}")
        values = list(wanted)
        if sign == "$in":
            return lambda value: any(_equal(value, one) for one in values)
        return lambda value: not any(_equal(value, one) for one in values)
    if sign in _ORDERED:
        compare = _ORDERED[sign]
        return lambda value: _comparable(value, wanted) and bool(compare(value, wanted))
    accepted = "$eq, $ne, $in, $nin, " + ", ".join(_ORDERED)
    raise InvalidArgumentError(f"where: field {name!r} has unknown operator {sign!r}; accepted: {accepted}")


def _equal(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _comparable(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return isinstance(value, bool) and isinstance(wanted, bool)
    if isinstance(value, str):
        return isinstance(wanted, str)
    return isinstance(value, (int, float)) and isinstance(wanted, (int, float))

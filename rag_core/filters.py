"""One small filter language over metadata, the same for every store.

``{"lang": "en"}`` (equal), ``{"year": {"$gte": 2020, "$lt": 2024}}``, ``{"kind": {"$in": ["a", "b"]}}``,
``{"$and": [...]}``, ``{"$or": [...]}``, ``{"$not": {...}}``. Several keys must all hold. A missing field, or
a value of another type, satisfies only ``$ne`` and ``$nin``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rag_core.errors import InvalidArgumentError

__all__ = ["Group", "Leaf", "Node", "compile_where", "parse_where", "tree_test"]

Test = Callable[[Mapping[str, Any]], bool]
_ORDERED = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One comparison: ``sign`` is ``$eq``, ``$in`` (``wanted`` is a list), or one of the four orders."""

    field: str
    sign: str
    wanted: Any


@dataclass(frozen=True, slots=True)
class Group:
    """``and`` or ``or`` of any number of parts (none: true, false), or ``not`` of one."""

    join: Literal["and", "or", "not"]
    parts: tuple[Node, ...]


Node = Leaf | Group


def compile_where(where: Mapping[str, Any]) -> Test:
    """A function that tells whether a document's metadata satisfy ``where``.

    Raises:
        InvalidArgumentError: an unknown operator, or a value of a kind the operator does not take.
    """
    return tree_test(parse_where(where))


def parse_where(where: Mapping[str, Any]) -> Node:
    """``where`` as a tree, in which ``$ne`` and ``$nin`` are ``not`` of ``$eq`` and ``$in``.

    Raises:
        InvalidArgumentError: an unknown operator, or a value of a kind the operator does not take.
    """
    if not isinstance(where, Mapping):
        raise InvalidArgumentError(f"where is {where!r}; accepted: a mapping from field to value")
    for name in where:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"where: a field is {name!r}; accepted: a string")
    return _all([_clause(name, value) for name, value in where.items()])


def _all(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Group("and", tuple(parts))


def _clause(name: str, value: Any) -> Node:
    if name in ("$and", "$or"):
        if not isinstance(value, (list, tuple)) or not value:
            raise InvalidArgumentError(f"where: {name} takes a non-empty list of filters, not {value!r}")
        return Group("and" if name == "$and" else "or", tuple(parse_where(part) for part in value))
    if name == "$not":
        return Group("not", (parse_where(value),))
    if name.startswith("$"):
        raise InvalidArgumentError(
            f"where: unknown operator {name!r}; accepted here: $and, $or, $not, or a field"
        )
    if isinstance(value, Mapping):
        if not value:
            raise InvalidArgumentError(f"where: field {name!r} has an empty condition")
        return _all([_comparison(name, sign, wanted) for sign, wanted in value.items()])
    return Leaf(name, "$eq", value)


def _comparison(name: str, sign: str, wanted: Any) -> Node:
    if sign in ("$eq", "$ne"):
        found = Leaf(name, "$eq", wanted)
        return found if sign == "$eq" else Group("not", (found,))
    if sign in ("$in", "$nin"):
        if not isinstance(wanted, (list, tuple, set, frozenset)):
            raise InvalidArgumentError(f"where: {name}: {sign} takes a list, not {wanted!r}")
        found = Leaf(name, "$in", list(wanted))
        return found if sign == "$in" else Group("not", (found,))
    if sign in _ORDERED:
        return Leaf(name, sign, wanted)
    accepted = "$eq, $ne, $in, $nin, " + ", ".join(_ORDERED)
    raise InvalidArgumentError(f"where: field {name!r} has unknown operator {sign!r}; accepted: {accepted}")


def tree_test(node: Node) -> Test:
    """A function that tells whether a document's metadata satisfy the tree ``node``."""
    if isinstance(node, Leaf):
        return _leaf_test(node)
    parts = [tree_test(part) for part in node.parts]
    if node.join == "not":
        (inner,) = parts
        return lambda metadata: not inner(metadata)
    join = all if node.join == "and" else any
    return lambda metadata: join(part(metadata) for part in parts)


def _leaf_test(leaf: Leaf) -> Test:
    name, wanted = leaf.field, leaf.wanted
    if leaf.sign == "$eq":
        return lambda metadata: _equal(metadata.get(name, _MISSING), wanted)
    if leaf.sign == "$in":
        return lambda metadata: any(_equal(metadata.get(name, _MISSING), one) for one in wanted)
    compare = _ORDERED[leaf.sign]

    def ordered(metadata: Mapping[str, Any]) -> bool:
        value = metadata.get(name, _MISSING)
        return _comparable(value, wanted) and bool(compare(value, wanted))

    return ordered


def _equal(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _comparable(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return isinstance(value, bool) and isinstance(wanted, bool)
    if isinstance(value, str):
        return isinstance(wanted, str)
    return isinstance(value, (int, float)) and isinstance(wanted, (int, float))

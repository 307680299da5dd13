"""Filters as Chroma's ``where``, as far as Chroma has them.

Chroma keeps strings, numbers and booleans; it has no ``$not``, orders numbers only, and cannot ask for a
field that is missing or of another type. :func:`to_chroma` turns ``not`` inward as far as that goes and
raises :class:`Inexpressible` where it does not.
"""

from __future__ import annotations

from typing import Any

from rag_core.filters import Group, Leaf, Node

__all__ = ["EXACT_TO", "RESERVED", "Inexpressible", "is_kept", "to_chroma"]

#: The field that holds all metadata of a row as JSON.
RESERVED = "_json"
#: Whole numbers from here on share floats: Chroma compares them as floats, the filter language does not.
EXACT_TO = 2**53
_EQUAL = {False: ("$eq", "$in"), True: ("$ne", "$nin")}


class Inexpressible(Exception):  # noqa: N818  a signal between two functions, never shown
    """Chroma has no such condition."""


def to_chroma(node: Node) -> dict[str, Any] | bool:
    """``where`` for Chroma; True or False where it holds for all rows or for none.

    Raises:
        Inexpressible: a condition that Chroma does not have.
    """
    return _translate(node, negated=False)


def is_kept(field: str, value: Any) -> bool:
    """Whether Chroma stores ``value`` as it is: the rest stands in :data:`RESERVED` alone."""
    return _is_field(field) and _is_plain(value)


def _translate(node: Node, negated: bool) -> dict[str, Any] | bool:
    if isinstance(node, Group):
        if node.join == "not":
            return _translate(node.parts[0], not negated)
        is_all = (node.join == "and") != negated  # not (a and b) is not a or not b
        return _join([_translate(part, negated) for part in node.parts], is_all)
    if not _is_field(node.field):
        raise Inexpressible(f"field {node.field!r}")
    if node.sign in ("$eq", "$in"):
        return _among(node.field, [node.wanted] if node.sign == "$eq" else node.wanted, negated)
    return _ordered(node, negated)


def _join(parts: list[dict[str, Any] | bool], is_all: bool) -> dict[str, Any] | bool:
    absorbing = not is_all
    if absorbing in parts:
        return absorbing
    kept: list[Any] = [part for part in parts if not isinstance(part, bool)]
    if len(kept) < 2:
        return kept[0] if kept else is_all
    return {"$and" if is_all else "$or": kept}


def _among(field: str, wanted: list[Any], negated: bool) -> dict[str, Any] | bool:
    by_type: dict[type, list[Any]] = {str: [], bool: [], float: []}
    for value in wanted:
        if not _is_plain(value) or (_is_number(value) and not abs(value) < EXACT_TO):
            raise Inexpressible(f"a value of {field!r}")
        # a list of Chroma holds one type; whole numbers and floats are the same to it
        by_type[float if _is_number(value) else type(value)].append(value)
    one, many = _EQUAL[negated]
    parts: list[dict[str, Any] | bool] = []
    for kind, values in by_type.items():
        values = [float(value) for value in values] if kind is float else values
        distinct = list(dict.fromkeys(values))
        if distinct:
            parts.append({field: {one: distinct[0]} if len(distinct) == 1 else {many: distinct}})
    return _join(parts, is_all=negated)


def _ordered(leaf: Leaf, negated: bool) -> dict[str, Any] | bool:
    if not _is_number(leaf.wanted):
        # strings and booleans have an order that Chroma does not know; null and lists have none
        if isinstance(leaf.wanted, (str, bool)):
            raise Inexpressible(f"an order of {type(leaf.wanted).__name__}")
        return negated
    if negated or not abs(leaf.wanted) < EXACT_TO:
        raise Inexpressible(f"a field {leaf.field!r} that may be missing, or a number beyond 2^53")
    return {leaf.field: {leaf.sign: leaf.wanted}}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, bool, int, float))


def _is_field(field: str) -> bool:
    return bool(field) and field[0] not in "$#" and field not in (RESERVED, "chroma:document")

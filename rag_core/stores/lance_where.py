"""Filters as SQL over LanceDB's JSON column ``keys``: field -> :func:`~rag_core.stores.sortkey.sort_key`."""

from __future__ import annotations

from rag_core.filters import Leaf, Node
from rag_core.stores.sortkey import ORDERED_LETTERS, sort_key

__all__ = ["quoted", "to_sql"]

_SIGNS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def to_sql(node: Node) -> str:
    """A condition that is true or false, never null, for every row.

    >>> to_sql(Leaf("lang", "$eq", "en"))
    "coalesce(json_get_string(keys, 'lang') = 'sen', false)"
    """
    if isinstance(node, Leaf):
        return _leaf(node)
    parts = [to_sql(part) for part in node.parts]
    if node.join == "not":
        return f"(NOT {parts[0]})"
    if not parts:
        return "true" if node.join == "and" else "false"
    return "(" + f" {node.join.upper()} ".join(parts) + ")"


def quoted(text: str) -> str:
    """An SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _leaf(leaf: Leaf) -> str:
    value = f"json_get_string(keys, {quoted(leaf.field)})"
    if leaf.sign in _SIGNS:
        key = sort_key(leaf.wanted)
        if key is None or key[0] not in ORDERED_LETTERS:
            return "false"
        letter = key[0]
        # the other bound keeps values of other types out
        other = f">= '{letter}'" if leaf.sign in ("$lt", "$lte") else f"< '{chr(ord(letter) + 1)}'"
        test = f"{value} {_SIGNS[leaf.sign]} {quoted(key)} AND {value} {other}"
        return f"coalesce({test}, false)"
    wanted = [leaf.wanted] if leaf.sign == "$eq" else leaf.wanted
    keys = sorted({key for one in wanted if (key := sort_key(one)) is not None})
    if not keys:
        return "false"
    if len(keys) == 1:
        return f"coalesce({value} = {quoted(keys[0])}, false)"
    return f"coalesce({value} IN ({', '.join(map(quoted, keys))}), false)"

"""SurrealQL 2 for our filters, texts and paths: pure functions, which need no database.

Values and field names never enter the query text: each becomes a parameter. The only names that do are
relations, which :func:`arrows` accepts as letters, digits and underscores alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rag_core.errors import InvalidArgumentError
from rag_core.filters import Leaf, Node

__all__ = ["Parameters", "arrows", "condition", "relation_name", "shown_text", "stored_text", "stored_value"]

#: SurrealDB refuses NUL in a text, and UTF-8 has no lone surrogates: each is kept as this character of
#: private use, its code point in hexadecimal and a semicolon. Equality holds; order holds for other texts.
ESCAPE = "\U000f0000"
_STORED_OTHERWISE = re.compile(f"[\0\ud800-\udfff{ESCAPE}]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]+);")
_INT64 = range(-(2**63), 2**63)
_SIGNS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_RELATION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_HOP = re.compile(r"(->|<-)([^<>-]*)")
#: Tables and fields of the store itself.
_TAKEN = frozenset({"chunk", "entity", "store", "id", "in", "out"})


class Parameters:
    """The parameters of one query: ``add`` gives the name to write for a value."""

    def __init__(self, null: Any) -> None:
        """``null`` is what the driver sends as NULL; it sends None as NONE, which means absent."""
        self.values: dict[str, Any] = {}
        self._null = null

    def add(self, value: Any) -> str:
        """``$p0``, ``$p1``, … for ``value`` as :func:`stored_value` gives it."""
        return self.bind(stored_value(value, self._null))

    def bind(self, value: Any) -> str:
        """The same for a value that the driver takes as it is."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"${name}"


def stored_text(text: str) -> str:
    """``text`` as the database holds it; :func:`shown_text` undoes it."""
    if text.isascii() and "\0" not in text:
        return text
    return _STORED_OTHERWISE.sub(lambda found: f"{ESCAPE}{ord(found[0]):x};", text)


def shown_text(text: str) -> str:
    """The text that :func:`stored_text` was given."""
    return text if ESCAPE not in text else _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def stored_value(value: Any, null: Any) -> Any:
    """A JSON value as the driver takes it; None becomes ``null``.

    A whole number beyond 64 bits becomes the nearest float, beyond that an infinity.

    Raises:
        InvalidArgumentError: not a JSON value (infinities are accepted, for open ranges).
    """
    if value is None:
        return null
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return stored_text(value)
    if isinstance(value, int):
        return int(value) if value in _INT64 else _nearest_float(value)
    if isinstance(value, float) and not math.isnan(value):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [stored_value(item, null) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {stored_text(name): stored_value(item, null) for name, item in value.items()}
    raise InvalidArgumentError(
        f"{value!r} is no JSON value; accepted: None, bool, int, float, str, and lists and objects of them"
    )


def _nearest_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def condition(node: Node, parameters: Parameters) -> str:
    """A SurrealQL condition on the field ``meta`` that holds where the filter ``node`` does.

    Like :func:`rag_core.filters.compile_where`, with one difference: within lists and objects, ``true``
    does not equal 1.

    Raises:
        InvalidArgumentError: the filter compares with what is no JSON value.
    """
    if isinstance(node, Leaf):
        return _comparison(node, parameters)
    parts = [condition(part, parameters) for part in node.parts]
    if node.join == "not":
        return f"!({parts[0]})"
    if not parts:
        return "true" if node.join == "and" else "false"
    return "(" + f" {node.join.upper()} ".join(parts) + ")"


def _comparison(leaf: Leaf, parameters: Parameters) -> str:
    wanted = leaf.wanted
    kind = _kind(wanted)
    if leaf.sign in _SIGNS and not kind:
        return "false"
    field = f"meta[{parameters.add(leaf.field)}]"
    value = parameters.add(wanted)
    if leaf.sign == "$eq":
        return f"{field} = {value}"
    if leaf.sign == "$in":
        return f"{field} IN {value}"
    # SurrealQL orders values of different types too, so the type is asked for
    return f"(type::is::{kind}({field}) AND {field} {_SIGNS[leaf.sign]} {value})"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number" if isinstance(value, (int, float)) else ""


def relation_name(name: str) -> str:
    """``name`` in backticks.

    Raises:
        InvalidArgumentError: other characters than letters, digits and underscores, or a name in use.
    """
    if not _RELATION.fullmatch(name) or name.lower() in _TAKEN:
        raise InvalidArgumentError(
            f"relation {name!r}; accepted: a letter, then letters, digits and underscores, 63 at most, "
            f"and none of {', '.join(sorted(_TAKEN))}"
        )
    return f"`{name}`"


def arrows(path: str) -> str:
    """``path`` as SurrealQL: ``->cites<-part_of`` follows `cites`, then `part_of` backwards.

    A bare ``cites`` is ``->cites``.

    Raises:
        InvalidArgumentError: not a chain of arrows and names.
    """
    text = path if path.startswith(("->", "<-")) else f"->{path}"
    hops = _HOP.findall(text)
    if "".join(arrow + name for arrow, name in hops) != text:
        raise InvalidArgumentError(
            f"relation path {path!r}; accepted: names behind arrows, such as '->cites<-part_of'"
        )
    return "".join(f"{arrow}{relation_name(name)}{arrow}?" for arrow, name in hops)

"""JSON values as strings that compare as the filter language does, for databases that have typed columns.

Two values are equal in a filter exactly when their keys are equal, and two strings, two numbers or two
booleans are in the order of their keys (by code point, which is the order of UTF-8 bytes too). The first
letter tells the type, so that a range over one type never meets another: ``[letter, next letter)``.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from typing import Any

__all__ = ["ORDERED_LETTERS", "nearest_float", "sort_key"]

#: Types that have an order: booleans, numbers, strings. ``l``, ``m`` and ``z`` are lists, maps and null.
ORDERED_LETTERS = "bns"


def sort_key(value: Any) -> str | None:
    """The key of a JSON value; None for what equals no JSON value (NaN, a tuple, another object).

    >>> sort_key(2021) == sort_key(2021.0), sort_key(-1) < sort_key(0.5), sort_key("a"), sort_key(True)
    (True, True, 'sa', 'b1')
    """
    if value is None:
        return "z"
    if isinstance(value, bool):
        return "b1" if value else "b0"
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, list):
        return _group("l", [_inner(one) for one in value])
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return _group("m", [part for name in sorted(value) for part in (name, _inner(value[name]))])
    return None


def nearest_float(value: int | float) -> float:
    """``value`` as a float; of a whole number beyond all floats, the largest or the least finite one."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, value > 0 or -1)


def _inner(value: Any) -> str | None:
    # inside a list Python's == decides, for which True is 1
    return _number(int(value)) if isinstance(value, bool) else sort_key(value)


def _group(letter: str, parts: list[str | None]) -> str | None:
    return None if None in parts else letter + json.dumps(parts, ensure_ascii=False)


def _number(value: int | float) -> str | None:
    if value != value:  # NaN; math.isnan refuses large whole numbers
        return None
    near = nearest_float(value) or 0.0  # -0.0 equals 0
    bits = int.from_bytes(struct.pack(">d", near))
    # as integers, positive floats are in order and negative ones in the reverse order
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    if isinstance(value, float):
        return f"n{bits:016x}1"
    # whole numbers that share a float are told apart by what is left: its sign, length and digits
    rest = value - int(near)
    digits = f"{abs(rest):x}"
    if rest < 0:
        digits = digits.translate(_COMPLEMENT)
        return f"n{bits:016x}0{16**4 - 1 - len(digits):04x}{digits}"
    return f"n{bits:016x}1" if rest == 0 else f"n{bits:016x}2{len(digits):04x}{digits}"


_COMPLEMENT = str.maketrans("0123456789abcdef", "fedcba9876543210")

"""What provider files share: options from spec strings, optional packages, the model name they accept."""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import Any

from rag_core import extras
from rag_core.errors import InvalidArgumentError
from rag_core.registry import Spec

__all__ = ["choice", "count", "installed", "only_model", "require", "seconds"]

LONGEST_WAIT_S = 3600.0


def seconds(owner: str, option: str, value: str | float) -> float:
    """``value`` of ``option`` as seconds, 0 to 3600.

    Raises:
        InvalidArgumentError: not a number, or outside that range.
    """
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= LONGEST_WAIT_S:
        raise InvalidArgumentError(
            f"{owner}: option {option} is {value!r}; accepted: seconds from 0 to {LONGEST_WAIT_S:g}"
        )
    return number


def count(owner: str, option: str, value: str | int, low: int = 1, high: int = 1024) -> int:
    """``value`` of ``option`` as a whole number from ``low`` to ``high``.

    Raises:
        InvalidArgumentError: not a whole number, or outside that range.
    """
    try:
        number = int(value)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidArgumentError(
            f"{owner}: option {option} is {value!r}; accepted: a whole number from {low} to {high}"
        )
    return number


def choice(owner: str, option: str, value: str, accepted: tuple[str, ...]) -> str:
    """``value`` of ``option`` if it is one of ``accepted``.

    Raises:
        InvalidArgumentError: it is none of them.
    """
    if value not in accepted:
        names = ", ".join(repr(name) for name in accepted)
        raise InvalidArgumentError(f"{owner}: option {option} is {value!r}; accepted: {names}")
    return value


def only_model(spec: Spec, accepted: str) -> None:
    """Refuse a spec string that asks a provider of one model for another one.

    Raises:
        InvalidArgumentError: ``spec.model`` is not ``accepted``.
    """
    if spec.model != accepted:
        raise InvalidArgumentError(f"{spec.name}: model is {spec.model!r}; accepted: {accepted!r}")


def installed(package: str) -> bool:
    """Whether ``package`` can be imported; imports nothing."""
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def require(spec: Spec, package: str) -> Any:
    """Import ``package``.

    Raises:
        MissingExtraError: it is not installed; the message carries the pip line.
    """
    return extras.require(spec.name, package, spec.extra)

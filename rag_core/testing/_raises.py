"""Stands in for pytest.raises, which the kits may not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["raised"]


def raised(kind: type[BaseException], call: Callable[[], Any], why: str) -> str:
    """Call ``call`` and return the message of the ``kind`` it raises.

    Raises:
        AssertionError: it returned instead; ``why`` says what was expected. Other exceptions pass through.
    """
    try:
        answer = call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{why}: expected {kind.__name__}, got {answer!r}")

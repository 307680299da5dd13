"""Keys never appear in a repr, a log, an exception, a result file or a report."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["is_secret_name", "mask", "redact", "safe_repr"]

_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|authorization|credential)s?$", re.IGNORECASE)
_SHORTEST_SECRET = 6


def is_secret_name(name: str) -> bool:
    """Whether an option, a field or a variable of that name holds something to hide."""
    return _SECRET_NAME.search(name) is not None


def mask(name: str) -> str:
    """What stands in place of a key of service ``name``: ``cohere-***``."""
    return f"{name}-***" if name else "***"


def safe_repr(obj: object, /, **fields: Any) -> str:
    """``Type(field=value, …)`` with the value of every field that is named like a key masked."""
    owner = str(getattr(obj, "name", "") or "")
    shown = (
        f"{name}={mask(owner) if is_secret_name(name) and value else repr(value)}"
        for name, value in fields.items()
    )
    return f"{type(obj).__name__}({', '.join(shown)})"


def redact(text: str, env: Mapping[str, str] | None = None) -> str:
    """``text`` with the value of every environment variable that is named like a key masked."""
    for variable, value in (os.environ if env is None else env).items():
        if is_secret_name(variable) and len(value) >= _SHORTEST_SECRET and value in text:
            text = text.replace(value, mask(variable.lower().removesuffix("_api_key")))
    return text

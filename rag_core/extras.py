"""Optional packages: imported where they are needed, and named with their extra where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from rag_core.errors import MissingExtraError

__all__ = ["require"]


def require(what: str, module: str, extra: str) -> Any:
    """Import the optional ``module``, such as ``pyarrow.parquet``.

    Args:
        what: what needs it, for the message.
        module: its full name; the package is the part before the first dot.
        extra: of this project, which brings the package.

    Raises:
        MissingExtraError: the package is not installed; the message carries the pip line.
    """
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)  # first: a part that is loaded says nothing of a package that is not
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise  # the package is there and something it needs is not: say that, not "missing extra"
        raise MissingExtraError(what, package, extra) from error

"""Every error that `rag_core` and its providers raise on purpose.

::

    RagCoreError
    ├── InvalidArgumentError (ValueError)      a value outside what is accepted
    │   ├── RankingError                       a score that is not a number, a malformed ranking
    │   └── SpecStringError                    a spec string that does not parse
    ├── UnknownNameError (ValueError)          no provider, store or engine of that name
    ├── ProviderUnavailableError               known, but it cannot run here; carries the reason
    │   └── MissingExtraError (ImportError)    a package is not installed; carries the pip line
    ├── ProviderError                          a provider was called and failed or answered nonsense
    └── StoreError                             a store folder is damaged or refuses the operation
        └── IdentityMismatchError              built with another embedder than the one at hand

Messages say what failed, the value seen, what is accepted and, where there is one, the next command.
"""

from __future__ import annotations

__all__ = [
    "IdentityMismatchError",
    "InvalidArgumentError",
    "MissingExtraError",
    "ProviderError",
    "ProviderUnavailableError",
    "RagCoreError",
    "RankingError",
    "SpecStringError",
    "StoreError",
    "UnknownNameError",
]


class RagCoreError(Exception):
    """Base of all errors of this library."""


class InvalidArgumentError(RagCoreError, ValueError):
    """An argument has a value that is not accepted."""


class RankingError(InvalidArgumentError):
    """A ranking cannot be built from the given ids and scores."""


class SpecStringError(InvalidArgumentError):
    """A spec string does not follow ``name[:model][@target][?option=value&…]``."""


class UnknownNameError(RagCoreError, ValueError):
    """No entry of that name is registered; the message names the nearest ones."""


class ProviderUnavailableError(RagCoreError, RuntimeError):
    """A registered provider cannot run here; ``reason`` says why, ``hint`` what to type."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        self.provider, self.reason, self.hint = name, reason, hint
        super().__init__(f"{name} is not available: {reason}" + (f"; {hint}" if hint else ""))


class MissingExtraError(ProviderUnavailableError, ImportError):
    """An optional package is not installed."""

    def __init__(self, name: str, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(name, f"package {package!r} is not installed", pip_line(extra))


class ProviderError(RagCoreError, RuntimeError):
    """A provider call failed, or its answer has the wrong shape or is not finite."""


class StoreError(RagCoreError, RuntimeError):
    """A store cannot be opened, read or written."""


class IdentityMismatchError(StoreError):
    """A store was built with another embedder than the one it is opened with."""


def pip_line(extra: str) -> str:
    """The command that installs ``extra``."""
    return f"run: pip install 'rag-core-bench[{extra}]'"

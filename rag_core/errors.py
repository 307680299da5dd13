"""Every error that `rag_core` and its providers raise on purpose.

::

    RagCoreError
    ├── InvalidArgumentError (ValueError)      a value outside what is accepted
    │   ├── RankingError                       a score that is not a number, a malformed ranking
    │   └── SpecStringError                    a spec string that does not parse
    ├── UnknownNameError (ValueError)          no provider, store or engine of that name
    ├── ProviderUnavailableError               known, but it cannot run here; carries the reason
    │   └── MissingExtraError (ImportError)    a package is not installed; carries the pip line
    ├── BudgetExceededError                    the next call would cost more than is left to spend
    ├── ProviderError                          a provider was called and failed or answered nonsense
    │   ├── NoFallbackError                    no provider of a chain can answer, or none may
    │   ├── TransientError                     worth a later try or another provider: rate limit, outage
    │   ├── PermanentError                     the same request fails again: key, model, malformed request
    │   └── PartialEmbedError                  some texts have vectors, others have a reason
    └── StoreError                             a store folder is damaged or refuses the operation
        └── IdentityMismatchError              built with another embedder than the one at hand

Messages say what failed, the value seen, what is accepted and, where there is one, the next command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BudgetExceededError",
    "IdentityMismatchError",
    "InvalidArgumentError",
    "MissingExtraError",
    "NoFallbackError",
    "PartialEmbedError",
    "PermanentError",
    "ProviderError",
    "ProviderUnavailableError",
    "RagCoreError",
    "RankingError",
    "SpecStringError",
    "StoreError",
    "TransientError",
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


class TransientError(ProviderError):
    """The service cannot answer now: rate limit, outage, no network. Later, or elsewhere, it may work.

    Attributes:
        status: HTTP status of the last answer; 0 where there was none.
        retry_after_s: the wait the service asked for; None where it named none.
    """

    def __init__(self, message: str, status: int = 0, retry_after_s: float | None = None) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        super().__init__(message)


class PermanentError(ProviderError):
    """The same request will fail again: a wrong key, an unknown model, a malformed or refused request.

    Attributes:
        status: HTTP status of the answer; 0 where the answer had status 200 and made no sense.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class NoFallbackError(ProviderError):
    """No provider of a chain answered: each failed, is left alone for now, or makes other vectors.

    Attributes:
        reasons: name of the provider -> why not, in the order of the chain.
        retry_in_s: seconds until the first of them is tried again; None where waiting changes nothing.
    """

    def __init__(self, what: str, reasons: Mapping[str, str], retry_in_s: float | None = None) -> None:
        self.what, self.reasons, self.retry_in_s = what, dict(reasons), retry_in_s
        listed = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        later = "" if retry_in_s is None else f"; tried again in {retry_in_s:.3g} s"
        super().__init__(f"{what}: {listed or 'the chain is empty'}{later}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.reasons, self.retry_in_s)


class PartialEmbedError(ProviderError):
    """Some texts of a call have vectors, others were refused or not reached; nothing paid for is lost.

    ``__cause__`` is the :class:`TransientError` or :class:`PermanentError` that ended the call early, if
    one did.

    Attributes:
        provider: name of the provider.
        vectors: float32 ``(n, dim)`` in the order of the call: rows of length 1, zeros for blank and for
            failed texts.
        failed: position in the call -> reason.
        is_transient: whether a later try of the failed texts may succeed.
    """

    def __init__(
        self,
        provider: str,
        vectors: NDArray[np.float32],
        failed: Mapping[int, str],
        is_transient: bool = False,
    ) -> None:
        self.provider, self.vectors, self.is_transient = provider, vectors, is_transient
        self.failed: dict[int, str] = dict(sorted(failed.items()))
        shown = "; ".join(f"text {position}: {reason}" for position, reason in list(self.failed.items())[:3])
        more = f"; and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        super().__init__(
            f"{provider}: {len(self.failed)} of {len(vectors)} texts have no vector: {shown}{more}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.provider, self.vectors, self.failed, self.is_transient)


class BudgetExceededError(RagCoreError, RuntimeError):
    """A call was not made because it might have cost more than is left of the budget.

    Attributes:
        spent_usd: spent so far, with what calls under way may still cost.
        next_usd: the most the refused call may have cost.
        max_usd: the limit.
    """

    def __init__(self, name: str, spent_usd: float, next_usd: float, max_usd: float) -> None:
        self.provider = name
        self.spent_usd, self.next_usd, self.max_usd = spent_usd, next_usd, max_usd
        super().__init__(
            f"{name}: not sent, because the budget is {max_usd:.6g} USD, {spent_usd:.6g} USD of it are spent "
            f"and the call may cost {next_usd:.6g} USD more; raise max_usd to go on"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.provider, self.spent_usd, self.next_usd, self.max_usd)


class StoreError(RagCoreError, RuntimeError):
    """A store cannot be opened, read or written."""


class IdentityMismatchError(StoreError):
    """A store was built with another embedder than the one it is opened with."""


def pip_line(extra: str) -> str:
    """The command that installs ``extra``."""
    return f"run: pip install 'rag-core-bench[{extra}]'"

"""The providers of a chain: made when needed, asked while they work, left alone after they failed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

from rag_core.errors import (
    InvalidArgumentError,
    NoFallbackError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    ProviderUnavailableError,
    TransientError,
)
from rag_core.factory import SpecString
from rag_core.protocols import Target
from rag_core.registry import Registry, load_plugins
from rag_core.secrets import is_secret_name, redact

__all__ = [
    "FAILURES",
    "OF_THE_REQUEST",
    "Breaker",
    "Member",
    "Passed",
    "Pauses",
    "close_all",
    "is_providers_fault",
    "members",
    "names_of",
    "nobody",
]

T = TypeVar("T")
S = TypeVar("S")
#: Refusals that are about the request.
OF_THE_REQUEST = frozenset({400, 413, 422})
#: What a call to a provider raises where the provider, the network or the input is to blame.
FAILURES = (ProviderError, ProviderUnavailableError, OSError)


@dataclass(frozen=True, slots=True)
class Pauses:
    """For how long a provider that failed is left alone: ``first_s``, doubled each time, up to ``last_s``.

    Attributes:
        clock: seconds that never go back.
    """

    first_s: float = 5.0
    last_s: float = 300.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.last_s < float("inf"):
            raise InvalidArgumentError(
                f"pauses from {self.first_s!r} to {self.last_s!r} s; accepted: 0 <= first_s <= last_s, finite"
            )


class Breaker:
    """Keeps calls away from what has just failed; safe for many threads.

    When a pause is over, one caller is let through to try. The others are kept away for as long again, or
    until that one has said how it went.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses, self._lock = pauses, threading.Lock()
        self._failures, self._until = 0, float("-inf")

    @property
    def wait_s(self) -> float:
        """Seconds until the next try is let through; 0 where nothing stands in its way."""
        with self._lock:
            return max(0.0, self._until - self._pauses.clock())

    def let_through(self) -> bool:
        """Whether the caller may try; if so, it must say how it went."""
        with self._lock:
            now = self._pauses.clock()
            if now < self._until:
                return False
            if self._failures:
                self._until = now + self._pause_s()
            return True

    def worked(self) -> None:
        """The provider answered, be it to refuse the input."""
        with self._lock:
            self._failures, self._until = 0, float("-inf")

    def let_go(self) -> None:
        """The caller that was let through did not get to ask."""
        with self._lock:
            self._until = self._pauses.clock() if self._failures else self._until

    def failed(self, retry_after_s: float | None = None) -> None:
        """The provider failed, and may have said for how long to leave it alone (the last pause at most)."""
        with self._lock:
            self._failures += 1
            asked_s = min(retry_after_s or 0.0, self._pauses.last_s)
            self._until = self._pauses.clock() + max(self._pause_s(), asked_s)

    def _pause_s(self) -> float:
        doubled = self._pauses.first_s * 2.0 ** min(self._failures - 1, 60)
        return min(doubled, self._pauses.last_s)


class Member(Generic[T]):
    """One provider of a chain: made at the first need, and asked only while its breaker lets it be.

    Attributes:
        name: registry name; known without making the provider.
        key: the name, with its place where the chain has another of that name.
        label: its spec string without secrets, or its fingerprint; likewise known.
    """

    def __init__(self, name: str, label: str, make: Callable[[], T], pauses: Pauses) -> None:
        self.name, self.key, self.label, self.breaker = name, name, label, Breaker(pauses)
        self._make, self._lock = make, threading.Lock()
        self._made: T | None = None

    @property
    def made(self) -> T | None:
        """The provider, if it has been made."""
        return self._made

    def get(self) -> T:
        """The provider.

        Raises:
            ProviderUnavailableError: it cannot run here, or does not load; another try starts anew.
        """
        if self._made is None:
            with self._lock:
                if self._made is None:
                    try:
                        self._made = self._make()
                    except ProviderUnavailableError:
                        raise
                    except (ProviderError, ImportError, OSError) as error:
                        said = redact(f"{type(error).__name__}: {error}")
                        raise ProviderUnavailableError(self.name, f"it does not load ({said})") from error
        return self._made

    def pause(self, error: BaseException) -> None:
        """Leave the provider alone for a while, as long as ``error`` or its cause asks for if it does."""
        asked = [getattr(e, "retry_after_s", None) for e in (error, error.__cause__)]
        self.breaker.failed(next((seconds for seconds in asked if seconds is not None), None))


def members(
    chain: Sequence[T | str | Member[T]], registry: Registry, create: Callable[[str], T], pauses: Pauses
) -> list[Member[T]]:
    """The members of a chain of providers, spec strings and members; nothing is loaded yet.

    Raises:
        InvalidArgumentError: the chain is empty, or an option of a spec string is named like a secret.
        SpecStringError, UnknownNameError: a spec string does not parse or names nothing. One that cannot
            run here is no error: the chain is there for that.
    """
    if isinstance(chain, str) or not chain:
        raise InvalidArgumentError(f"the chain is {chain!r}; accepted: a list of one or more providers")
    found: list[Member[T]] = []
    for entry in chain:
        if isinstance(entry, Member):
            found.append(entry)
        elif isinstance(entry, str):
            parsed = SpecString.parse(entry)
            if secret := next(filter(is_secret_name, parsed.options), ""):
                raise InvalidArgumentError(
                    f"{parsed.name}: the spec string has an option {secret!r}; keys come from the environment"
                )
            load_plugins()
            registry.find(parsed.name, parsed.target or None)
            found.append(Member(parsed.name, _public(parsed), _later(create, entry), pauses))
        else:
            name = str(getattr(entry, "name", type(entry).__name__))
            member = Member(name, str(getattr(entry, "fingerprint", name)), _later(_same, entry), pauses)
            member.get()
            found.append(member)
    twice = {name for name, count in Counter(member.name for member in found).items() if count > 1}
    for place, member in enumerate(found, 1):
        member.key = f"{member.name} (place {place})" if member.name in twice else member.name
    return found


def is_providers_fault(error: BaseException) -> bool | None:
    """Whether another provider might do better: True; False where the input is to blame; None: unclear."""
    if isinstance(error, PartialEmbedError):
        of_cause = error.__cause__ is not None and is_providers_fault(error.__cause__)
        return error.is_transient or of_cause is True
    if isinstance(error, PermanentError):
        return None if error.status in OF_THE_REQUEST else True
    if isinstance(error, (TransientError, NoFallbackError, ProviderUnavailableError, OSError)):
        return True
    return None if isinstance(error, ProviderError) else False


@dataclass(slots=True)
class Passed:
    """Members of a chain that did not answer.

    Attributes:
        reasons: key -> why not.
        failed: whether one of them might have.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    failed: bool = False

    def add(self, key: str, reason: str, failed: bool = True) -> None:
        """Note why a member did not answer."""
        self.reasons[key] = redact(reason)
        self.failed = self.failed or failed


def names_of(member: Member[T], registry: Registry) -> tuple[str, str, Target]:
    """Name, model and target of a member that is not loaded, as its spec string and the table tell."""
    parsed = SpecString.parse(member.label)
    spec = registry.find(parsed.name, parsed.target or None)[0]
    return spec.name, parsed.model or spec.model, spec.target


def nobody(chain: Sequence[Member[T]], what: str, passed: Passed) -> NoFallbackError:
    """The error that says why nobody answered, and when somebody is asked again."""
    waits = [member.breaker.wait_s for member in chain if member.breaker.wait_s]
    return NoFallbackError(what, passed.reasons, min(waits) if waits else None)


def close_all(chain: Sequence[Member[T]]) -> None:
    """Close the providers that have been made and have something to close."""
    for member in chain:
        getattr(member.made, "close", lambda: None)()


def _public(parsed: SpecString) -> str:
    """The spec string without the name and password that an address may hold."""
    options = {}
    for name, value in parsed.options.items():
        parts = urlsplit(value)
        if "@" in parts.netloc:
            value = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        options[name] = value
    return str(replace(parsed, options=options))


def _later(make: Callable[[S], T], value: S) -> Callable[[], T]:
    return lambda: make(value)


def _same(value: T) -> T:
    return value

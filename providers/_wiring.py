"""From a spec string's options to a transport: the address, the key, the limits, the client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from providers._common import choice, count, require, seconds
from providers._http import Transport
from providers._many import Limits
from providers._pacing import BURST
from providers._send import http_send, is_loopback, scrubber
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.recording import Recorder, Replayer, record_to, replay_from
from rag_core.registry import Spec
from rag_core.wire import Send

__all__ = ["Options", "Wiring", "base_url_of", "key_of"]

ENGINES = ("http", "sdk")


class Options:
    """The options of a spec string, each taken once; what is left over is unknown."""

    def __init__(self, owner: str, options: Mapping[str, str]) -> None:
        self._owner, self._left = owner, dict(options)
        self._known: list[str] = []

    def take(self, option: str, default: str) -> str:
        """The text of ``option``."""
        self._known.append(option)
        return self._left.pop(option, default)

    def whole(self, option: str, default: int, low: int = 1, high: int = 1024) -> int:
        """A whole number from ``low`` to ``high``."""
        return count(self._owner, option, self.take(option, str(default)), low, high)

    def seconds(self, option: str, default: float) -> float:
        """A span of time."""
        return seconds(self._owner, option, self.take(option, str(default)))

    def choose(self, option: str, accepted: tuple[str, ...]) -> str:
        """One of ``accepted``, the first by default."""
        return choice(self._owner, option, self.take(option, accepted[0]), accepted)

    def refuse_the_rest(self) -> None:
        """Raise InvalidArgumentError where an option was not taken."""
        if self._left:
            raise InvalidArgumentError(
                f"{self._owner}: unknown option {next(iter(self._left))!r}; "
                f"accepted: {', '.join(sorted(self._known))}"
            )


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a service is reached, as a spec string's options say; :meth:`open` connects.

    Attributes:
        revision: ``service``, or the address of another server: it may run other weights under the same name.
        limits: of one request.
    """

    spec: Spec
    base_url: str
    key: str = field(repr=False)
    key_name: str
    revision: str
    limits: Limits
    sdk: tuple[str, Callable[[Any, str, str, float], Send]] | None
    timeout_s: float
    max_wait_s: float
    concurrency: int
    max_tries: int
    rpm: int
    tpm: int

    @classmethod
    def read(
        cls,
        spec: Spec,
        opts: Options,
        url: str,
        key_name: str,
        limits: Limits,
        sdk: tuple[str, Callable[[Any, str, str, float], Send]] | None,
        batch: int,
    ) -> Wiring:
        """Take the options ``base_url``, ``engine``, ``timeout_s``, ``max_wait_s``, ``concurrency``,
        ``max_tries``, ``rpm``, ``tpm`` and ``batch``, whose default is given.

        Raises:
            InvalidArgumentError: a value outside what is accepted.
            ProviderUnavailableError: the key is not set.
        """
        base_url = base_url_of(spec.name, opts.take("base_url", url))
        key = key_of(spec.name, key_name, base_url)
        engine = opts.choose("engine", ENGINES[: 1 + (sdk is not None)])
        timeout_s, max_wait_s = opts.seconds("timeout_s", 60), opts.seconds("max_wait_s", 60)
        concurrency, max_tries = opts.whole("concurrency", 4, high=64), opts.whole("max_tries", 6, high=100)
        rpm, tpm = (opts.whole(name, 0, low=0, high=10**9) for name in ("rpm", "tpm"))
        limits = replace(limits, texts=opts.whole("batch", batch, high=limits.texts))
        if tpm:  # larger requests than these could not be spread over the minute
            limits = replace(limits, tokens=min(limits.tokens or tpm, max(1, int(tpm * BURST))))
        revision = "service" if base_url == url else base_url
        sdk = sdk if engine == "sdk" else None
        return cls(
            spec, base_url, key, key_name, revision, limits, sdk,
            timeout_s, max_wait_s, concurrency, max_tries, rpm, tpm,
        )  # fmt: skip

    def open(self) -> tuple[Transport, dict[str, Any]]:
        """The transport, and what a result says of it; see :mod:`rag_core.recording` for what it may do.

        Raises:
            MissingExtraError: httpx, or the official client asked for, is not installed.
        """
        send, library = self._sender()
        transport = Transport(
            self.spec.name,
            self.base_url,
            send,
            concurrency=self.concurrency,
            max_tries=self.max_tries,
            max_wait_s=self.max_wait_s,
            rpm=self.rpm,
            tpm=self.tpm,
            scrub=scrubber(self.spec.name, self.key),
            key_name=self.key_name,
        )
        return transport, {
            "library": library or "recordings",
            "version": version(library) if library else "",
            "url": self.base_url,
            "concurrency": self.concurrency,
            "execution_provider": "service",
        }

    def _sender(self) -> tuple[Send, str]:
        """What sends, and the distribution it comes from; none where answers come from recordings."""
        folder = replay_from()
        if folder:
            return Replayer(folder), ""
        if self.sdk:
            library, make = self.sdk
            official = require(replace(self.spec, extra=self.spec.name), library)
            send = make(official, self.base_url, self.key, self.timeout_s)
        else:
            library = "httpx"
            send = http_send(self.spec, self.base_url, self.key, self.timeout_s, self.concurrency)
        folder = record_to()
        return (Recorder(send, folder) if folder else send), library


def base_url_of(owner: str, text: str) -> str:
    """``text`` without a final slash.

    Raises:
        InvalidArgumentError: it is no http address, or holds a user name or a query.
    """
    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_plain = False
    if not is_plain:
        raise InvalidArgumentError(
            f"{owner}: base_url is {url!r}; accepted: http://HOST[:PORT][/PATH], or https"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        # not shown: this is where people put keys
        raise InvalidArgumentError(
            f"{owner}: base_url of {parts.hostname} holds a user name, a query or a fragment; "
            "accepted: http://HOST[:PORT][/PATH], or https, and the key in its environment variable"
        )
    return url


def key_of(owner: str, variable: str, base_url: str) -> str:
    """The key in ``variable``; empty for a service without one, on this machine, and where recordings answer.

    Raises:
        ProviderUnavailableError: it is not set.
        InvalidArgumentError: it holds a character that no HTTP header can carry.
    """
    key = "" if replay_from() else os.environ.get(variable, "").strip() if variable else ""
    if variable and not key and not is_loopback(base_url) and not replay_from():
        raise ProviderUnavailableError(owner, f"{variable} is not set", f"export {variable}=…")
    strange = next((i for i, char in enumerate(key) if not 32 < ord(char) < 127), None)
    if strange is not None:
        raise InvalidArgumentError(
            f"{owner}: character {strange + 1} of {variable} cannot stand in an HTTP header; accepted: ASCII "
            "letters, digits and signs, without blanks"
        )
    return key

"""Sending over httpx: the one place that knows a key, and what keeps it from being repeated."""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from providers._common import require
from rag_core.registry import Spec
from rag_core.secrets import mask, redact
from rag_core.wire import Reply, WireError

__all__ = ["HttpSend", "http_send", "is_loopback", "scrubber"]

CONNECT_S = 5.0
#: A piece of a key as long as this is masked wherever a service's message repeats it.
SHORTEST_PIECE = 6


class HttpSend:
    """A :data:`~rag_core.wire.Send` over one httpx client, which alone knows the key."""

    def __init__(self, httpx: Any, client: Any, timeout_s: float) -> None:
        self._httpx, self._client, self._timeout_s = httpx, client, timeout_s
        self.close = weakref.finalize(self, client.close)

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """Send, and read the whole answer within the time limit, however slowly it drips.

        Raises:
            WireError: no whole answer.
        """
        httpx, deadline, chunks = self._httpx, time.monotonic() + self._timeout_s, []
        try:
            with self._client.stream(method, url, headers=headers, content=body) as answer:
                for chunk in answer.iter_bytes():
                    chunks.append(chunk)
                    if time.monotonic() > deadline:
                        break
                else:
                    found = {name.lower(): value for name, value in answer.headers.items()}
                    return answer.status_code, found, b"".join(chunks)
            said = f"gave no whole answer within {self._timeout_s:g} s"
        except httpx.TimeoutException:
            said = f"gave no answer within {self._timeout_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError) as error:  # the last: closed
            said = f"cannot be reached or broke off ({type(error).__name__}: {error})"
        raise WireError(said)  # outside: httpx's exceptions hold the request, and that holds the key


def http_send(spec: Spec, base_url: str, key: str, timeout_s: float, concurrency: int) -> HttpSend:
    """A sender to ``base_url`` with ``key`` as its bearer token, if there is one.

    Raises:
        MissingExtraError: httpx is not installed.
    """
    httpx = require(spec, "httpx")
    client = httpx.Client(
        headers={"authorization": f"Bearer {key}"} if key else None,
        timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        trust_env=not is_loopback(base_url),  # no proxy on the way to this machine
        verify=urlsplit(base_url).scheme == "https",  # loading the authorities takes 20 ms
    )
    return HttpSend(httpx, client, timeout_s)


def is_loopback(url: str) -> bool:
    """Whether ``url`` names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or re.fullmatch(r"127(?:\.\d+){3}", host) is not None


def scrubber(owner: str, key: str) -> Callable[[str], str]:
    """A function that masks ``key``, and every piece of 6 or more of its characters, in a text."""
    pieces = {key[i : i + SHORTEST_PIECE] for i in range(len(key) - SHORTEST_PIECE + 1)}

    def scrub(text: str) -> str:
        hidden = [False] * len(text)
        for i in range(len(text) - SHORTEST_PIECE + 1):
            if text[i : i + SHORTEST_PIECE] in pieces:
                hidden[i : i + SHORTEST_PIECE] = [True] * SHORTEST_PIECE
        shown = [
            char if not hid else ("" if i and hidden[i - 1] else mask(owner))
            for i, (char, hid) in enumerate(zip(text, hidden))
        ]
        return redact("".join(shown))

    return scrub

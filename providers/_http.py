"""The one transport of every HTTP provider: connections, limits, retries, waits, counts. No key leaves it."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from providers._pacing import Bucket, Timers, backoff_s, retry_after_s
from rag_core.errors import PermanentError, ProviderError, TransientError
from rag_core.pace import shared_limit, shared_pace
from rag_core.secrets import redact
from rag_core.wire import Send, WireError, through

__all__ = ["BatchRefusedError", "Transport", "TransportStats"]

SAMPLES = 10_000
RETRIED = frozenset({408, 409, 429})
SHOWN_CHARS = 300
#: What services say of a request that is too large: the same request would be refused again.
_TOO_LARGE = re.compile(
    r"too (?:large|long|many)|max(?:imum)?\b|context[ _]length|exceeds?\b|token limit|batch size|"
    r"(?:larger|longer) than|at most",
    re.IGNORECASE,
)
#: What a server says whose model computed no number for one of the texts (Ollama's JSON encoder).
_NOT_A_NUMBER = re.compile(r"unsupported value: (?:NaN|[+-]?Inf)", re.IGNORECASE)
#: HTTP 429 that no waiting cures.
_NO_CREDIT = re.compile(r"insufficient_quota|billing|out of credit|no credit", re.IGNORECASE)


class BatchRefusedError(PermanentError):
    """The request as a whole is too large, or one of its texts cannot be computed: a part of it may work."""


@dataclass(slots=True)
class TransportStats:
    """Counts since the transport was made.

    Attributes:
        requests: requests sent, tries that failed included.
        texts: texts of the requests that were answered.
        tokens: tokens that the service says it counted.
        answered: requests that were answered.
        retries: requests that repeat a failed one.
        n_429: answers with HTTP 429.
        waited_s: seconds spent waiting for limits, pauses and back-off, over all threads.
        latency_s: seconds of each answered request, waits excluded; the last 10,000.
    """

    requests: int = 0
    texts: int = 0
    tokens: int = 0
    answered: int = 0
    retries: int = 0
    n_429: int = 0
    waited_s: float = 0.0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class Transport:
    """JSON over ``send``, for one provider; safe for many threads.

    Attributes:
        send: the innermost sender; anything of its kind may take its place.
        timers: clock, sleep, chance.
        stats: counts.
    """

    def __init__(
        self,
        owner: str,
        base_url: str,
        send: Send,
        *,
        concurrency: int = 4,
        max_tries: int = 6,
        max_wait_s: float = 60.0,
        rpm: int = 0,
        tpm: int = 0,
        scrub: Callable[[str], str] = redact,
        key_name: str = "",
        timers: Timers | None = None,
    ) -> None:
        """``rpm`` and ``tpm``: requests and tokens a minute, 0 for no limit. ``scrub`` masks the key in what
        a service says; ``key_name`` is the variable to check when the service refuses it.
        """
        self.owner, self.base_url, self.send = owner, base_url.rstrip("/"), send
        self.concurrency, self.max_tries, self.max_wait_s = concurrency, max_tries, max_wait_s
        self.timers, self.stats = timers or Timers(), TransportStats()
        self._pace_key = f"{owner} {self.base_url}"
        self._scrub, self._key_name = scrub, key_name
        self._slots = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._resume_at = -1.0e18
        self.set_pace(rpm, tpm)

    def set_pace(self, rpm: int = 0, tpm: int = 0) -> None:
        """Keep to ``rpm`` requests and ``tpm`` tokens a minute from now on; 0 for no limit.

        Inside :func:`rag_core.pace.paced_by` the limits are those of all processes that share it.
        """
        clock, key = self.timers.clock, self._pace_key
        self._requests = shared_limit(f"{key} requests", rpm, lambda: Bucket(rpm, clock)) if rpm else None
        self._tokens = shared_limit(f"{key} tokens", tpm, lambda: Bucket(tpm, clock)) if tpm else None

    def post(
        self, path: str, payload: Mapping[str, Any], *, texts: int = 0, tokens: int = 0, max_500: int = 0
    ) -> dict[str, Any]:
        """POST ``payload`` to ``path`` and return the JSON object of the answer.

        Args:
            path: from the base URL on.
            payload: becomes the JSON body.
            texts: for the counts.
            tokens: as estimated, for the limit a minute.
            max_500: tries at most while the answer is HTTP 500; 0 for as many as of any other failure.

        Raises:
            TransientError: out of tries, or the service asks for a longer wait than ``max_wait_s``.
            BatchRefusedError: the request is too large, or a text of it cannot be computed.
            PermanentError: any other refusal. Never retried.
        """
        body = json.dumps(payload, ensure_ascii=False).encode()
        return self._ask("POST", path, body, texts, tokens, max_500)

    def get(self, path: str) -> dict[str, Any]:
        """GET ``path``; returns and raises as :meth:`post` does."""
        return self._ask("GET", path, None, 0, 0, 0)

    def settle(self, estimated: int, used: int) -> None:
        """Count ``used`` tokens, and correct the limit a minute by what the estimate missed."""
        with self._lock:
            self.stats.tokens += used
        if self._tokens:
            self._tokens.give_back(estimated - used)

    def close(self) -> None:
        """Close the connections, where the sender has any."""
        getattr(self.send, "close", lambda: None)()

    def _ask(
        self, method: str, path: str, body: bytes | None, texts: int, tokens: int, max_500: int
    ) -> dict[str, Any]:
        url = self.base_url + path
        tries, wait_s = 0, 0.0
        while True:
            self._wait(wait_s, tokens)
            tries += 1
            status, headers, said, answer = self._try(method, url, body, texts, is_retry=tries > 1)
            if answer is not None:
                return answer
            text = f"{self.owner}: {self._where(path)} {said}"
            if status >= 300 and (error := self._lasting(status, said, text)):
                raise error
            asked = retry_after_s(headers, self.timers.now())
            if asked is not None and asked > self.max_wait_s:
                raise TransientError(
                    f"{text}; it asks to wait {asked:g} s, more than the {self.max_wait_s:g} s that are "
                    f"accepted (option max_wait_s)",
                    status,
                    asked,
                )
            limit = min(self.max_tries, max_500) if status == 500 and max_500 else self.max_tries
            if tries >= limit:
                raise TransientError(f"{text}; gave up after {tries} tries", status, asked)
            chance = self.timers.random()
            wait_s = backoff_s(tries, chance)
            if asked:
                wait_s = asked + chance * min(1.0, 0.1 * asked)
                with self._lock:  # the others need not find out by being refused
                    self._resume_at = max(self._resume_at, self.timers.clock() + asked)
                if (pace := shared_pace()) is not None:
                    pace.pause(self._pace_key, asked)

    def _wait(self, wait_s: float, tokens: int) -> None:
        with self._lock:
            wait_s = max(wait_s, self._resume_at - self.timers.clock())
        if (pace := shared_pace()) is not None:
            wait_s = max(wait_s, pace.paused_s(self._pace_key))
        if self._requests:
            wait_s = max(wait_s, self._requests.take(1))
        if self._tokens and tokens:
            wait_s = max(wait_s, self._tokens.take(tokens))
        if wait_s > 0:
            with self._lock:
                self.stats.waited_s += wait_s
            self.timers.sleep(wait_s)

    def _try(
        self, method: str, url: str, body: bytes | None, texts: int, is_retry: bool
    ) -> tuple[int, Mapping[str, str], str, dict[str, Any] | None]:
        """Status (0 where no whole answer came), headers, what went wrong, and the answer if all is well."""
        sent = {"accept": "application/json"} | ({"content-type": "application/json"} if body else {})
        with self._slots:
            started = self.timers.clock()
            try:
                status, headers, raw = through(self.send)(method, url, sent, body)
            except WireError as error:
                status, headers, raw, said = 0, {}, b"", self._scrub(str(error))
            seconds = self.timers.clock() - started
        answer: Any = None
        if status:
            said = f"answered HTTP {status}: {self._message(raw)}"
        if 200 <= status < 300:
            try:
                answer = json.loads(raw)
            except ValueError:
                status = 0
            if not isinstance(answer, dict):
                answer, said = None, "answered something else than one JSON object"
        with self._lock:
            self.stats.requests += 1
            self.stats.retries += is_retry
            self.stats.n_429 += status == 429
            if answer is not None:
                self.stats.answered += 1
                self.stats.texts += texts
                self.stats.latency_s.append(seconds)
        return status, headers, said, answer

    def _lasting(self, status: int, said: str, text: str) -> ProviderError | None:
        """The error of an answer that another try would not change; None for any other."""
        if status == 413 or (status in (400, 422, 500) and _TOO_LARGE.search(said)):
            return BatchRefusedError(text, status)
        if status >= 500 and _NOT_A_NUMBER.search(said):
            return BatchRefusedError(text, status)
        if status == 429 and _NO_CREDIT.search(said):
            return TransientError(text, status)
        if status in RETRIED or status >= 500:
            return None
        hint = f"; check {self._key_name}" if status in (401, 403) and self._key_name else ""
        return PermanentError(text + hint, status)

    def _message(self, raw: bytes) -> str:
        """What an error body says, in one line, without any piece of the key."""
        text = raw[: 20 * SHOWN_CHARS].decode("utf-8", "replace")
        try:
            found: Any = json.loads(text)
        except ValueError:
            found = text
        for name in ("error", "message", "detail"):
            if isinstance(found, dict) and name in found:
                found = found[name]
        line = " ".join((found if isinstance(found, str) else json.dumps(found)).split())
        return self._scrub(line)[:SHOWN_CHARS] or "no message"

    def _where(self, path: str) -> str:
        parts = urlsplit(self.base_url)
        return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}{path}"

    def __repr__(self) -> str:
        return f"Transport({self.owner}, {self._where('')})"

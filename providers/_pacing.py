"""When a request may go out: limits a minute, pauses that a service asks for, back-off between tries."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

__all__ = ["BURST", "Bucket", "Timers", "backoff_s", "retry_after_s"]

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 8.0
#: The part of a minute's limit that may go out at once.
BURST = 0.1


@dataclass(frozen=True, slots=True)
class Timers:
    """Where time and chance come from; tests put their own in.

    Attributes:
        clock: seconds that never go back.
        sleep: waits that many seconds.
        random: from 0 to 1.
        now: seconds since 1970, to read an HTTP date against.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    now: Callable[[], float] = time.time


def backoff_s(tries: int, chance: float) -> float:
    """Full jitter: ``chance`` (0 to 1) of 0.5 s · 2^(tries - 1), at most of 8 s.

    Source: the openai SDK's 0.5 to 8 s; jitter as in M. Brooker, "Exponential Backoff And Jitter" (2015).
    """
    return chance * min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(tries - 1, 30))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """The wait that an answer asks for: ``retry-after-ms``, or ``retry-after`` in seconds or as a date.

    None where it asks for none or for nonsense (not a number, not finite, below 0); 0 for a date gone by.
    Source: RFC 9110, section 10.2.3.
    """
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            value = float(text) * scale
        except ValueError:
            continue
        return value if math.isfinite(value) and value >= 0 else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:  # "-0000": a date without a zone is in UTC
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)


class Bucket:
    """A token bucket that keeps any span of 60 s within a limit, for amounts of up to a tenth of it.

    A tenth of the limit may go out at once and the rest flows in evenly over the minute: in any minute at
    most ``burst + rate · 60 = limit`` go through. A larger amount waits until all of it has flowed in.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self.limit, self._clock = per_minute, clock
        self._burst = max(1.0, per_minute * BURST)
        self._rate = max(per_minute - self._burst, per_minute * BURST) / 60
        self._level, self._at = self._burst, clock()
        self._lock = threading.Lock()

    def take(self, amount: float) -> float:
        """Book ``amount``; returns the seconds to wait before it may go out."""
        with self._lock:
            self._fill()
            self._level -= min(amount, self.limit)
            return max(0.0, -self._level / self._rate)

    def give_back(self, amount: float) -> None:
        """Return what was booked and not used; below 0, book what was used beyond it."""
        with self._lock:
            self._fill()
            self._level = min(self._burst, self._level + amount)

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now

"""When a request may go out: limits a minute, pauses that a service asks for, back-off between tries."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from rag_core.pace import BURST, Bucket

__all__ = ["BURST", "Bucket", "Timers", "backoff_s", "retry_after_s"]

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 8.0


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

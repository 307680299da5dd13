"""One rate budget for several processes: who books, and where from.

A provider with limits a minute books each request before it goes out. Alone it counts for itself;
inside :func:`paced_by`, as in the workers of an engine, one counts for all of them together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["BURST", "Bucket", "Limit", "SharedPace", "paced_by", "shared_limit", "shared_pace"]

#: The part of a minute's limit that may go out at once.
BURST = 0.1


class Limit(Protocol):
    """A limit a minute that is booked from."""

    def take(self, amount: float) -> float:
        """Book ``amount``; returns the seconds to wait before it may go out."""
        ...

    def give_back(self, amount: float) -> None:
        """Return what was booked and not used; below 0, book what was used beyond it."""
        ...


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


class SharedPace(Protocol):
    """Limits that several processes share; each is known by its key."""

    def limit(self, key: str, per_minute: float) -> Limit:
        """The limit of ``key``, made by whoever asks for it first."""
        ...

    def pause(self, key: str, seconds: float) -> None:
        """All requests of ``key`` wait for ``seconds`` from now: the service has asked one of them to."""
        ...

    def paused_s(self, key: str) -> float:
        """Seconds that requests of ``key`` still have to wait; 0 for none."""
        ...


_shared: list[SharedPace] = []


@contextmanager
def paced_by(pace: SharedPace) -> Iterator[None]:
    """Inside, limits that are made in this process are those of ``pace``."""
    _shared.append(pace)
    try:
        yield
    finally:
        _shared.remove(pace)


def shared_limit(key: str, per_minute: float, alone: Callable[[], Limit]) -> Limit:
    """The limit of ``key`` that is shared, else what ``alone`` makes."""
    return _shared[-1].limit(key, per_minute) if _shared else alone()


def shared_pace() -> SharedPace | None:
    """The pace of this process, if it has one that is shared."""
    return _shared[-1] if _shared else None

"""A pace that several providers share."""

from __future__ import annotations

from typing import Any

import pytest

from providers._http import Transport
from providers._pacing import Timers
from rag_core.pace import Bucket, paced_by, shared_limit, shared_pace
from rag_core.scale.ray_pace import PaceKeeper, RayPace


class Direct:
    """In the place of Ray: calls the keeper at once."""

    @staticmethod
    def get(value: Any) -> Any:
        return value


class Remote:
    def __init__(self, keeper: PaceKeeper) -> None:
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._keeper, name)
        return type("Method", (), {"remote": staticmethod(method)})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def answering(log: list[float], clock: Clock, status: int = 200) -> Any:
    def send(method: str, url: str, headers: Any, body: Any) -> Any:
        log.append(clock.now)
        if status == 200 or len(log) > 1:
            return 200, {}, b"{}"
        return status, {"retry-after": "3"}, b"{}"

    return send


def transports(log: list[float], clock: Clock, n: int, **options: Any) -> list[Transport]:
    timers = Timers(clock=clock, sleep=clock.sleep, random=lambda: 0.0, now=clock)
    send = answering(log, clock, options.pop("status", 200))
    return [Transport("t", "http://x", send, timers=timers, **options) for _ in range(n)]


@pytest.mark.parametrize("is_shared, least, most", [(False, 300, 600), (True, 30, 60)])
def test_ten_transports_keep_to_one_limit(is_shared: bool, least: int, most: int) -> None:
    """Without the shared pace each of them takes the limit for itself."""
    clock, log = Clock(), list[float]()
    pace = RayPace(Direct, Remote(PaceKeeper(clock)))

    def ask() -> None:
        made = transports(log, clock, 10, rpm=60)
        while clock.now < 60:
            for transport in made:
                transport.post("/p", {})

    if is_shared:
        with paced_by(pace):
            ask()
    else:
        ask()
    in_a_minute = sum(at < 60 for at in log)
    assert least <= in_a_minute <= most


def test_what_one_is_asked_to_wait_all_wait() -> None:
    clock, log = Clock(), list[float]()
    with paced_by(RayPace(Direct, Remote(PaceKeeper(clock)))):
        first, second = transports(log, clock, 2, status=429)
        clock_at_429: list[float] = []
        real = first.timers.sleep

        def sleep(seconds: float) -> None:
            clock_at_429.append(clock.now)
            if len(clock_at_429) == 1:
                second.post("/p", {})  # while the first one waits
            real(seconds)

        first.timers = Timers(clock=clock, sleep=sleep, random=lambda: 0.0, now=clock)
        first.post("/p", {})
    assert log[1] >= 3.0


def test_tokens_are_settled_in_the_shared_limit() -> None:
    clock = Clock()
    keeper = PaceKeeper(clock)
    with paced_by(RayPace(Direct, Remote(keeper))):
        (transport,) = transports([], clock, 1, tpm=6000)
        transport.post("/p", {}, tokens=600)
        transport.settle(600, 100)
        assert keeper.take("t http://x tokens", 6000, 500) == 0.0
        assert keeper.take("t http://x tokens", 6000, 500) > 0.0
    keeper.give_back("unknown", 3)
    assert keeper.paused_s("unknown") == 0.0


def test_a_new_limit_replaces_the_old_one() -> None:
    keeper = PaceKeeper(Clock())
    assert keeper.take("k", 10, 10) > 0
    assert keeper.take("k", 1000, 10) == 0


def test_alone_each_counts_for_itself() -> None:
    mine = Bucket(60, Clock())
    assert shared_pace() is None
    assert shared_limit("k", 60, lambda: mine) is mine

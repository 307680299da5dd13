"""A closed loop of many clients: what is waiting and what is service."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from harness.load import LoadSample, closed_loop, level, parse_concurrency
from rag_core.errors import InvalidArgumentError, ProviderError


@pytest.mark.parametrize(("text", "expected"), [("1,4,16", [1, 4, 16]), ("4, 1,4", [1, 4]), ("8", [8])])
def test_concurrency(text: str, expected: list[int]) -> None:
    assert parse_concurrency(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "1,x", "2000"])
def test_bad_concurrency(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: whole numbers from 1"):
        parse_concurrency(text)


def loop(call, items=("a", "b", "c"), **options):  # type: ignore[no-untyped-def]
    return closed_loop(call, items, **{"clients": 1, "workers": 1, "requests": 6, "limit_s": 60.0, **options})


def test_queries_come_in_turn_and_no_more_than_asked_for() -> None:
    seen: list[str] = []
    sample = loop(seen.append, requests=7)
    assert seen == ["a", "b", "c", "a", "b", "c", "a"]
    assert len(sample.latency_s) == len(sample.waited_s) == 7
    assert all(0 <= waited <= latency for waited, latency in zip(sample.waited_s, sample.latency_s))
    assert sample.wall_s >= sum(sample.latency_s) * 0.99


def test_latency_holds_what_the_call_takes_and_the_waiting_for_a_worker() -> None:
    """One worker of 20 ms a query and four clients: in a steady state three queries wait."""
    sample = loop(lambda item: time.sleep(0.02), clients=4, requests=20)
    assert all(latency - waited >= 0.02 for latency, waited in zip(sample.latency_s, sample.waited_s))
    assert np.median(sample.waited_s) >= 0.055
    assert np.median(sample.latency_s) >= 0.075
    assert sample.wall_s >= 20 * 0.02


def test_no_more_calls_at_once_than_workers_and_no_more_clients_than_asked_for() -> None:
    busy, most, lock = 0, 0, threading.Lock()

    def call(item: str) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.005)
        with lock:
            busy -= 1

    loop(call, clients=8, workers=3, requests=40)
    assert most == 3
    most = 0
    loop(call, clients=2, workers=5, requests=10)
    assert most <= 2


def test_littles_law_holds() -> None:
    sample = loop(lambda item: time.sleep(0.004), clients=6, workers=2, requests=150)
    in_flight = len(sample.latency_s) / sample.wall_s * float(np.mean(sample.latency_s))
    assert 4.5 < in_flight <= 6.001


def test_time_that_is_over_ends_the_level_after_each_client_asked_once() -> None:
    seen: list[str] = []
    sample = loop(lambda item: (time.sleep(0.03), seen.append(item)), clients=3, requests=1000, limit_s=0.01)
    assert 3 <= len(sample.latency_s) < 10


def test_errors_of_this_library_are_counted_and_others_raised() -> None:
    def call(item: str) -> None:
        if item == "b":
            raise ProviderError("down")

    sample = loop(call)
    assert sample.failed == ["down", "down"]
    assert len(sample.latency_s) == 4

    def broken(item: str) -> None:
        raise KeyError("a fault of its own")

    with pytest.raises(KeyError):
        loop(broken, clients=3)
    with pytest.raises(InvalidArgumentError, match="0 queries"):
        loop(broken, items=())


def test_a_level_in_figures() -> None:
    sample = LoadSample([0.1 + i / 1000 for i in range(100)], [0.04] * 100, ["x"], 5.0)
    found = level(sample, 4)
    assert (found["clients"], found["n"], found["n_failed"], found["queries_per_s"]) == (4, 100, 1, 20.0)
    assert found["p50_s"] == pytest.approx(0.1495)
    assert found["waited_p95_s"] == pytest.approx(0.04)
    assert found["service_p50_s"] == pytest.approx(0.1095)
    few = level(LoadSample([0.1] * 5, [0.0] * 5, [], 1.0), 1)
    assert (few["p95_s"], few["waited_p95_s"], few["service_p95_s"]) == (None, None, None)
    assert level(LoadSample(), 1)["queries_per_s"] is None

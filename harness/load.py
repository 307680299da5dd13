"""Many clients at once: a closed loop over the queries, and what of the latency was waiting.

``clients`` threads each submit a query, wait for its answer and submit the next one at once; ``workers``
threads answer, first come, first served. Latency runs from submission to the answer; waiting ends when a
worker takes the query; the rest is service, in which the workers share the CPUs. Because every client waits
for its answer, throughput times mean latency is the number of clients (Little, Operations Research 9, 1961),
less the idle ends.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.timing import LEAST_FOR_P95, percentile, summary_s
from rag_core.errors import InvalidArgumentError, RagCoreError

__all__ = ["LEAST_REQUESTS", "LoadSample", "closed_loop", "level", "parse_concurrency"]

T = TypeVar("T")
#: Answered by a level at least, unless its time is over, and by each client of it.
LEAST_REQUESTS, LEAST_OF_A_CLIENT = 100, 10


def parse_concurrency(text: str) -> list[int]:
    """``[1, 4, 16]`` of ``1,4,16``, in rising order.

    Raises:
        InvalidArgumentError: not whole numbers from 1.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 0 < int(part) <= 1024 for part in parts):
        raise InvalidArgumentError(
            f"--concurrency {text!r}; accepted: whole numbers from 1 to 1024, for example 1,4,16"
        )
    return sorted({int(part) for part in parts})


@dataclass
class LoadSample:
    """What was seen at one number of clients; seconds in the order of the answers.

    Attributes:
        latency_s, waited_s: of each answered request; waiting is a part of latency.
        failed: messages of those that were not answered.
        wall_s: from the first submission to the last answer.
    """

    latency_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    wall_s: float = 0.0


class _Request(Generic[T]):
    __slots__ = ("done", "ended", "error", "item", "started", "submitted")

    def __init__(self, item: T) -> None:
        self.item, self.done, self.error = item, threading.Event(), ""
        self.started = self.ended = 0.0
        self.submitted = time.perf_counter()


def closed_loop(
    call: Callable[[T], object],
    items: Sequence[T],
    *,
    clients: int,
    workers: int,
    requests: int,
    limit_s: float,
) -> LoadSample:
    """Answer ``items`` in turn, over and over, by ``call`` in ``workers`` threads for ``clients`` threads.

    Args:
        call: returns when the answer's values exist on the host; a RagCoreError counts as a failed request.
        requests: answered in all.
        limit_s: after so many seconds no further request is submitted.

    Raises:
        InvalidArgumentError: no items, or a number below 1.
        Exception: whatever ``call`` raised that is no error of this library.
    """
    if not items or min(clients, workers, requests) < 1:
        raise InvalidArgumentError(
            f"{len(items)} queries, {clients} clients, {workers} workers, {requests} requests; "
            "accepted: 1 or more of each"
        )
    waiting: queue.SimpleQueue[_Request[T] | None] = queue.SimpleQueue()
    counter, sample, lock = itertools.count(), LoadSample(), threading.Lock()
    broken: list[BaseException] = []

    def serve() -> None:
        while (request := waiting.get()) is not None:
            request.started = time.perf_counter()
            try:
                call(request.item)
            except RagCoreError as error:
                request.error = str(error) or type(error).__name__
            except BaseException as error:  # noqa: BLE001 - raised again below
                broken.append(error)
            request.ended = time.perf_counter()
            request.done.set()

    def ask() -> None:
        while (number := next(counter)) < requests and not broken:
            if number >= clients and time.perf_counter() - begun > limit_s:
                return
            request = _Request(items[number % len(items)])
            waiting.put(request)
            request.done.wait()
            with lock:
                if request.error:
                    sample.failed.append(request.error)
                    continue
                sample.latency_s.append(request.ended - request.submitted)
                sample.waited_s.append(request.started - request.submitted)

    servers = [threading.Thread(target=serve, name=f"worker-{n}", daemon=True) for n in range(workers)]
    askers = [threading.Thread(target=ask, name=f"client-{n}", daemon=True) for n in range(clients)]
    for thread in servers:
        thread.start()
    begun = time.perf_counter()
    for thread in askers:
        thread.start()
    for thread in askers:
        thread.join()
    sample.wall_s = time.perf_counter() - begun
    for _ in servers:
        waiting.put(None)
    for thread in servers:
        thread.join()
    if broken:
        raise broken[0]
    return sample


def level(sample: LoadSample, clients: int) -> dict[str, Any]:
    """The figures of one number of clients as a result holds them, in seconds and answers a second.

    Percentiles as :func:`harness.timing.summary_s`: None below 20 and 100 answers.
    """
    service_s = [latency - waited for latency, waited in zip(sample.latency_s, sample.waited_s)]
    enough = len(service_s) >= LEAST_FOR_P95
    return {
        "clients": clients,
        "n": len(sample.latency_s),
        "n_failed": len(sample.failed),
        "wall_s": sample.wall_s,
        "queries_per_s": len(sample.latency_s) / sample.wall_s
        if sample.wall_s and sample.latency_s
        else None,
        **summary_s(sample.latency_s),
        "waited_p50_s": percentile(sample.waited_s, 50),
        "waited_p95_s": percentile(sample.waited_s, 95) if enough else None,
        "service_p50_s": percentile(service_s, 50),
        "service_p95_s": percentile(service_s, 95) if enough else None,
    }

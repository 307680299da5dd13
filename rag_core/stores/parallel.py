"""Parts of one loop on all processors that are free, for loops that release the interpreter's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from rag_core.devices import usable_cpus

__all__ = ["in_parts"]

#: A memory bus is full long before a large machine's last core is busy.
MOST_THREADS = 8


def in_parts(n: int, size: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(start, stop)`` for every part of ``range(n)`` of ``size`` or fewer.

    The calling thread takes parts as the helpers do. Once none is left it does again those that a helper has
    begun and not finished, instead of waiting for a thread that may have lost its processor: ``work`` must
    write the same whenever it is called. What a part raises is raised here.
    """
    n_parts = -(-n // size)
    counter = itertools.count()  # taking the next number is one step of the interpreter
    is_done = bytearray(n_parts)

    def run() -> None:
        while (part := next(counter)) < n_parts:
            work(part * size, min(n, (part + 1) * size))
            is_done[part] = 1

    n_helpers = min(_processors(), MOST_THREADS, n_parts) - 1
    helpers = [_pool().submit(run) for _ in range(n_helpers)] if n_helpers > 0 else []
    try:
        run()
        for part in range(n_parts):
            if not is_done[part]:
                work(part * size, min(n, (part + 1) * size))
    finally:
        counter = itertools.count(n_parts)  # after an error nobody begins another part
        for helper in helpers:
            helper.cancel()


@lru_cache(maxsize=1)
def _processors() -> int:
    return usable_cpus()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS - 1, "scan")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)

"""How long work waits for a node that could take it: Ray itself waits for ever.

A node that is busy is waited for as long as it takes. What ends the wait is a cluster of which no living node
has, busy or not, what the work asks for: its workers died, or it never had the device.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from rag_core.errors import InvalidArgumentError, ProviderUnavailableError

__all__ = ["LOOK_S", "RESOURCES", "WAIT", "Patience", "patiently", "wait_s"]

#: Target -> what Ray calls the device, and how a node comes to offer it.
RESOURCES: Mapping[str, tuple[str, str]] = {
    "nvidia": ("GPU", "ray start --num-gpus=1 …"),
    "mlx": ("mlx", "ray start --resources='{\"mlx\": 1}' …"),
}
#: Environment variable: seconds to wait for a node; and where it is not set.
WAIT, WAIT_S = "RAG_RAY_WAIT_S", 300.0
#: Seconds from one look at the nodes to the next.
LOOK_S = 2.0
#: Arguments of Ray -> its names for the same as resources.
NAMES: Mapping[str, str] = {"num_cpus": "CPU", "num_gpus": "GPU"}
#: Resources of every node, which nobody asks for.
NOT_TOLD = ("memory", "object_store_memory", "node:", "accelerator_type:")
T = TypeVar("T")


def wait_s(given: float | None = None) -> float:
    """``given``, else what the environment says, else 300.

    Raises:
        InvalidArgumentError: no number from 0.
    """
    said = os.environ.get("RAG_RAY_WAIT_S", "").strip()
    try:
        found = given if given is not None else float(said) if said else WAIT_S
    except ValueError:
        found = math.nan
    if not found >= 0:
        raise InvalidArgumentError(
            f"{WAIT} is {said if given is None else given!r}; accepted: seconds to wait for a node, from 0"
        )
    return found


class Patience:
    """For one kind of work: since when no node could take it."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[Mapping[str, Any]]],
        wanted: Mapping[str, Any],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            nodes: the cluster's, as ``ray.nodes`` gives them.
            wanted: arguments by which Ray places the work.
            seconds: after which it is given up.
        """
        self._nodes, self.seconds, self._clock = nodes, seconds, clock
        self._wanted = {NAMES[name]: wanted[name] for name in NAMES if wanted.get(name)}
        self._wanted |= wanted.get("resources", {})
        self._since: float | None = None

    def check(self) -> None:
        """Look at the nodes.

        Raises:
            ProviderUnavailableError: none has had what is asked for all the time; says what there is.
        """
        alive = [node["Resources"] for node in self._nodes() if node["Alive"]]
        if any(all(node.get(name, 0) >= n for name, n in self._wanted.items()) for node in alive):
            self._since = None
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since < self.seconds:
            return
        how = next((how for name, how in RESOURCES.values() if name in self._wanted), "")
        raise ProviderUnavailableError(
            "engine 'ray'",
            f"in {self.seconds:.3g} s no node had what the work asks for, {_told(self._wanted)}; "
            f"the cluster has {_cluster(alive)}",
            f"add a node ({how or 'ray start --address=HEAD:6379'}) and run the same command again: "
            f"what was finished is kept ({WAIT} sets how long to wait)",
        )


def _told(resources: Mapping[str, float]) -> str:
    """Resources as people read them: ``CPU 2, GPU 1``."""
    told = (
        f"{name} {amount:g}"
        for name, amount in sorted(resources.items())
        if amount and not name.startswith(NOT_TOLD)
    )
    return ", ".join(told) or "nothing"


def _cluster(alive: Sequence[Mapping[str, float]]) -> str:
    if not alive:
        return "no node that is alive"
    return f"{len(alive)} alive: " + "; ".join(f"one with {_told(node)}" for node in alive)


def patiently(rows: Iterable[T], patience: Patience, stop: Callable[[], object]) -> Iterator[T]:
    """``rows``, which a thread fetches, so that a wait for the next can be ended.

    Args:
        stop: makes the thread come to an end; called where it may still be waiting.

    Raises:
        ProviderUnavailableError: as of :meth:`Patience.check`; and whatever fetching raises.
    """
    found: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    is_left = threading.Event()

    def fetch() -> None:
        try:
            for row in rows:
                found.put(("row", row))
                if is_left.is_set():
                    return
            found.put(("end", None))
        except BaseException as error:  # noqa: BLE001 - raised again where rows are waited for
            found.put(("error", error))

    threading.Thread(target=fetch, name="rag-core-ray-rows", daemon=True).start()
    has_ended = False
    try:
        while True:
            try:
                kind, what = found.get(timeout=min(LOOK_S, max(0.05, patience.seconds / 4)))
            except queue.Empty:
                patience.check()
                continue
            has_ended = kind != "row"
            if kind == "error":
                raise what
            if kind == "end":
                return
            yield what
    finally:
        is_left.set()
        if not has_ended:
            with suppress(Exception):
                stop()

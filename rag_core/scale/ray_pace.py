"""The one rate budget of all workers of a Ray cluster: a named actor that books for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rag_core.pace import Bucket, paced_by
from rag_core.scale.engine import EmbedJob
from rag_core.scale.shards import require
from rag_core.scale.work import ShardWorker

__all__ = ["PaceKeeper", "PacedWorker", "RayPace", "ray_pace"]

NAME, NAMESPACE = "rag-core-pace", "rag-core"


class PaceKeeper:
    """Limits and pauses by key, for whoever asks; the first to ask for a limit says what it is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limits: dict[str, Bucket] = {}
        self._until: dict[str, float] = {}

    def take(self, key: str, per_minute: float, amount: float) -> float:
        """See :class:`rag_core.pace.Limit`; a new ``per_minute`` begins a new limit."""
        known = self._limits.get(key)
        if known is None or known.limit != per_minute:
            known = self._limits[key] = Bucket(per_minute, self._clock)
        return known.take(amount)

    def give_back(self, key: str, amount: float) -> None:
        """See :class:`rag_core.pace.Limit`."""
        if key in self._limits:
            self._limits[key].give_back(amount)

    def pause(self, key: str, seconds: float) -> None:
        """See :class:`rag_core.pace.SharedPace`."""
        self._until[key] = max(self._until.get(key, 0.0), self._clock() + seconds)

    def paused_s(self, key: str) -> float:
        """See :class:`rag_core.pace.SharedPace`."""
        return max(0.0, self._until.get(key, 0.0) - self._clock())


@dataclass(frozen=True, slots=True)
class _RayLimit:
    ask: Callable[..., Any]
    key: str
    per_minute: float

    def take(self, amount: float) -> float:
        return float(self.ask("take", self.key, self.per_minute, amount))

    def give_back(self, amount: float) -> None:
        self.ask("give_back", self.key, amount)


class RayPace:
    """A :class:`rag_core.pace.SharedPace` that asks the actor."""

    def __init__(self, ray: Any, keeper: Any) -> None:
        self._ray, self._keeper = ray, keeper

    def _ask(self, method: str, *args: Any) -> Any:
        return self._ray.get(getattr(self._keeper, method).remote(*args))

    def limit(self, key: str, per_minute: float) -> _RayLimit:
        """See :class:`rag_core.pace.SharedPace`."""
        return _RayLimit(self._ask, key, per_minute)

    def pause(self, key: str, seconds: float) -> None:
        """See :class:`rag_core.pace.SharedPace`."""
        self._ask("pause", key, seconds)

    def paused_s(self, key: str) -> float:
        """See :class:`rag_core.pace.SharedPace`."""
        return float(self._ask("paused_s", key))


def ray_pace() -> RayPace:
    """The pace of the cluster that this process is connected to; made by the first to ask.

    It outlives its maker, so that what runs at the same time shares it, and keeps no CPU.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    ray = require("ray")
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return RayPace(ray, ray.remote(PaceKeeper).options(num_cpus=0, max_restarts=-1, **options).remote())


class PacedWorker(ShardWorker):
    """A worker whose service is asked at the pace of the cluster."""

    def __init__(self, job: EmbedJob) -> None:
        super().__init__(job)
        self._pace = paced_by(ray_pace())
        self._pace.__enter__()  # for as long as the process lives

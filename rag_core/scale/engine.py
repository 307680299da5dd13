"""Where the workers of an embedding come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rag_core.errors import InvalidArgumentError

__all__ = ["SHARD", "EmbedEngine", "EmbedJob", "InProcessEngine", "ShardReport", "shard_path"]

#: Texts of a shard: what a worker that dies may have to do again.
SHARD = 1024


@dataclass(frozen=True, slots=True)
class EmbedJob:
    """What every worker is told; plain values.

    Attributes:
        provider: spec string of the embedder that a worker loads.
        target: where it computes: ``cpu``, ``nvidia``, ``mlx`` or ``api``.
        identity: values of the :class:`~rag_core.fingerprint.Fingerprint` that its vectors must have.
        shards: folder of the shards; workers on other machines see it under the same path.
        fragments: folder that the vectors are written to, likewise.
        batch: texts of a call of the embedder, as in a build by one process: where neighbours change a
            vector, they are the same ones.
        threads: CPU threads of a worker; 0 for the CPUs really available.
    """

    provider: str
    target: str
    identity: dict[str, Any]
    shards: str
    fragments: str
    batch: int
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What became of a shard.

    Attributes:
        number: of the shard.
        embedded: texts that its fragment has vectors of.
        failed: tag -> why the text has no vector.
        error: why the embedder cannot go on, if it cannot.
    """

    number: int
    embedded: int = 0
    failed: dict[bytes, str] = field(default_factory=dict)
    error: Exception | None = None


class EmbedEngine(Protocol):
    """Runs :class:`rag_core.scale.work.ShardWorker` over shards, somewhere.

    Attributes:
        provider: spec string for the workers; empty for that of the index.
        shard_texts: texts of a shard.
    """

    provider: str
    shard_texts: int

    def run(self, job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        """Embed shards 0 to ``n_shards`` - 1; their reports as they come, in any order, each once.

        Raises:
            ProviderError: the workers cannot be started, or break off.
        """
        ...

    def elsewhere(self, call: Callable[[], None]) -> None:
        """Run ``call`` where the workers are, and wait for its end: an :data:`~rag_core.protocols.Elsewhere`.

        Where it fails there, as a machine may lack a package or the way to a store, it is run here.

        Raises:
            ProviderError: there is no place for it, or it breaks off; and whatever ``call`` raises here.
        """
        ...


class InProcessEngine:
    """One worker in this process: what an engine does, without any of its machinery."""

    def __init__(self, provider: str, shard_texts: int = SHARD) -> None:
        self.provider, self.shard_texts = provider, check_shard(shard_texts)

    def run(self, job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        """See :class:`EmbedEngine`."""
        from rag_core.scale.work import ShardWorker

        worker = ShardWorker(job)
        return map(worker.shard, range(n_shards))

    def elsewhere(self, call: Callable[[], None]) -> None:
        """See :class:`EmbedEngine`: in this process."""
        call()


def check_shard(texts: int) -> int:
    """``texts`` as a size of shards.

    Raises:
        InvalidArgumentError: below 1.
    """
    if texts < 1:
        raise InvalidArgumentError(f"a shard of {texts} texts; accepted: 1 or more")
    return texts


def check_workers(workers: int) -> int:
    """``workers`` as a number of them; 0 stands for one a node or device.

    Raises:
        InvalidArgumentError: below 0.
    """
    if workers < 0:
        raise InvalidArgumentError(f"{workers} workers; accepted: 1 or more, or 0 for one a node or device")
    return workers


def shard_path(folder: str | Path, number: int) -> Path:
    """The file of shard ``number``."""
    return Path(folder) / f"{number:08d}.parquet"

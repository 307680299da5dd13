"""Option ``--engine``: where an ingest makes its vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rag_core.app.settings import Asked
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import nearest
from rag_core.scale.engine import EmbedEngine

__all__ = ["ENGINES", "check_engine", "engine_for"]

ENGINES = ("local", "ray")


def check_engine(asked: Asked, max_usd: float | None) -> None:
    """Refuse what does not go together, before anything is loaded.

    Args:
        max_usd: limit of the settings.

    Raises:
        UnknownNameError: no such engine.
        InvalidArgumentError: an option that needs the cluster without it, or a budget, which no worker keeps.
        MissingExtraError: Ray is not installed.
    """
    engine = asked.engine
    if engine.name not in ENGINES:
        raise UnknownNameError(f"unknown engine {engine.name!r}{nearest(engine.name, ENGINES)}")
    if engine.name == "local":
        for option, value in (
            ("address", engine.address),
            ("workers", engine.workers),
            ("worker-provider", engine.provider),
        ):
            if value:
                raise InvalidArgumentError(f"--{option} {value} is of a cluster; add --engine ray")
        return
    if asked.max_usd is not None or max_usd is not None:
        raise InvalidArgumentError(
            "a budget (max_usd) is counted by one process, and --engine ray has many; leave one of them out"
        )
    from rag_core.scale.shards import require

    for package in ("ray", "pyarrow"):
        require(package)


@contextmanager
def engine_for(asked: Asked, chain: Sequence[str]) -> Iterator[EmbedEngine | None]:
    """The engine of ``asked``, left at the end; None where this process embeds.

    Args:
        chain: spec strings of the embedders; workers load the first.
    """
    if asked.engine.name == "local":
        yield None
        return
    from rag_core.scale import RayEngine

    engine = asked.engine
    provider = engine.provider or chain[0]
    with RayEngine(provider, address=engine.address, workers=engine.workers) as found:
        yield found

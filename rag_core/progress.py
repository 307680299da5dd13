"""Progress of long work (a download, a conversion, a warm-up), told to whoever listens and to nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "listening", "tell"]

#: ``progress(stage, done, total)``: what is being done, how much of it is, and of how much; ``total`` is 0
#: where that is not known.
Progress = Callable[[str, int, int], None]
_listener: ContextVar[Progress | None] = ContextVar("rag_core_progress", default=None)


@contextmanager
def listening(progress: Progress | None) -> Iterator[None]:
    """Send what :func:`tell` says inside the block to ``progress``; None silences it."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(stage: str, done: int, total: int) -> None:
    """Say how far ``stage`` is. Costs nothing where nobody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)

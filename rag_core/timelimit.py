"""A reranker that is given up on when it takes too long, so that a question still gets its answer."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Sequence
from typing import Any

from rag_core.errors import InvalidArgumentError, TransientError
from rag_core.protocols import Reranker, Target
from rag_core.secrets import safe_repr

__all__ = ["TimeLimitedReranker"]


class _Call(threading.Thread):
    """One call in a thread of its own; a daemon, so that one given up on does not keep the process alive."""

    def __init__(self, reranker: Reranker, query: str, candidates: Sequence[str]) -> None:
        super().__init__(name="rerank", daemon=True)
        self._ask = (reranker, query, candidates)
        self._context = contextvars.copy_context()
        self.scores: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        reranker, query, candidates = self._ask
        try:
            self.scores = self._context.run(reranker.rerank, query, candidates)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self.error = error


class TimeLimitedReranker:
    """A :class:`~rag_core.protocols.Reranker` that answers within ``limit_s`` seconds or raises.

    A call that is too late cannot be stopped, and goes on in the background. Until it has ended, further
    calls are refused at once: they would only wait for it. :meth:`rag_core.index.Index.hybrid_search` keeps
    the fused order and says so.
    """

    def __init__(self, reranker: Reranker, limit_s: float) -> None:
        """Raises InvalidArgumentError unless ``limit_s`` is above 0."""
        if not 0 < limit_s < math.inf:
            raise InvalidArgumentError(f"rerank timeout is {limit_s!r}; accepted: seconds above 0")
        self.reranker, self.limit_s = reranker, limit_s
        self.name, self.model = reranker.name, reranker.model
        self.target: Target = reranker.target
        self._late: _Call | None = None

    @property
    def fingerprint(self) -> str:
        """That of the reranker: the limit changes no score."""
        return self.reranker.fingerprint

    def is_available(self) -> bool:
        """Whether the reranker is, and no call that was given up on still keeps it busy."""
        return not self._is_busy() and self.reranker.is_available()

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """See :class:`rag_core.protocols.Reranker`.

        Raises:
            TransientError: it took longer than the limit, or is busy with a call that did.
            ProviderError: what the reranker raises.
        """
        if self._is_busy():
            raise TransientError(
                f"{self.name} is still busy with an earlier request that took longer than {self.limit_s:g} s"
            )
        call = _Call(self.reranker, query, candidates)
        call.start()
        call.join(self.limit_s)
        if call.is_alive():
            self._late = call
            raise TransientError(f"{self.name} took longer than {self.limit_s:g} s")
        if call.error is not None:
            raise call.error
        return call.scores

    def _is_busy(self) -> bool:
        late = self._late
        return late is not None and late.is_alive()

    def __getattr__(self, name: str) -> Any:
        """Whatever else the reranker has: languages, counts, ``close``."""
        if name == "reranker":  # asked for before __init__ has run, for example by copy
            raise AttributeError(name)
        return getattr(self.reranker, name)

    def __repr__(self) -> str:
        return safe_repr(self, reranker=self.reranker, limit_s=self.limit_s)

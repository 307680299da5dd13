"""A chain of rerankers: the next one answers when one fails, by the rules of :mod:`rag_core.fallback`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rag_core.chain import (
    FAILURES,
    OF_THE_REQUEST,
    Member,
    Passed,
    Pauses,
    close_all,
    members,
    names_of,
    nobody,
)
from rag_core.errors import ProviderError, ProviderUnavailableError, RagCoreError
from rag_core.factory import get_reranker
from rag_core.protocols import Reranker
from rag_core.registry import RERANKERS
from rag_core.reranking import NotedScores
from rag_core.secrets import redact, safe_repr

__all__ = ["FallbackReranker"]

log = logging.getLogger("rag_core")


class FallbackReranker:
    """A :class:`~rag_core.protocols.Reranker` over a chain; all scores of a call come from one reranker.

    Where none can answer it raises, and :meth:`rag_core.index.Index.hybrid_search` keeps the fused order
    and says so. Scores of a stand-in say so as well (:class:`~rag_core.reranking.NotedScores`), because a
    threshold that is meant for one reranker's scores means nothing to another's.
    """

    def __init__(
        self,
        chain: Sequence[Reranker | str | Member[Reranker]],
        *,
        pauses: Pauses | None = None,
        on_stand_in: Callable[[Reranker], None] | None = None,
    ) -> None:
        """As of :class:`FallbackEmbedder`."""
        self._members = members(chain, RERANKERS, get_reranker, pauses or Pauses())
        self._on_stand_in = on_stand_in
        self.name = "fallback(" + ",".join(member.name for member in self._members) + ")"
        first = self._members[0]
        if (reranker := first.made) is not None:
            self.model, self.target = reranker.model, reranker.target
        else:
            _, self.model, self.target = names_of(first, RERANKERS)

    @property
    def fingerprint(self) -> str:
        """The whole chain: any of it may have given the scores."""
        return "fallback(" + "; ".join(member.label for member in self._members) + ")"

    def is_available(self) -> bool:
        """Whether some reranker is at hand and not left alone just now; asks no service."""
        for member in self._members:
            try:
                if not member.breaker.wait_s and member.get().is_available():
                    return True
            except ProviderUnavailableError:
                continue
        return False

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """See :class:`rag_core.protocols.Reranker`.

        Raises:
            NoFallbackError: no reranker can answer now.
            PermanentError: the request was refused for what it holds.
        """
        if not candidates:
            return []
        passed = Passed()
        for member in self._members:
            if not member.breaker.let_through():
                passed.add(member.key, f"it failed and is left alone for {member.breaker.wait_s:.3g} s more")
                continue
            try:
                scores = list(member.get().rerank(query, candidates))
                if len(scores) != len(candidates):
                    raise ProviderError(
                        f"{member.key} gave {len(scores)} scores for {len(candidates)} candidates"
                    )
            except ProviderUnavailableError as error:
                member.breaker.let_go()
                passed.add(member.key, error.reason)
            except FAILURES as error:
                if getattr(error, "status", 0) in OF_THE_REQUEST:
                    member.breaker.worked()
                    raise
                member.pause(error)
                passed.add(member.key, str(error))
                log.warning("%s is left alone for a while: %s", member.key, redact(str(error)))
            except RagCoreError:
                member.breaker.let_go()
                raise
            else:
                member.breaker.worked()
                if not passed.failed:
                    return scores
                if self._on_stand_in:
                    self._on_stand_in(member.get())
                others = "; ".join(f"{key}: {reason}" for key, reason in passed.reasons.items())
                return NotedScores(
                    scores, f"reranked by {member.key}, because others did not answer: {others}"
                )
        raise nobody(self._members, "no reranker answers", passed)

    def close(self) -> None:
        """Close the rerankers that have something to close."""
        close_all(self._members)

    def __repr__(self) -> str:
        return safe_repr(self, chain=[member.key for member in self._members])

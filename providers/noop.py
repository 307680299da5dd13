"""The reranker that changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rag_core.protocols import Target
from rag_core.registry import Spec

__all__ = ["NoopReranker", "load"]


class NoopReranker:
    """Gives every candidate 1.0, so that the fused order stands."""

    name = "noop"
    model = "noop"
    target: Target = "cpu"
    fingerprint = "noop"

    def is_available(self) -> bool:
        """True."""
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """1.0 per candidate."""
        return [1.0] * len(candidates)

    def __repr__(self) -> str:
        return "NoopReranker()"


def load(spec: Spec) -> NoopReranker:
    """The reranker; it takes no options."""
    return NoopReranker()

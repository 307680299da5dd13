"""Providers that are loaded when they are first needed, or ahead of time by :meth:`warmup`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from rag_core.embedding import FIRST_TEXT
from rag_core.factory import get_embedder, get_reranker, resolve
from rag_core.fingerprint import Fingerprint
from rag_core.progress import Progress, listening, tell
from rag_core.protocols import Role, Target, Vectors
from rag_core.registry import EMBEDDERS, RERANKERS
from rag_core.secrets import safe_repr

__all__ = ["LazyEmbedder", "LazyReranker"]

T = TypeVar("T")


class _Lazy(Generic[T]):
    """One value that is made once, by the first thread that needs it; the others wait for it.

    A failure reaches the caller and leaves nothing behind: the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._value: T | None = None
        self.is_warm = False

    @property
    def is_loaded(self) -> bool:
        return self._value is not None

    def get(self) -> T:
        if self._value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._make()
        return self._value

    def warm(self, first_call: Callable[[T], object], progress: Progress | None) -> None:
        with listening(progress):
            tell("load", 0, 2)
            value = self.get()
            tell("first call", 1, 2)
            first_call(value)
            self.is_warm = True
            tell("ready", 2, 2)


class LazyEmbedder:
    """An :class:`~rag_core.protocols.EmbedProvider` whose model is loaded at the first need.

    Whether the provider can run here is asked at once, so that a wrong name or a missing package does not
    wait for the first request. ``name``, ``model`` and ``target`` need no model; ``fingerprint``, ``dim``
    (where the table does not know it) and everything that computes load it.
    """

    def __init__(self, text: str, env: Mapping[str, str] | None = None) -> None:
        """``text``: a spec string.

        Raises:
            SpecStringError, UnknownNameError, ProviderUnavailableError: as :func:`rag_core.factory.resolve`.
        """
        spec, _ = resolve(EMBEDDERS, text, env)
        self.name, self.model = spec.name, spec.model
        self.target: Target = spec.target
        self.is_local = spec.target != "api"
        self._dim = spec.dim
        self._lazy = _Lazy(lambda: get_embedder(text, env))

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded and has answered once."""
        return self._lazy.is_warm

    def warmup(self, progress: Progress | None = None) -> None:
        """Load the model and make its first call; ``progress(stage, done, total)`` is told about it.

        Raises:
            RagCoreError: the load or the call failed; another try starts from the beginning.
        """
        self._lazy.warm(lambda embedder: embedder.embed([FIRST_TEXT], role="query"), progress)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self._lazy.get().dim if self._lazy.is_loaded or not self._dim else self._dim

    @property
    def max_tokens(self) -> int:
        """Longest input in tokens; 0 where there is no limit."""
        return self._lazy.get().max_tokens

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors."""
        return self._lazy.get().fingerprint

    def is_available(self) -> bool:
        """Whether the model is loaded or may be expected to load."""
        return self._lazy.get().is_available() if self._lazy.is_loaded else True

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """See :class:`rag_core.protocols.EmbedProvider`."""
        vectors = self._lazy.get().embed(texts, role=role)
        self._lazy.is_warm = self._lazy.is_warm or bool(vectors.any())
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model would see it, before truncation."""
        return self._lazy.get().count_tokens(texts)

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target, ready=self.is_ready)


class LazyReranker:
    """A :class:`~rag_core.protocols.Reranker` whose model is loaded at the first need."""

    def __init__(self, text: str, env: Mapping[str, str] | None = None) -> None:
        """``text``: a spec string; errors as of :class:`LazyEmbedder`."""
        spec, _ = resolve(RERANKERS, text, env)
        self.name, self.model = spec.name, spec.model
        self.target: Target = spec.target
        self._lazy = _Lazy(lambda: get_reranker(text, env))

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded and has answered once."""
        return self._lazy.is_warm

    def warmup(self, progress: Progress | None = None) -> None:
        """Load the model and score one pair; errors as of :meth:`LazyEmbedder.warmup`."""
        self._lazy.warm(lambda reranker: reranker.rerank(FIRST_TEXT, [FIRST_TEXT]), progress)

    @property
    def fingerprint(self) -> str:
        """Name, model and settings in one string."""
        return self._lazy.get().fingerprint

    def is_available(self) -> bool:
        """Whether the model is loaded or may be expected to load."""
        return self._lazy.get().is_available() if self._lazy.is_loaded else True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """See :class:`rag_core.protocols.Reranker`."""
        scores = self._lazy.get().rerank(query, candidates)
        self._lazy.is_warm = self._lazy.is_warm or bool(scores)
        return scores

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target, ready=self.is_ready)

"""The five seams of the library. Anything that satisfies one of these can be plugged in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_core.fingerprint import Fingerprint
from rag_core.types import Query, Ranking, Run

__all__ = [
    "Elsewhere",
    "EmbedProvider",
    "Reranker",
    "Retriever",
    "Role",
    "Target",
    "VectorStore",
    "Vectors",
]

Role = Literal["query", "document"]
Target = Literal["api", "mlx", "nvidia", "cpu"]
Vectors = NDArray[np.float32]
#: Calls what it is given, on another machine maybe, and returns when that is done; raises what it raises.
Elsewhere = Callable[[Callable[[], None]], None]


@runtime_checkable
class EmbedProvider(Protocol):
    """Turns texts into vectors.

    A provider may also have ``warmup(progress)``, which loads the model and makes its first call ahead of
    the first request, and ``is_ready``, which tells whether that has happened; those of this project do.
    """

    name: str
    model: str
    target: Target
    is_local: bool
    dim: int
    max_tokens: int

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors."""
        ...

    def is_available(self) -> bool:
        """Whether a call can be expected to succeed; touches no network for a local provider."""
        ...

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts``.

        Returns:
            float32 of shape ``(len(texts), dim)``, C-contiguous; row i belongs to text i and has
            length 1. A blank text (empty or white space only) is never sent to the model: its row
            is all zeros. ``[]`` gives shape ``(0, dim)``.

        Raises:
            ProviderError: the call failed; nothing partial is returned.
        """
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model would see it, before truncation."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores candidates against a query."""

    name: str
    model: str
    target: Target

    @property
    def fingerprint(self) -> str:
        """Name, model and settings in one string; stands in every result."""
        ...

    def is_available(self) -> bool:
        """Whether a call can be expected to succeed."""
        ...

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """One raw score per candidate, in input order; higher is better. ``[]`` gives ``[]``."""
        ...


@runtime_checkable
class VectorStore(Protocol):
    """Keeps vectors under document ids, for one embedder.

    A store may also have ``vectors_of(ids)``, the stored rows as float32 ``(n, dim)`` with KeyError for an
    unknown id, so that an index need not embed a text again; and ``search_many(vectors, k, where)``, the
    rankings that ``search`` gives for each row. Those of this project have the first, ``flat`` has both.

    An index asks two more things of a store, where it has them: ``missing(ids)``, those that no row has, to
    see that nothing was lost (the databases have it); and the attribute ``is_snapshot``, true where an open
    store keeps showing what it held when it was opened (as ``flat`` does). One that has work to do after a
    write, such as ``lancedb`` with its index, has ``bulk(elsewhere=None)``, a context in which that is done
    once, after the last write; ``elsewhere`` (an :data:`Elsewhere`) may move it to another machine.
    """

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder whose vectors are stored."""
        ...

    def upsert(
        self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Insert or replace rows; all of them or none."""
        ...

    def search(self, vector: Vectors, k: int, where: Mapping[str, Any] | None = None) -> Ranking:
        """The ``k`` nearest rows by cosine; fewer when the store holds fewer. ``k`` from 1."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Remove rows; returns how many there were. Unknown ids are no error."""
        ...

    def count(self) -> int:
        """Rows stored."""
        ...

    def close(self) -> None:
        """Release files; further calls are errors."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Answers queries with rankings. BM25, vector, hybrid and reranked retrieval all fit."""

    name: str

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` documents of each query. A query that fails stands in ``Run.failed``."""
        ...

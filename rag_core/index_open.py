"""Everything that an open index answers without writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from rag_core.bm25 import BM25
from rag_core.fingerprint import Fingerprint
from rag_core.index_files import MANIFEST, Manifest
from rag_core.index_journal import Journal
from rag_core.index_search import RerankTimer, SearchResult, Settings, search_version
from rag_core.index_table import EMPTY, FAILED
from rag_core.index_view import StoreView, Version
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.types import Document

__all__ = ["OpenIndex"]


class OpenIndex:
    """One version of an index folder; see :class:`rag_core.index.Index`, which also writes."""

    def __init__(
        self, path: Path, version: Version, embedder: EmbedProvider | None, reranker: Reranker | None
    ) -> None:
        self.path, self._version = path, version
        self.embedder, self.reranker = embedder, reranker
        self._timer = RerankTimer()

    @staticmethod
    def is_index(path: str | Path) -> bool:
        """Whether the folder ``path`` holds an index."""
        return (Path(path) / MANIFEST).is_file()

    @classmethod
    def open(
        cls,
        path: str | Path,
        embedder: EmbedProvider | None = None,
        *,
        reranker: Reranker | None = None,
        check_store: bool = True,
    ) -> Self:
        """Open the index in ``path``. Without an embedder, searches use BM25 alone and say so.

        An embedder over a chain of providers (one that has ``for_identity``) is held to those of them that
        the index was built with; while none of these can answer, searches use BM25 alone and say so.

        Args:
            check_store: False opens an index whose vector store has lost rows or cannot be opened, so that
                it can be rebuilt from its texts; searches may then find too little.

        Raises:
            StoreError: no index there, or it is damaged.
            IdentityMismatchError: it was built with another embedder; nothing has been embedded yet.
        """
        path = Path(path)
        if embedder is not None and (for_identity := getattr(embedder, "for_identity", None)):
            embedder = cast(EmbedProvider, for_identity(Manifest.read(path).identity))
        wanted = embedder.fingerprint if embedder is not None else None
        return cls(path, Version.open(path, wanted, check=check_store), embedder, reranker)

    @property
    def documents(self) -> Mapping[str, Document]:
        """id -> document; each is read when it is asked for."""
        return self._version.documents

    @property
    def store(self) -> StoreView:
        """The vector leg, as this version sees it."""
        return self._version.store

    @property
    def bm25(self) -> BM25:
        """The lexical leg."""
        return self._version.bm25

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder that built the index."""
        return self._version.manifest.identity

    @property
    def store_name(self) -> str:
        """Name of the vector store."""
        return self._version.manifest.store

    @property
    def generation(self) -> int:
        """Number of the version that is open; each one that is written has one more."""
        return self._version.manifest.generation

    @property
    def failed(self) -> Mapping[str, str]:
        """id -> why its newest form has no vector. An ingest that brings it again tries again."""
        return dict(self._version.manifest.failed)

    @property
    def is_partial(self) -> bool:
        """Whether there are documents that could not be embedded."""
        return bool(self._version.manifest.failed)

    def __len__(self) -> int:
        return len(self.documents)

    def digest(self) -> str:
        """64 hexadecimal digits over ids, texts, titles, metadata, vectors and failures.

        Equal for two indexes that answer alike, however they came about: in one run, in many, or after
        crashes. (A model whose rounding depends on the batch makes it differ.)
        """
        return self._version.digest()

    def stats(self) -> dict[str, Any]:
        """What is in the index, as plain JSON; ``pending`` vectors wait for an ingest to be run again."""
        version = self._version
        files = [found for found in self.path.rglob("*") if found.is_file()]
        return {
            "path": str(self.path),
            "generation": self.generation,
            "store": self.store_name,
            "documents": len(self),
            "searchable": version.store.count(),
            "empty": version.table.count(EMPTY),
            "without_vector": version.table.count(FAILED),
            "failed": dict(self.failed),
            "pending": len(Journal(self.path, self.identity, read_only=True)),
            "size_bytes": sum(found.stat().st_size for found in files if found.exists()),
            "identity": self.identity.as_dict(),
            "lexical": version.bm25.describe(),
        }

    def refresh(self) -> bool:
        """Move to the version in force; returns whether it is another one than before.

        Raises:
            IdentityMismatchError: the index has been rebuilt with another embedder.
        """
        found = self._version.newest(self.path, self.embedder.fingerprint if self.embedder else None)
        changed = found is not self._version
        self._version = found
        return changed

    def hybrid_search(
        self,
        query: str,
        top_k: int = 10,
        *,
        candidate_pool: int = 50,
        rrf_k: float = 60.0,
        rerank: bool = True,
        reranker: Reranker | None = None,
        rerank_mix: str = "scores",
        where: Mapping[str, Any] | None = None,
        score_threshold: float | None = None,
        rerank_template: str | None = None,
        rerank_timeout_s: float | None = None,
        fusion: str = "rrf",
        pipeline: str = "hybrid",
        weights: Sequence[float] | None = None,
    ) -> SearchResult:
        """Vectors and BM25, ``candidate_pool`` documents each, fused, reranked, cut to ``top_k``.

        A leg or a reranker that fails leaves a warning and the order of the stages that worked; a failed
        vector leg, ``degraded`` in the result as well. A blank query finds nothing.

        Args:
            rerank: False skips the reranker.
            reranker: used in place of the index's own; with neither, the fused order stands.
            rerank_mix: ``scores`` orders the pool by the reranker's scores alone; ``ranks`` by rank fusion
                (constant ``rrf_k``) of its order with the fused one, see
                :func:`rag_core.reranking.interpolate`.
            where: metadata filter on both legs, see :mod:`rag_core.filters`.
            score_threshold: drops hits whose score is below it, so that fewer than ``top_k`` return: the
                reranker's score where it ran, whatever the mix, else the final one. `bench run` suggests one
                per reranker, which does not carry over to another model, dtype, engine or window.
            rerank_template: the text that the reranker reads, for example ``"{title} ({date})\\n{text}"``:
                ``id``, ``title``, ``text`` and fields of the metadata; a field that a document lacks is
                empty. None gives title and text.
            rerank_timeout_s: seconds that the reranker may take; after them the fused order stands, with a
                warning. None for no limit.
            fusion: one of :data:`rag_core.fusion.METHODS`. ``rrf`` reads ranks alone; ``adaptive`` weighs
                the legs anew for every query, so that fusion does not lose the better one, and reads
                200 documents of each leg at least. The result's ``fusion`` and each hit's ``parts`` say why.
            pipeline: ``hybrid``; or one leg alone, ``vector`` or ``bm25``, which embeds nothing. BM25 stands
                in for vectors that fail, with a warning.
            weights: of the legs, vectors then BM25; None leaves them equal. ``adaptive`` multiplies
                them into its own.

        Raises:
            UnknownNameError: no fusion method of that name.
            InvalidArgumentError: ``top_k`` or ``candidate_pool`` below 1, bad ``rrf_k``, ``rerank_mix``,
                ``where``, ``rerank_template``, ``rerank_timeout_s``, ``pipeline`` or ``weights``.
        """
        settings = Settings(
            top_k,
            candidate_pool,
            rrf_k,
            rerank_mix,
            where,
            score_threshold,
            rerank_template,
            rerank_timeout_s,
            fusion,
            pipeline,
            weights,
        )
        chosen = (reranker or self.reranker) if rerank else None
        return search_version(self._version, query, settings, self.embedder, chosen, self._timer)

    def close(self) -> None:
        """Release the store's files."""
        self._version.close()

"""Retrievers that wrap one another: vectors, several legs fused, candidates reranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rag_core.errors import InvalidArgumentError, RagCoreError
from rag_core.fusion import Leg, check_method, fuse, reading_depth
from rag_core.protocols import EmbedProvider, Reranker, Retriever, Vectors, VectorStore
from rag_core.reranking import check_mix, interpolate, rerank_ranking
from rag_core.stores.identity import check_identity
from rag_core.types import EMPTY_RANKING, Query, Ranking, Run, check_k

__all__ = ["HybridRetriever", "RerankedRetriever", "VectorRetriever"]


class VectorRetriever:
    """Nearest neighbours of the query's vector.

    Raises:
        IdentityMismatchError: the store was built by another embedder; before anything is embedded.
    """

    #: The least cosine.
    floor = -1.0

    def __init__(self, embedder: EmbedProvider, store: VectorStore) -> None:
        check_identity(store, store.identity, embedder.fingerprint)
        self.embedder, self.store = embedder, store
        self.name = f"vector:{embedder.name}"

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The ``k`` nearest documents of each query; a blank query finds nothing."""
        check_k(k)
        rankings: dict[str, Ranking] = {}
        failed: dict[str, str] = {}
        vectors: dict[str, Vectors] = {}
        search_many = getattr(self.store, "search_many", None) if len(queries) > 1 else None
        for query in queries:
            try:
                vector = self.embedder.embed([query.text], role="query")[0]
                if search_many is None:
                    rankings[query.query_id] = self.store.search(vector, k, where)
                else:
                    vectors[query.query_id] = vector
            except RagCoreError as error:
                if isinstance(error, InvalidArgumentError):
                    raise
                failed[query.query_id] = str(error)
        if search_many is not None and vectors:
            try:
                rankings = dict(zip(vectors, search_many(np.stack(list(vectors.values())), k, where)))
            except RagCoreError as error:
                if isinstance(error, InvalidArgumentError):
                    raise
                failed |= dict.fromkeys(vectors, str(error))
        return Run(self.name, rankings, failed)


class HybridRetriever:
    """Legs searched and fused, by reciprocal ranks of ``pool`` documents each unless ``fusion`` is given.

    ``fusion`` is one of :data:`rag_core.fusion.METHODS`; :func:`~rag_core.fusion.reading_depth` of it and
    ``pool`` tells how many documents each leg is asked for. A leg with a method ``evidence``, as
    :class:`~rag_core.bm25.BM25` has one, tells ``adaptive`` what its index knows of the query.

    A query on which one leg fails counts as failed: a benchmark that went on with the other leg
    would measure another system. With ``degrade``, as an application wants it, the other legs answer and
    the query stands in ``Run.degraded``; it fails only where all of them do.
    """

    def __init__(
        self,
        legs: Sequence[Retriever],
        pool: int = 50,
        rrf_k: float = 60.0,
        weights: Sequence[float] | None = None,
        *,
        fusion: str = "rrf",
        degrade: bool = False,
    ) -> None:
        check_method(fusion)
        if not legs:
            raise InvalidArgumentError("HybridRetriever has no legs; accepted: one or more retrievers")
        check_k(pool)
        self.legs, self.rrf_k, self.weights = list(legs), rrf_k, weights
        self.depth = reading_depth(fusion, pool)
        self.fusion, self.degrade = fusion, degrade
        kind = "hybrid" if fusion == "rrf" else f"hybrid {fusion}"
        self.name = f"{kind}({', '.join(leg.name for leg in legs)})"

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` of the fused legs."""
        check_k(k)
        runs = [leg.search(queries, self.depth, where) for leg in self.legs]
        failed = {query_id: reason for run in runs for query_id, reason in run.failed.items()}
        degraded = {query_id: reason for run in runs for query_id, reason in run.degraded.items()}
        if self.degrade:
            for query_id in [q for q in failed if not all(q in run.failed for run in runs)]:
                names = ", ".join(run.name for run in runs if query_id in run.failed)
                degraded[query_id] = f"without {names}: {failed.pop(query_id)}"
        rankings = {}
        for query in queries:
            if query.query_id not in failed:
                lists = [run.rankings.get(query.query_id, EMPTY_RANKING) for run in runs]
                legs = [self._leg(leg, query, found, where) for leg, found in zip(self.legs, lists)]
                fused = fuse(legs, self.fusion, k=self.rrf_k, weights=self.weights)
                rankings[query.query_id] = fused.ranking.top(k)
        return Run(self.name, rankings, failed, degraded)

    def _leg(self, leg: Retriever, query: Query, found: Ranking, where: Mapping[str, Any] | None) -> Leg:
        evidence = getattr(leg, "evidence", None)
        if self.fusion == "rrf" or evidence is None:
            return Leg(leg.name, found, depth=self.depth, floor=getattr(leg, "floor", None))
        return Leg(leg.name, found, evidence(query, found, where), self.depth)


class RerankedRetriever:
    """The first ``pool`` documents of another retriever, in the order of a reranker.

    ``text_of`` gives the text of a document id as the reranker should read it. With ``rerank_mix``
    ``ranks`` the reranker's order is fused with the other retriever's instead of replacing it.

    Raises:
        InvalidArgumentError: ``pool`` below 1 or unknown ``rerank_mix``.
    """

    def __init__(
        self,
        inner: Retriever,
        reranker: Reranker,
        text_of: Callable[[str], str],
        pool: int = 50,
        *,
        rerank_mix: str = "scores",
    ) -> None:
        check_k(pool)
        check_mix(rerank_mix)
        self.inner, self.reranker, self.text_of, self.pool = inner, reranker, text_of, pool
        self.rerank_mix = rerank_mix
        self.name = f"{inner.name}+{reranker.name}" + ("+rrf" if rerank_mix == "ranks" else "")

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` of the reranked pool. Queries on which the reranker fails stand in ``failed``."""
        check_k(k)
        candidates = self.inner.search(queries, self.pool, where)
        failed = dict(candidates.failed)
        rankings = {}
        for query in queries:
            fused = candidates.rankings.get(query.query_id)
            if fused is None:
                continue
            try:
                texts = [self.text_of(doc_id) for doc_id in fused.doc_ids]
                ranking = rerank_ranking(self.reranker, query.text, fused, texts).ranking
                if self.rerank_mix == "ranks":
                    ranking = interpolate(fused, ranking)
                rankings[query.query_id] = ranking.top(k)
            except RagCoreError as error:
                failed[query.query_id] = str(error)
        return Run(self.name, rankings, failed, candidates.degraded)

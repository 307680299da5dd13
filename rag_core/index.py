"""One folder that answers questions: texts, vectors, BM25 and the identity of the embedder."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.errors import InvalidArgumentError, RagCoreError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.fusion import rrf
from rag_core.protocols import EmbedProvider, Reranker, VectorStore
from rag_core.reranking import check_mix, interpolate, rerank_ranking
from rag_core.stores import create_store, open_store
from rag_core.stores.identity import check_k
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking

__all__ = ["Hit", "Index", "SearchResult"]

FORMAT = 1
MANIFEST = "index.json"
DOCUMENTS = "documents.jsonl"
BATCH = 64


@dataclass(frozen=True, slots=True)
class Hit:
    """One document found.

    Attributes:
        document: id, text, title, metadata.
        score: of the last stage that ordered it.
        source: ``vector``, ``bm25``, ``hybrid`` or ``hybrid+rerank``: the stages that placed it.
        ranks: stage -> rank from 1, of those that found it (``vector``, ``bm25``, ``fused``, ``rerank``, and
            ``mixed`` where the reranker's ranks were fused with the ``fused`` ones).
        scores: stage -> score, likewise.
    """

    document: Document
    score: float
    source: str
    ranks: Mapping[str, int]
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """Hits, best first, with what went wrong on the way.

    Attributes:
        hits: best first.
        warnings: what a reader must know.
        seconds: stage -> seconds it took.
        degraded: why the vectors could not be searched, so that BM25 alone answered; empty where they were.
    """

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    degraded: str = ""

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]


class Index:
    """Documents with their vectors and BM25 postings, opened with the embedder that built it.

    >>> from rag_core import Document, get_embedder
    >>> index = Index.build(folder, [Document("d1", "The ferry leaves at nine.")], get_embedder("fake"))
    >>> index.hybrid_search("ferry")[0].document.doc_id
    'd1'
    """

    def __init__(
        self,
        path: Path,
        documents: Mapping[str, Document],
        store: VectorStore,
        bm25: BM25,
        embedder: EmbedProvider | None,
        reranker: Reranker | None,
    ) -> None:
        self.path, self.documents, self.store, self.bm25 = path, documents, store, bm25
        self.embedder, self.reranker = embedder, reranker

    @classmethod
    def build(
        cls,
        path: str | Path,
        documents: Iterable[Document],
        embedder: EmbedProvider,
        *,
        reranker: Reranker | None = None,
        store: str = "flat",
        analyser: Analyser | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Index:
        """Embed and index ``documents`` into the new folder ``path``, whole or not at all.

        An empty document stays a known id, is not sent to the embedder and is never a hit.

        Args:
            progress: called with (documents embedded, documents in all).

        Raises:
            StoreError: ``path`` exists and is not an empty folder.
            InvalidArgumentError: two documents have the same id.
            ProviderError: the embedder failed; nothing is left behind.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError(f"{path} exists and is not an empty folder; choose another, or delete it first")
        known: dict[str, Document] = {}
        for document in documents:
            if document.doc_id in known:
                raise InvalidArgumentError(
                    f"document id {document.doc_id!r} stands twice; ids must be distinct"
                )
            known[document.doc_id] = document
        path.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.building-"))
        try:
            filled = [document for document in known.values() if not document.is_empty]
            vectors = create_store(store, building / "vectors", embedder.fingerprint)
            _embed_into(vectors, filled, embedder, progress)
            vectors.close()
            BM25.build(known.values(), analyser=analyser).save(building / "bm25")
            _write_documents(building / DOCUMENTS, known.values())
            manifest = {"format": FORMAT, "store": store, "identity": embedder.fingerprint.as_dict()}
            (building / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            if path.exists():
                path.rmdir()
            building.rename(path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return cls.open(path, embedder, reranker=reranker)

    @classmethod
    def open(
        cls,
        path: str | Path,
        embedder: EmbedProvider | None = None,
        *,
        reranker: Reranker | None = None,
    ) -> Index:
        """Open the index in ``path``. Without an embedder, searches use BM25 alone and say so.

        An embedder over a chain of providers (one that has ``for_identity``) is held to those of them that
        the index was built with; while none of these can answer, searches use BM25 alone and say so.

        Raises:
            StoreError: no index there, or it is damaged.
            IdentityMismatchError: it was built with another embedder; nothing has been embedded yet.
        """
        path = Path(path)
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                raise StoreError(f"{path}: index format {manifest['format']!r}; accepted: {FORMAT}")
            if embedder is not None and (for_identity := getattr(embedder, "for_identity", None)):
                embedder = cast(EmbedProvider, for_identity(Fingerprint.from_dict(manifest["identity"])))
            wanted = embedder.fingerprint if embedder is not None else None
            store = open_store(manifest["store"], path / "vectors", wanted)
            documents = {document.doc_id: document for document in _read_documents(path / DOCUMENTS)}
        except FileNotFoundError as error:
            raise StoreError(f"{path} holds no index: {error.filename} is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, RagCoreError):
                raise
            raise StoreError(f"{path} is damaged: {error}; build it again") from error
        return cls(path, documents, store, BM25.open(path / "bm25"), embedder, reranker)

    @property
    def identity(self) -> Fingerprint:
        """The fingerprint of the embedder that built the index."""
        return self.store.identity

    def __len__(self) -> int:
        return len(self.documents)

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
            where: metadata filter, see :mod:`rag_core.filters`.
            score_threshold: drops hits whose score is below it, so that fewer than ``top_k`` return: the
                reranker's score where it ran, whatever the mix, else the final one.

        Raises:
            InvalidArgumentError: ``top_k`` or ``candidate_pool`` below 1, bad ``rrf_k``, ``rerank_mix``
                or ``where``.
        """
        check_k(top_k)
        check_k(candidate_pool)
        check_mix(rerank_mix)
        warnings: list[str] = []
        seconds: dict[str, float] = {}
        degraded = ""
        asked = Query("query", query)
        stages: dict[str, Ranking] = {}
        raw_scores: dict[str, float] = {}
        started = time.perf_counter()
        if self.embedder is None:
            warnings.append("no embedder: BM25 alone")
        elif query.strip():
            try:
                vector = self.embedder.embed([query], role="query")[0]
                stages["vector"] = self.store.search(vector, candidate_pool, where)
            except RagCoreError as error:
                if isinstance(error, InvalidArgumentError):
                    raise
                degraded = f"the vector leg failed, BM25 alone: {error}"
                warnings.append(degraded)
            seconds["vector"] = time.perf_counter() - started
        started = time.perf_counter()
        stages["bm25"] = self.bm25.search([asked], candidate_pool, where).rankings.get("query", EMPTY_RANKING)
        seconds["bm25"] = time.perf_counter() - started
        started = time.perf_counter()
        legs = list(stages.values())
        stages["fused"] = final = rrf(legs, k=rrf_k) if len(legs) > 1 else legs[0]
        seconds["fusion"] = time.perf_counter() - started
        chosen = reranker or self.reranker
        if rerank and chosen is not None and final:
            started = time.perf_counter()
            pool = final.top(candidate_pool)
            try:
                texts = [self.documents[doc_id].indexed_text for doc_id in pool.doc_ids]
                again = rerank_ranking(chosen, query, pool, texts)
                stages["rerank"] = again.ranking
                raw_scores = again.raw
                warnings += again.warnings
            except RagCoreError as error:
                warnings.append(f"the reranker failed, the fused order stands: {error}")
            if rerank_mix == "ranks" and "rerank" in stages:
                stages["mixed"] = interpolate(pool, stages["rerank"], k=rrf_k)
            seconds["rerank"] = time.perf_counter() - started
        hits = _hits(self.documents, stages, raw_scores, score_threshold)[:top_k]
        return SearchResult(tuple(hits), tuple(warnings), seconds, degraded)

    def close(self) -> None:
        """Release the store's files."""
        self.store.close()


def _hits(
    documents: Mapping[str, Document],
    stages: Mapping[str, Ranking],
    raw_scores: Mapping[str, float],
    score_threshold: float | None,
) -> list[Hit]:
    """The reranked candidates, then the rest of the fused list, which the reranker has not seen."""
    fused = stages["fused"]
    placed = "mixed" if "mixed" in stages else "rerank"
    reranked = stages[placed].doc_ids if placed in stages else ()
    ranks = {stage: {d: i for i, d in enumerate(r.doc_ids, 1)} for stage, r in stages.items()}
    scores: dict[str, Mapping[str, float]] = {s: dict(zip(r.doc_ids, r.scores)) for s, r in stages.items()}
    if reranked:
        scores["rerank"] = raw_scores
    source = "hybrid" if "vector" in stages else "bm25"
    seen = set(reranked)
    hits = []
    for doc_id in (*reranked, *(d for d in fused.doc_ids if d not in seen)):
        last = placed if doc_id in seen else "fused"
        # a rank's score says nothing against a threshold that is meant for the reranker's scores
        held = scores["rerank" if doc_id in seen else "fused"][doc_id]
        if score_threshold is not None and (not held >= score_threshold or (reranked and last == "fused")):
            continue
        hits.append(
            Hit(
                documents[doc_id],
                scores[last][doc_id],
                f"{source}+rerank" if last == placed else source,
                {stage: found[doc_id] for stage, found in ranks.items() if doc_id in found},
                {stage: found[doc_id] for stage, found in scores.items() if doc_id in found},
            )
        )
    return hits


def _embed_into(
    store: VectorStore,
    documents: Sequence[Document],
    embedder: EmbedProvider,
    progress: Callable[[int, int], None] | None,
) -> None:
    import numpy as np

    parts = []
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        parts.append(embedder.embed([document.indexed_text for document in batch], role="document"))
        if progress is not None:
            progress(start + len(batch), len(documents))
    if parts:
        ids = [document.doc_id for document in documents]
        store.upsert(ids, np.concatenate(parts), [document.metadata for document in documents])


def _write_documents(path: Path, documents: Iterable[Document]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for d in documents:
            row = {"_id": d.doc_id, "title": d.title, "text": d.text, "metadata": dict(d.metadata)}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def _read_documents(path: Path) -> Iterable[Document]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            yield Document(row["_id"], row["text"], row["title"], row["metadata"])

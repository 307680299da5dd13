"""Vectors and BM25, fused, reranked: one search over one version of an index."""

from __future__ import annotations

import contextvars
import math
import string
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_core.errors import InvalidArgumentError, ProviderError, RagCoreError
from rag_core.filters import compile_where
from rag_core.fusion import Fused, Leg, check_method, fuse, reading_depth
from rag_core.index_view import Version
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.reranking import Reordered, check_mix, interpolate, rerank_ranking
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking, check_k

__all__ = ["PIPELINES", "Hit", "RerankTimer", "SearchResult", "Settings", "check_template", "search_version"]

#: Legs that answer: both, fused; or one of them alone. A reranker may follow each.
PIPELINES = ("hybrid", "vector", "bm25")


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
        parts: leg -> what it added to the ``fused`` score; empty where nothing was fused.
    """

    document: Document
    score: float
    source: str
    ranks: Mapping[str, int]
    scores: Mapping[str, float]
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """Hits, best first, with what went wrong on the way.

    Attributes:
        hits: best first.
        warnings: what a reader must know.
        seconds: stage -> seconds it took: ``embed`` (the query), ``vector``, ``bm25``, ``fusion``, ``texts``
            (of the candidates, for the reranker), ``rerank`` and ``hits`` (their texts again, and the rest).
        degraded: why the vectors could not be searched, so that BM25 alone answered; empty where they were.
        fusion: ``method``, ``weights`` of the legs and, where these were worked out for the query, ``why``;
            empty where nothing was fused.
    """

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    degraded: str = ""
    fusion: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search; see :meth:`rag_core.index.Index.hybrid_search`."""

    top_k: int = 10
    candidate_pool: int = 50
    rrf_k: float = 60.0
    rerank_mix: str = "scores"
    where: Mapping[str, Any] | None = None
    score_threshold: float | None = None
    rerank_template: str | None = None
    rerank_timeout_s: float | None = None
    fusion: str = "rrf"
    pipeline: str = "hybrid"
    weights: Sequence[float] | None = None

    def check(self) -> None:
        """Raise InvalidArgumentError for a value that is not accepted."""
        check_k(self.top_k)
        check_k(self.candidate_pool)
        check_mix(self.rerank_mix)
        check_method(self.fusion)
        if self.pipeline not in PIPELINES:
            raise InvalidArgumentError(f"pipeline {self.pipeline!r}; accepted: {', '.join(PIPELINES)}")
        if self.where:
            compile_where(self.where)
        if self.rerank_template is not None:
            check_template(self.rerank_template)
        limit = self.rerank_timeout_s
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise InvalidArgumentError(f"rerank_timeout_s is {limit}; accepted: seconds above 0, or None")


def check_template(template: str) -> list[str]:
    """The fields that ``template`` names.

    Raises:
        InvalidArgumentError: it names none, or holds something else than plain ``{field}``.
    """
    wanted = "plain fields in braces, such as '{title} ({source})\\n{text}'"
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InvalidArgumentError(f"rerank_template {template!r}: {error}; accepted: {wanted}") from error
    names = [(name, form, conversion) for _, name, form, conversion in parts if name is not None]
    for name, form, conversion in names:
        if not name.isidentifier() or form or conversion:
            raise InvalidArgumentError(f"rerank_template {template!r}: field {name!r}; accepted: {wanted}")
    if not names:
        raise InvalidArgumentError(f"rerank_template {template!r} names no field; accepted: {wanted}")
    return [name for name, _, _ in names]


def _templated(template: str | None, document: Document) -> str:
    """The text that the reranker reads; a field that the document lacks is empty."""
    if template is None:
        return document.indexed_text
    own = {"id": document.doc_id, "title": document.title, "text": document.text}
    values = {name: str(own.get(name, document.metadata.get(name, ""))) for name in check_template(template)}
    return template.format_map(values).strip()


class RerankTimer:
    """Runs a reranker under a time limit. What is late cannot be stopped: it runs on, its answer is lost.

    One late call at a time: the next one waits for it within its own limit, so that a model that has become
    slow is not also asked by many threads at once.
    """

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def call(self, work: Callable[[], Reordered], limit_s: float | None) -> Reordered:
        """What ``work`` answers.

        Raises:
            ProviderError: it took longer than ``limit_s``; or whatever ``work`` raises.
        """
        if limit_s is None:
            return work()
        until = time.monotonic() + limit_s
        late = ProviderError(f"it took longer than its limit of {limit_s:g} s")
        if not self._busy.acquire(timeout=limit_s):
            raise late
        answer: list[Reordered | BaseException] = []
        context = contextvars.copy_context()

        def run() -> None:
            try:
                answer.append(context.run(work))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller
                answer.append(error)
            finally:
                self._busy.release()

        # a daemon: a late reranker does not keep the process from ending
        thread = threading.Thread(target=run, name="rerank", daemon=True)
        thread.start()
        thread.join(max(0.0, until - time.monotonic()))
        if not answer:
            raise late
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]


def search_version(
    version: Version,
    query: str,
    settings: Settings,
    embedder: EmbedProvider | None,
    reranker: Reranker | None,
    timer: RerankTimer,
) -> SearchResult:
    """Search; see :meth:`rag_core.index.Index.hybrid_search`."""
    settings.check()
    warnings: list[str] = []
    seconds: dict[str, float] = {}
    degraded = ""
    stages: dict[str, Ranking] = {}
    raw_scores: dict[str, float] = {}
    pool_size, where = settings.candidate_pool, settings.where
    depth = reading_depth(settings.fusion, pool_size) if settings.pipeline == "hybrid" else pool_size
    started = time.perf_counter()
    if settings.pipeline == "bm25":
        pass  # the vectors have no part in it
    elif embedder is None:
        warnings.append("no embedder: BM25 alone")
    elif query.strip():
        try:
            vector = embedder.embed([query], role="query")[0]
            seconds["embed"] = time.perf_counter() - started
            started = time.perf_counter()
            stages["vector"] = version.store.search(vector, depth, where)
        except RagCoreError as error:
            if isinstance(error, InvalidArgumentError):
                raise
            degraded = f"the vector leg failed, BM25 alone: {error}"
            warnings.append(degraded)
        seconds["vector" if "embed" in seconds else "embed"] = time.perf_counter() - started
    if settings.pipeline != "vector" or "vector" not in stages:  # which stands in for vectors that failed
        started = time.perf_counter()
        found = version.bm25.search([Query("query", query)], depth, where)
        stages["bm25"] = found.rankings.get("query", EMPTY_RANKING)
        seconds["bm25"] = time.perf_counter() - started
    started = time.perf_counter()
    joined = _fuse(version, query, stages, settings, depth) if len(stages) > 1 else None
    stages["fused"] = final = joined.ranking if joined else next(iter(stages.values()))
    seconds["fusion"] = time.perf_counter() - started
    if reranker is not None and final:
        started = time.perf_counter()
        chosen, pool = reranker, final.top(pool_size)
        try:
            texts = [
                _templated(settings.rerank_template, version.documents[doc_id]) for doc_id in pool.doc_ids
            ]
            seconds["texts"] = time.perf_counter() - started
            started = time.perf_counter()
            again = timer.call(lambda: rerank_ranking(chosen, query, pool, texts), settings.rerank_timeout_s)
            stages["rerank"] = again.ranking
            raw_scores = again.raw
            warnings += again.warnings
        except RagCoreError as error:
            warnings.append(f"the reranker failed, the fused order stands: {error}")
        if settings.rerank_mix == "ranks" and "rerank" in stages:
            stages["mixed"] = interpolate(pool, stages["rerank"], k=settings.rrf_k)
        seconds["rerank"] = time.perf_counter() - started
    started = time.perf_counter()
    hits = _hits(version.documents, stages, raw_scores, settings.score_threshold, settings.top_k, joined)
    seconds["hits"] = time.perf_counter() - started
    described = joined.describe() if joined else {}
    return SearchResult(tuple(hits), tuple(warnings), seconds, degraded, described)


def _fuse(
    version: Version, query: str, stages: Mapping[str, Ranking], settings: Settings, depth: int
) -> Fused:
    """Both legs, of ``depth`` each, by the method of ``settings``; the index tells what it knows."""
    words = stages["bm25"]
    asked = Query("query", query)
    evidence = None if settings.fusion == "rrf" else version.bm25.evidence(asked, words, settings.where)
    legs = (Leg("vector", stages["vector"], depth=depth, floor=-1.0), Leg("bm25", words, evidence, depth))
    return fuse(legs, settings.fusion, k=settings.rrf_k, weights=settings.weights)


def _hits(
    documents: Mapping[str, Document],
    stages: Mapping[str, Ranking],
    raw_scores: Mapping[str, float],
    score_threshold: float | None,
    top_k: int,
    joined: Fused | None,
) -> list[Hit]:
    """The reranked candidates, then the rest of the fused list, which the reranker has not seen."""
    fused = stages["fused"]
    placed = "mixed" if "mixed" in stages else "rerank"
    reranked = stages[placed].doc_ids if placed in stages else ()
    ranks = {stage: {d: i for i, d in enumerate(r.doc_ids, 1)} for stage, r in stages.items()}
    scores: dict[str, Mapping[str, float]] = {s: dict(zip(r.doc_ids, r.scores)) for s, r in stages.items()}
    if reranked:
        scores["rerank"] = raw_scores
    source = "hybrid" if joined else "vector" if "vector" in stages else "bm25"
    seen = set(reranked)
    hits: list[Hit] = []
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
                joined.parts(doc_id) if joined else {},
            )
        )
        if len(hits) == top_k:
            break
    return hits

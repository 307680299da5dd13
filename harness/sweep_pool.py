"""Inside the processes of a candidate-pool sweep: freeze the fused lists once, then rerank them.

A reranker's score of a pair does not depend on the other candidates, so that the scores of the deepest pool
serve at every depth. Its time does depend on them: calls are timed anew at each depth, depths taking turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import RunSpec
from harness.metrics import evaluate, evaluated_queries
from harness.reranking import load_reranker
from harness.results import write_atomic
from harness.significance import paired_difference
from harness.stages import Job
from harness.sweep_plan import SweepSpec
from harness.sweep_result import Depth
from harness.timing import summary_s, timed
from rag_core.analysis import Analyser
from rag_core.errors import ProviderError
from rag_core.factory import get_embedder
from rag_core.fusion import rrf
from rag_core.lexical import get_lexical
from rag_core.reranking import reorder
from rag_core.stores import create_store
from rag_core.types import Query, Ranking

__all__ = ["METRICS", "TIMED_QUERIES", "freeze_pool", "measure_reranker"]

Emit = Callable[..., None]
METRICS = ("precision@5", "recall@5", "ndcg@10", "mrr@10")
MAIN = "ndcg@10"
#: Queries of which single calls are timed, at every depth.
TIMED_QUERIES = 20
CHUNK = 64


def freeze_pool(job: Mapping[str, Any], emit: Emit) -> None:
    """Fuse the provider's list and BM25's at the deepest pool; write ``job["pool"]``, judged queries only."""
    sweep = SweepSpec.from_dict(job["spec"])
    depth, provider = max(sweep.pools), sweep.pool_provider
    run = RunSpec(sweep.data, (provider,), k=depth, candidate_pool=depth)
    this = Job({"spec": run.as_dict(), "data": job["data"], "work": job["work"], "runs": "", "cells": []})
    documents = [document for document in this.dataset.documents if not document.is_empty]
    emit("progress", stage="pool: load", done=0, total=0)
    embedder = get_embedder(provider)
    store = create_store("flat", this.work / "pool-store", embedder.fingerprint)
    for start in range(0, len(documents), CHUNK):
        part = documents[start : start + CHUNK]
        vectors = embedder.embed([d.indexed_text for d in part], role="document")
        store.upsert([d.doc_id for d in part], vectors, [d.metadata for d in part])
        emit("progress", stage="pool: documents", done=start + len(part), total=len(documents))
    languages = (*this.dataset.languages, *this.dataset.query_languages)
    engine = get_lexical("bm25", documents, Analyser.for_languages(languages))
    judged = set(evaluated_queries(this.dataset.relevance))
    rankings = {}
    for query in this.queries:
        if query.query_id not in judged:
            continue
        where = this.where(query)
        vector = embedder.embed([query.text], role="query")[0]
        words = engine.search([query], depth, where).rankings[query.query_id]
        lists = [store.search(vector, depth, where), words]
        rankings[query.query_id] = list(rrf(lists).doc_ids[:depth])
    store.close()
    described = {"provider": provider, "model": embedder.model, "lexical": "bm25", "depth": depth}
    write_atomic(Path(job["pool"]), json.dumps({**described, "rankings": rankings}, ensure_ascii=False))
    emit("pool", values={**described, "n_queries": len(rankings)})


def measure_reranker(job: Mapping[str, Any], emit: Emit) -> None:
    """Score the frozen pool with ``job["label"]``; events: ``reranker``, ``progress``, ``depth`` for each.

    Raises:
        ProviderError: the reranker cannot be loaded, or fails on a query.
    """
    sweep = SweepSpec.from_dict(job["spec"])
    run = RunSpec(sweep.data, ("fake",))
    this = Job({"spec": run.as_dict(), "data": job["data"], "work": job["work"], "runs": "", "cells": []})
    pool: dict[str, list[str]] = json.loads(Path(job["pool"]).read_text(encoding="utf-8"))["rankings"]
    loaded = load_reranker(job["label"], this.dataset.languages)
    if isinstance(loaded, str):
        raise ProviderError(loaded)
    reranker, warnings = loaded
    emit(
        "reranker",
        values={
            "model": reranker.model,
            "fingerprint": reranker.fingerprint,
            "target": reranker.target,
            "runtime": dict(getattr(reranker, "runtime", {})),
            "warnings": warnings,
        },
    )
    texts = {document.doc_id: document.indexed_text for document in this.dataset.documents}
    queries = [query for query in this.queries if pool.get(query.query_id)]
    scores: dict[str, list[float]] = {}
    for done, query in enumerate(queries):
        emit("progress", stage="scores", done=done, total=len(queries))
        scores[query.query_id] = reranker.rerank(query.text, [texts[d] for d in pool[query.query_id]])
    samples = _time(reranker.rerank, queries, pool, texts, sweep.pools, emit)
    for depth in sweep.pools:
        emit("depth", values=asdict(_judged(depth, pool, scores, this, samples[depth], sweep.seed)))


def _time(
    call: Callable[[str, list[str]], list[float]],
    queries: Sequence[Query],
    pool: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
    depths: Sequence[int],
    emit: Emit,
) -> dict[int, list[float]]:
    """Seconds of one call per query and depth; queries spread over the data set."""
    step = max(1, len(queries) // TIMED_QUERIES)
    chosen = queries[::step][:TIMED_QUERIES]
    samples: dict[int, list[float]] = {depth: [] for depth in depths}
    for done, query in enumerate(chosen):
        emit("progress", stage="times", done=done, total=len(chosen))
        turn = done % len(depths)
        for depth in (*depths[turn:], *depths[:turn]):
            candidates = [texts[doc_id] for doc_id in pool[query.query_id][:depth]]
            samples[depth].append(timed(lambda c=candidates, q=query: call(q.text, c))[1])  # type: ignore[misc]
    return samples


def _judged(
    depth: int,
    pool: Mapping[str, Sequence[str]],
    scores: Mapping[str, Sequence[float]],
    this: Job,
    samples_s: list[float],
    seed: int,
) -> Depth:
    grades = this.dataset.relevance
    before, after, oracle = {}, {}, {}
    for query_id, given in scores.items():
        ids = pool[query_id][:depth]
        fused = Ranking.from_scores((doc_id, float(len(ids) - i)) for i, doc_id in enumerate(ids))
        before[query_id] = list(ids)
        after[query_id] = list(reorder(fused, given[:depth]).ranking.doc_ids)
        # sorted() is stable: among equal grades the fused order stands
        oracle[query_id] = sorted(ids, key=lambda doc_id: -grades[query_id].get(doc_id, 0))
    values = [evaluate(run, grades, METRICS) for run in (before, after, oracle)]
    means = [{name: float(np.mean(v)) if len(v) else None for name, v in run.items()} for run in values]
    difference: dict[str, float | None] | None = None
    points_per_ms = None
    p50_s = summary_s(samples_s)["p50_s"]
    if len(values[0][MAIN]):
        found = paired_difference(values[1][MAIN], values[0][MAIN], seed=seed)
        difference = {"mean": found.mean, "low": found.low, "high": found.high, "p_value": found.p_value}
        points_per_ms = 100 * found.mean / (p50_s * 1000) if p50_s else None
    return Depth(depth, means[0], means[1], means[2], difference, samples_s, p50_s, points_per_ms)

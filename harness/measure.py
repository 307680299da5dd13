"""Inside a measuring process: embed, search, fuse, rerank, judge, and count the seconds of each stage."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.audit import audit, prefix_comparison
from harness.datasets import Dataset
from harness.digests import model_hashes
from harness.environment import PACKAGES
from harness.fusing import FusedLists, Lexical, fuse_lists, keep_legs
from harness.parity import RULES, cosines
from harness.paying import announce_corpus, rerank_within
from harness.replaying import unclocked
from harness.reranking import Reranked, load_reranker
from harness.results import NOT_FUSED as NONE
from harness.results import CellKey, CellResult, file_name
from harness.spending import Meter, Spending, is_replayed
from harness.stages import Job, language_warning, stat
from harness.store_recall import store_recall
from harness.thresholds import record
from harness.timing import timed
from harness.variants import SELF_CHECK, save_vectors
from rag_core.analysis import Analyser
from rag_core.errors import BudgetExceededError, InvalidArgumentError, RagCoreError
from rag_core.factory import resolve
from rag_core.lexical import get_lexical
from rag_core.protocols import EmbedProvider, Reranker, Vectors
from rag_core.registry import EMBEDDERS, Spec, load_attribute
from rag_core.stores import create_store
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking

__all__ = ["measure_lexical", "measure_provider"]

Emit = Callable[..., None]
#: Documents handed to a provider in one call while the corpus is embedded.
CHUNK = 64
#: Documents embedded a second time, alone, to see whether their neighbours changed the vector.
SELF_CHECK_DOCUMENTS = 8
#: Quantised weights are held to what half floats reach alone and in a batch.
COARSE = RULES["fp16"]
#: The store that searches row by row: others are compared with its answer.
EXACT_STORE = "flat"
TIE_RULE = "score descending, then document id descending"


def measure_lexical(job: Mapping[str, Any], emit: Emit) -> None:
    """The BM25 leg: index, search every query, keep the lists for the hybrid cells, judge its own cell."""
    this = Job(job)
    spec, dataset = this.spec, this.dataset
    languages = (*dataset.languages, *dataset.query_languages)
    analyser = Analyser.raw() if spec.analyser == "raw" else Analyser.for_languages(languages)
    engine, build_s = timed(
        lambda: get_lexical(spec.lexical, dataset.documents, analyser, k1=spec.k1, b=spec.b)
    )

    def call(query: Query) -> Ranking:
        return engine.search([query], this.depth, this.where(query)).rankings[query.query_id]

    found = this.time_queries(call)
    lexical = Lexical.of(this, engine, found)
    lexical.write(this.work / "lexical.json")
    described = lexical.described
    stored = sum(not document.is_empty for document in dataset.documents)
    base = CellResult(
        this.wanted[0] if this.wanted else CellKey(*[""] * 7),
        "ok",
        model=described["engine"],
        settings=_settings(this, {"bm25": described}),
        counts=_document_counts(dataset),
        speed={"build_s": build_s, "docs_per_s": stored / build_s if build_s else None},
    )
    for key in this.wanted:
        emit("cell", cell=_plain(this.cell(key, found.rankings, found.failed, {"bm25": found}, base)))


def measure_provider(job: Mapping[str, Any], emit: Emit) -> None:
    """One embedding provider: cold start, corpus, queries, then every store, pipeline and reranker."""
    this = Job(job)
    lexical = Lexical.read(this.work / "lexical.json") if job["needs_lexical"] else None
    spec, parsed = resolve(EMBEDDERS, job["provider"])
    _, import_s = timed(lambda: _import(spec))
    embedder, load_s = timed(lambda: EMBEDDERS.create(spec, **parsed.options))
    documents = [document for document in this.dataset.documents if not document.is_empty]
    spending = Spending(this.spec.max_usd, job.get("spent_usd", 0.0), lambda usd: emit("spent", usd=usd))
    meter, embedder = spending.watch(embedder, "embed")
    announce_corpus(this, documents, spending, meter, emit)
    first = next((query.text for query in this.queries if query.text.strip()), "first call")
    _, first_call_s = timed(lambda: embedder.embed([first], role="query"))
    tokens_before, before = stat(embedder, "tokens"), meter.now()
    vectors, embed_s = _embed_corpus(embedder, documents, emit)
    meter.documents, meter.document_units = len(documents), meter.now().units - before.units
    meter.document_s = embed_s
    truncated, tokens = stat(embedder, "truncated"), stat(embedder, "tokens") - tokens_before
    warnings = language_warning(spec.name, spec.languages, this.dataset.languages)
    fingerprint = embedder.fingerprint
    runtime = dict(getattr(embedder, "runtime", {}))
    checked, unstable = _self_check(embedder, documents, vectors)
    warnings += unstable
    base = CellResult(
        CellKey(*[""] * 7),
        "ok",
        model=embedder.model,
        fingerprint=fingerprint.as_dict() | {"digest": fingerprint.digest},
        settings=_settings(this, ({"bm25": lexical.described} if lexical else {}) | {SELF_CHECK: checked}),
        counts=_document_counts(this.dataset) | {"n_truncated_documents": truncated, "n_tokens": tokens},
        speed={
            "import_s": import_s,
            "load_s": load_s,
            "first_call_s": first_call_s,
            "embed_s": embed_s,
            "docs_per_s": len(documents) / embed_s if embed_s else None,
            "tokens_per_s": tokens / embed_s if embed_s and tokens else None,
            "peak_device_bytes": runtime.get("device_peak_bytes"),
        },
        runtime=runtime,
        warnings=warnings,
    )
    query_vectors: dict[str, Vectors] = {}

    def give(cell: CellResult, used: Meter | None = None) -> None:
        cost = {"embed": meter.usage()} | ({"rerank": used.usage()} if used else {})
        is_replay = (is_replayed(embedder), used is not None and is_replayed(used.provider))
        emit(
            "cell", cell=_plain(replace(unclocked(cell, embed=is_replay[0], rerank=is_replay[1]), cost=cost))
        )
        if base.audit:
            base.audit["prefixes"] = None  # one value a query: in the first cell of a provider alone

    def embed_query(query: Query) -> Ranking:
        query_vectors[query.query_id] = embedder.embed([query.text], role="query")[0]
        return EMPTY_RANKING

    emit("progress", stage="queries", done=0, total=len(this.queries))
    before = meter.now()
    embedded = this.time_queries(embed_query)
    meter.note_queries(this, embedded, before)
    base.counts["n_truncated_queries"] = stat(embedder, "truncated") - truncated
    asked = np.zeros((len(this.queries), embedder.dim), np.float32)  # a failed query stays a row of zeros
    for row, query in enumerate(this.queries):
        if query.query_id not in embedded.failed:
            asked[row] = query_vectors[query.query_id]
    save_vectors(Path(job["vectors"]), vectors, asked)
    runtime["hashes"] = model_hashes(embedder, PACKAGES)  # read after the clock has stopped
    base.audit = audit(this, embedder, documents)
    if not base.audit["estimated"]:  # a provider counts calls, warm-ups and further rounds included
        base.counts |= {f"n_truncated_{part}": base.audit[part]["cut"] for part in ("documents", "queries")}
    if this.spec.audit_prefixes:
        compared = prefix_comparison(this, embedder, documents, vectors, asked, spending, emit)
        base.audit["prefixes"] = compared
    rerankers: dict[str, tuple[Reranker, list[str]] | str] = {}
    rerank_load_s: dict[str, float] = {}
    for number, store_name in enumerate(dict.fromkeys(key.store for key in this.wanted)):
        folder = this.work / file_name(this.wanted[0]) / f"store-{number}"
        store = create_store(store_name, folder, fingerprint)
        write_s = 0.0
        if documents:
            rows = [d.doc_id for d in documents], vectors, [d.metadata for d in documents]
            _, write_s = timed(lambda store=store, rows=rows: store.upsert(*rows))  # type: ignore[misc]

        def search(query: Query, store: Any = store) -> Ranking:
            if query.query_id in embedded.failed:
                raise RagCoreError(embedded.failed[query.query_id])
            return store.search(query_vectors[query.query_id], this.depth, this.where(query))  # type: ignore[no-any-return]

        searched = this.time_queries(search)
        stages = {"embed": embedded, "vector": searched}
        stored: dict[str, float | int | None] = {"store_write_s": write_s}
        if store_name != EXACT_STORE:
            recalled = store_recall(
                documents, vectors, this.queries, query_vectors, searched.rankings, this.where
            )
            stored["store_recall_at_10"] = recalled
        here = replace(base, speed=base.speed | stored)
        if lexical is not None:
            first_key = next(key for key in this.wanted if key.store == store_name)
            plain = replace(first_key, dtype=fingerprint.dtype, pipeline="vector", reranker=NONE)
            keep_legs(this, plain, searched, lexical)
        fused: dict[str, FusedLists] = {}
        reordered: dict[tuple[str, str], tuple[Reranked, Meter]] = {}
        for key in (k for k in this.wanted if k.store == store_name):
            key = replace(key, dtype=fingerprint.dtype)
            if key.pipeline == "vector":
                cell = this.cell(key, searched.rankings, searched.failed, stages, here)
                cell.thresholds = _vector_scores(this, searched.rankings)
                give(cell)
                continue
            assert lexical is not None  # the runner asks for the lists whenever a hybrid cell is wanted
            if key.fusion not in fused:
                fused[key.fusion] = fuse_lists(this, searched, lexical, key.fusion)
            lists = fused[key.fusion].timed
            hybrid = {**stages, "bm25": lexical.timed, "fusion": lists}
            own = replace(here, settings=here.settings | fused[key.fusion].settings)
            if key.pipeline == "hybrid":
                give(this.cell(key, lists.rankings, lists.failed, hybrid, own))
                continue
            if key.reranker not in rerankers:
                rerankers[key.reranker], rerank_load_s[key.reranker] = timed(
                    lambda name=key.reranker: load_reranker(name, this.dataset.languages)  # type: ignore[misc]
                )
            loaded = rerankers[key.reranker]
            if isinstance(loaded, str):
                give(replace(here, key=key, status="failed", reason=loaded))
                continue
            reranker, notes = loaded
            place = (key.reranker, key.fusion)
            if place not in reordered:  # once a store and fusion: every pipeline reads the same scores
                emit("progress", stage=f"rerank {key.reranker}", done=0, total=len(this.queries))
                try:
                    reordered[place] = rerank_within(this, reranker, lists, spending, emit)
                except (BudgetExceededError, InvalidArgumentError) as error:
                    rerankers[key.reranker] = reason = f"{type(error).__name__}: {error}"
                    give(replace(here, key=key, status="failed", reason=reason))
                    continue
            cold: dict[str, float | int | None] = {"rerank_load_s": rerank_load_s[key.reranker]}
            own = replace(own, warnings=[*own.warnings, *notes], speed=own.speed | cold)
            found, used = reordered[place]
            give(found.cell(key, hybrid, own), used)
        store.close()


def _vector_scores(this: Job, rankings: Mapping[str, Ranking]) -> dict[str, Any]:
    """The cosines of each query's pool, as far as a result keeps them."""
    pools = {q: found.top(this.spec.candidate_pool) for q, found in rankings.items() if len(found)}
    scored = {q: tuple(zip(pool.doc_ids, pool.scores)) for q, pool in pools.items()}
    return record(scored, this.dataset.relevance, [query.query_id for query in this.queries], "vector")


def _import(spec: Spec) -> None:
    for package in spec.requires:
        importlib.import_module(package)
    load_attribute(spec.load)


def _embed_corpus(
    embedder: EmbedProvider, documents: Sequence[Document], emit: Emit
) -> tuple[Vectors, float]:
    """Vectors of all documents and the seconds spent in the provider."""
    vectors = np.zeros((len(documents), embedder.dim), np.float32)
    seconds = 0.0
    for start in range(0, len(documents), CHUNK):
        texts = [document.indexed_text for document in documents[start : start + CHUNK]]
        rows, took = timed(lambda texts=texts: embedder.embed(texts, role="document"))  # type: ignore[misc]
        vectors[start : start + len(texts)] = rows
        seconds += took
        emit("progress", stage="documents", done=start + len(texts), total=len(documents))
    return vectors, seconds


def _self_check(
    embedder: EmbedProvider, documents: Sequence[Document], vectors: Vectors
) -> tuple[dict[str, Any], list[str]]:
    """Whether a text's vector depends on the texts that shared its call: the least cosine, and a warning."""
    least = RULES.get(embedder.fingerprint.dtype, COARSE).least_cosine
    if not documents:
        return {"min_cosine": None, "least": least, "passed": True}, []
    rows = np.unique(np.linspace(0, len(documents) - 1, SELF_CHECK_DOCUMENTS).astype(int))
    alone = [embedder.embed([documents[row].indexed_text], role="document")[0] for row in rows]
    found = float(cosines(vectors[rows], np.array(alone)).min())
    checked = {"min_cosine": round(found, 6), "least": least, "passed": found >= least}
    if checked["passed"]:
        return checked, []
    return checked, [
        f"vectors change with their neighbours in a batch: cosine {found:.4f} between a text "
        f"alone and among others (at least {least} expected)"
    ]


def _settings(this: Job, more: Mapping[str, Any]) -> dict[str, Any]:
    spec = this.spec
    return {
        "k": spec.k,
        "candidate_pool": spec.candidate_pool,
        "fusion": {"method": "rrf", "k": spec.rrf_k, "weights": spec.weights},
        "tie_rule": TIE_RULE,
        "scope": spec.scope or this.dataset.scope,
        "rounds": this.rounds,
        **more,
    }


def _document_counts(dataset: Dataset) -> dict[str, int]:
    empty = sum(document.is_empty for document in dataset.documents)
    return {"n_documents_stored": len(dataset.documents) - empty, "n_documents_empty": empty}


def _plain(cell: CellResult) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(cell)

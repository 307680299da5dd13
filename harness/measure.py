"""Inside a measuring process: embed, search, fuse, rerank, judge, and count the seconds of each stage."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from harness.config import RunSpec
from harness.datasets import Dataset, load_dataset
from harness.environment import peak_rss_bytes
from harness.formats.trec import write_run
from harness.judging import judge
from harness.metrics import Metric
from harness.results import CellKey, CellResult, MetricResult, StageTimes, write_atomic
from harness.significance import mean_interval
from harness.timing import summary_s, timed
from rag_core.analysis import Analyser
from rag_core.errors import RagCoreError
from rag_core.factory import get_reranker, resolve
from rag_core.fusion import rrf
from rag_core.lexical import get_lexical
from rag_core.protocols import EmbedProvider, Reranker, Vectors
from rag_core.registry import EMBEDDERS, RERANKERS, Spec, load_attribute
from rag_core.reranking import reorder
from rag_core.stores import create_store
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking, Run

__all__ = ["measure_lexical", "measure_provider"]

Emit = Callable[..., None]
#: Documents handed to a provider in one call while the corpus is embedded.
CHUNK = 64
#: Documents embedded a second time, alone, to see whether their neighbours changed the vector.
SELF_CHECK_DOCUMENTS = 8
SELF_CHECK_COSINE = 0.999
TIE_RULE = "score descending, then document id descending"


@dataclass
class Timed:
    """Rankings of one stage with the seconds of every call: ``samples_s[round][query position]``."""

    rankings: dict[str, Ranking] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    samples_s: list[list[float]] = field(default_factory=list)
    warmup_s: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Job:
    """What both kinds of job share: settings, data, depth, rounds."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.spec = RunSpec.from_dict(job["spec"])
        self.dataset: Dataset = load_dataset(job["data"])
        self.queries: tuple[Query, ...] = self.dataset.queries
        self.metrics = [Metric.parse(name) for name in self.spec.metrics]
        self.depth = max(self.spec.k, self.spec.candidate_pool)
        self.rounds = max(self.spec.repeats, math.ceil(self.spec.min_samples / max(1, len(self.queries))))
        self.work, self.runs = Path(job["work"]), Path(job["runs"])
        self.wanted = [CellKey(**values) for values in job["cells"]]

    def where(self, query: Query) -> dict[str, Any] | None:
        """The filter that keeps a query within its scope."""
        scope = self.spec.scope or self.dataset.scope
        return {scope: query.metadata[scope]} if scope and scope in query.metadata else None

    def time_queries(self, call: Callable[[Query], Ranking]) -> Timed:
        """Run ``call`` for every query and round, after the warm-ups."""
        out = Timed()
        for query in self.queries[: self.spec.warmup]:
            started = perf_counter()
            try:
                call(query)
            except RagCoreError:
                continue  # counted below, where the query is asked for the record
            out.warmup_s.append(perf_counter() - started)
        for number in range(self.rounds):
            row: list[float] = []
            for query in self.queries:
                try:
                    ranking, seconds = timed(lambda query=query: call(query))  # type: ignore[misc]
                except RagCoreError as error:
                    out.failed[query.query_id] = str(error)
                    seconds = math.nan
                else:
                    if number == 0:
                        out.rankings[query.query_id] = ranking
                row.append(seconds)
            out.samples_s.append(row)
        return out

    def cell(
        self,
        key: CellKey,
        rankings: Mapping[str, Ranking],
        failed: Mapping[str, str],
        stages: Mapping[str, Timed],
        base: CellResult,
    ) -> CellResult:
        """Judge one run, derive its latencies and write its run file."""
        run = Run(key.cell_id, {q: r.top(self.spec.k) if len(r) else r for q, r in rankings.items()}, failed)
        judged = judge(run, self.dataset, self.metrics)
        metrics = {}
        for metric in self.metrics:
            values = judged.values[str(metric)]
            low = high = None
            if len(values):
                low, high = mean_interval(values, binary=metric.binary, seed=self.spec.seed)
            metrics[str(metric)] = MetricResult(judged.means[str(metric)], low, high, values.tolist())
        totals = np.sum([stage.samples_s for stage in stages.values()], axis=0).ravel()
        measured = [float(s) for s in totals if np.isfinite(s)]
        speed = {**base.speed, **summary_s(measured), "peak_rss_bytes": peak_rss_bytes()}
        counts = {
            **base.counts,
            **judged.counts,
            "n_duplicates": sum(ranking.duplicates for ranking in rankings.values()),
        }
        write_run(run, self.runs / f"{file_name(key)}.run", key.cell_id)
        return replace(
            base,
            key=key,
            status="failed" if judged.all_failed else "ok",
            reason=f"all queries failed; the first: {next(iter(failed.values()))}"
            if judged.all_failed
            else None,
            counts=counts,
            metrics={} if judged.all_failed else metrics,
            speed=speed,
            stages={
                name: StageTimes([float(s) for s in np.ravel(stage.samples_s)], stage.warmup_s)
                for name, stage in stages.items()
            },
            total_s=measured,
            warnings=[*base.warnings, *(w for stage in stages.values() for w in stage.warnings)],
        )


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
    described = engine.describe()
    lists = {
        "rankings": {q: [r.doc_ids, r.scores] for q, r in found.rankings.items()},
        "failed": found.failed,
        "samples_s": found.samples_s,
        "warmup_s": found.warmup_s,
        "bm25": described,
    }
    write_atomic(this.work / "lexical.json", json.dumps(lists, ensure_ascii=False))
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
    lexical = _read_lexical(this.work / "lexical.json") if job["needs_lexical"] else None
    spec, parsed = resolve(EMBEDDERS, job["provider"])
    _, import_s = timed(lambda: _import(spec))
    embedder, load_s = timed(lambda: EMBEDDERS.create(spec, **parsed.options))
    first = next((query.text for query in this.queries if query.text.strip()), "first call")
    _, first_call_s = timed(lambda: embedder.embed([first], role="query"))
    documents = [document for document in this.dataset.documents if not document.is_empty]
    tokens_before = _stat(embedder, "tokens")
    vectors, embed_s = _embed_corpus(embedder, documents, emit)
    truncated, tokens = _stat(embedder, "truncated"), _stat(embedder, "tokens") - tokens_before
    warnings = _language_warning(spec.name, spec.languages, this.dataset.languages)
    warnings += _self_check(embedder, documents, vectors)
    fingerprint = embedder.fingerprint
    base = CellResult(
        CellKey(*[""] * 7),
        "ok",
        model=embedder.model,
        fingerprint=fingerprint.as_dict() | {"digest": fingerprint.digest},
        settings=_settings(this, {"bm25": lexical[1]} if lexical else {}),
        counts=_document_counts(this.dataset) | {"n_truncated_documents": truncated, "n_tokens": tokens},
        speed={
            "import_s": import_s,
            "load_s": load_s,
            "first_call_s": first_call_s,
            "embed_s": embed_s,
            "docs_per_s": len(documents) / embed_s if embed_s else None,
            "tokens_per_s": tokens / embed_s if embed_s and tokens else None,
        },
        runtime=dict(getattr(embedder, "runtime", {})),
        warnings=warnings,
    )
    query_vectors: dict[str, Vectors] = {}

    def embed_query(query: Query) -> Ranking:
        query_vectors[query.query_id] = embedder.embed([query.text], role="query")[0]
        return EMPTY_RANKING

    emit("progress", stage="queries", done=0, total=len(this.queries))
    embedded = this.time_queries(embed_query)
    base.counts["n_truncated_queries"] = _stat(embedder, "truncated") - truncated
    rerankers: dict[str, tuple[Reranker, list[str]] | str] = {}
    for store_name in dict.fromkeys(key.store for key in this.wanted):
        store = create_store(store_name, this.work / file_name(this.wanted[0]) / store_name, fingerprint)
        if documents:
            store.upsert([d.doc_id for d in documents], vectors, [d.metadata for d in documents])

        def search(query: Query, store: Any = store) -> Ranking:
            if query.query_id in embedded.failed:
                raise RagCoreError(embedded.failed[query.query_id])
            return store.search(query_vectors[query.query_id], this.depth, this.where(query))  # type: ignore[no-any-return]

        searched = this.time_queries(search)
        stages = {"embed": embedded, "vector": searched}
        fused: Timed | None = None
        for key in (k for k in this.wanted if k.store == store_name):
            key = replace(key, dtype=fingerprint.dtype)
            if key.pipeline == "vector":
                emit("cell", cell=_plain(this.cell(key, searched.rankings, searched.failed, stages, base)))
                continue
            assert lexical is not None  # the runner asks for the lists whenever a hybrid cell is wanted
            if fused is None:
                fused = _fuse(this, searched, lexical[0])
            hybrid = {**stages, "bm25": lexical[0], "fusion": fused}
            if key.pipeline == "hybrid":
                emit("cell", cell=_plain(this.cell(key, fused.rankings, fused.failed, hybrid, base)))
                continue
            if key.reranker not in rerankers:
                rerankers[key.reranker] = _load_reranker(key.reranker, this.dataset.languages)
            loaded = rerankers[key.reranker]
            if isinstance(loaded, str):
                emit("cell", cell=_plain(replace(base, key=key, status="failed", reason=loaded)))
                continue
            reranker, notes = loaded
            emit("progress", stage=f"rerank {key.reranker}", done=0, total=len(this.queries))
            reranked, cut = _rerank(this, reranker, fused)
            own = replace(base, counts=base.counts | cut, warnings=[*base.warnings, *notes])
            cell = this.cell(key, reranked.rankings, reranked.failed, {**hybrid, "rerank": reranked}, own)
            cell.settings["reranker"] = reranker.fingerprint
            emit("cell", cell=_plain(cell))
        store.close()


def file_name(key: CellKey) -> str:
    """``key`` as a file name that every system accepts; distinct keys never share one."""
    import hashlib

    text = "-".join((key.provider, key.target, key.dtype, key.store, key.pipeline, key.reranker))
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_+") else "_" for c in text)[:80]
    return f"{safe}-{hashlib.sha256(key.cell_id.encode()).hexdigest()[:8]}"


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


def _self_check(embedder: EmbedProvider, documents: Sequence[Document], vectors: Vectors) -> list[str]:
    """A warning when a text's vector depends on the texts that shared its call."""
    if not documents:
        return []
    rows = np.unique(np.linspace(0, len(documents) - 1, SELF_CHECK_DOCUMENTS).astype(int))
    cosines = [
        float(embedder.embed([documents[row].indexed_text], role="document")[0] @ vectors[row])
        for row in rows
    ]
    if min(cosines) >= SELF_CHECK_COSINE:
        return []
    return [
        f"vectors change with their neighbours in a batch: cosine {min(cosines):.4f} between a text "
        f"alone and among others (at least {SELF_CHECK_COSINE} expected)"
    ]


def _language_warning(name: str, languages: Sequence[str], corpus: Sequence[str]) -> list[str]:
    foreign = [language for language in corpus if languages and language not in languages]
    if not foreign:
        return []
    return [f"{name} is made for {', '.join(languages)}; the data set also has {', '.join(foreign)}"]


def _fuse(this: Job, searched: Timed, lexical: Timed) -> Timed:
    pool = this.spec.candidate_pool
    vector = {q: r.top(pool) if len(r) else r for q, r in searched.rankings.items()}
    words = {q: r.top(pool) if len(r) else r for q, r in lexical.rankings.items()}

    def call(query: Query) -> Ranking:
        for failed in (searched.failed, lexical.failed):
            if query.query_id in failed:
                raise RagCoreError(failed[query.query_id])
        lists = [vector[query.query_id], words[query.query_id]]
        return rrf(lists, k=this.spec.rrf_k, weights=this.spec.weights)

    return this.time_queries(call)


def _load_reranker(text: str, corpus: Sequence[str]) -> tuple[Reranker, list[str]] | str:
    """The reranker with a warning if it is not made for the languages of ``corpus``, or why there is none."""
    try:
        spec, _ = resolve(RERANKERS, text)
        reranker = get_reranker(text)
    except Exception as error:  # noqa: BLE001 - the reason becomes the row's; other rows go on
        return f"{type(error).__name__}: {error}"
    made_for = getattr(reranker, "languages", ()) or spec.languages  # a folder's are known to the reranker
    return reranker, _language_warning(f"reranker {spec.name}", made_for, corpus)


def _rerank(this: Job, reranker: Reranker, fused: Timed) -> tuple[Timed, dict[str, int]]:
    """The reordered lists, and ``n_truncated_pairs`` where the reranker counts what it cuts."""
    pairs: dict[str, int] = {}
    cut: dict[str, int] = {}
    texts = {document.doc_id: document.indexed_text for document in this.dataset.documents}
    notes: dict[str, int] = {}

    def call(query: Query) -> Ranking:
        if query.query_id in fused.failed:
            raise RagCoreError(fused.failed[query.query_id])
        whole = fused.rankings[query.query_id]
        if not len(whole):
            return whole
        pool = whole.top(this.spec.candidate_pool)
        before = _stat(reranker, "truncated")
        again = reorder(pool, reranker.rerank(query.text, [texts[doc_id] for doc_id in pool.doc_ids]))
        # by query, for warm-ups and further rounds cut the same pairs again
        pairs[query.query_id], cut[query.query_id] = len(pool), _stat(reranker, "truncated") - before
        for warning in again.warnings:
            notes[warning] = notes.get(warning, 0) + 1
        # the fused documents beyond the pool follow in their order, as in the library
        order = [*again.ranking.doc_ids, *whole.doc_ids[len(pool) :]]
        return Ranking.from_scores((doc_id, float(len(order) - i)) for i, doc_id in enumerate(order))

    timed_ = this.time_queries(call)
    timed_.warnings = [f"{warning} (in {count} calls)" for warning, count in notes.items()]
    if not hasattr(reranker, "stats"):
        return timed_, {}
    n_cut = sum(cut.values())
    if n_cut:
        said = f"reranker {reranker.name} read {n_cut} of {sum(pairs.values())} pairs only in part"
        window = getattr(reranker, "max_tokens", 0)
        timed_.warnings.append(f"{said}: its window has {window} tokens" if window else said)
    return timed_, {"n_truncated_pairs": n_cut}


def _read_lexical(path: Path) -> tuple[Timed, dict[str, Any]]:
    values = json.loads(path.read_text(encoding="utf-8"))
    rankings = {q: Ranking.from_scores(zip(ids, scores)) for q, (ids, scores) in values["rankings"].items()}
    return Timed(rankings, values["failed"], values["samples_s"], values["warmup_s"]), values["bm25"]


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


def _stat(provider: EmbedProvider | Reranker, name: str) -> int:
    return int(getattr(getattr(provider, "stats", None), name, 0))


def _plain(cell: CellResult) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(cell)

"""Inside a measuring process: one system as its ``rag.toml`` sets it up, asked by many clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.datasets import load_dataset
from harness.environment import peak_rss_bytes
from harness.load import LEAST_OF_A_CLIENT, LEAST_REQUESTS, closed_loop, level
from harness.reranking import load_reranker
from rag_core.app.settings import analyser_for, search_options
from rag_core.errors import RagCoreError
from rag_core.factory import get_embedder
from rag_core.index import Index
from rag_core.service_config import ServiceConfig
from rag_core.types import Query

__all__ = ["measure_load"]


def measure_load(job: Mapping[str, Any], emit: Callable[..., None]) -> None:
    """Build the index, then one closed loop for each number of clients; emits ``load`` with ``values``.

    Nothing is cached from one request to the next: neither vectors of queries nor scores.
    """
    dataset, tables = load_dataset(job["data"]), job["tables"]
    config = ServiceConfig(
        index=tables["index"],
        search=tables["search"],
        rerank={name: value for name, value in tables["rerank"].items() if name == "mix"},
    )
    embedder = get_embedder(tables["embedding"]["provider"])
    reranker, name = None, tables["rerank"]["provider"]
    if name != "noop":
        loaded = load_reranker(name, dataset.languages)
        if isinstance(loaded, str):
            raise RagCoreError(loaded)
        reranker = loaded[0]
    index = Index.build(
        Path(job["work"]) / "index",
        dataset.documents,
        embedder,
        reranker=reranker,
        store=config.index["store"],
        analyser=analyser_for(config),
        progress=lambda done, total: emit("progress", stage="documents", done=done, total=total),
    )
    options, scope = search_options(config), job["scope"]

    def call(query: Query) -> None:
        where = {scope: query.metadata[scope]} if scope and scope in query.metadata else None
        found = index.hybrid_search(query.text, where=where, **options)
        failed = [text for text in (found.degraded, *found.warnings) if " failed" in text]
        if failed:
            raise RagCoreError(failed[0])

    levels = []
    for number, clients in enumerate(job["concurrency"]):
        emit("progress", stage=f"{clients} clients", done=number, total=len(job["concurrency"]))
        shape = {"clients": clients, "workers": job["workers"]}
        # as many as there are workers, so that each thread has made its first call
        closed_loop(call, dataset.queries, requests=max(3, job["workers"]), limit_s=job["seconds"], **shape)
        least = max(LEAST_REQUESTS, LEAST_OF_A_CLIENT * clients, len(dataset.queries))
        sample = closed_loop(call, dataset.queries, requests=least, limit_s=job["seconds"], **shape)
        if sample.failed and not sample.latency_s:
            raise RagCoreError(f"all requests failed; the first: {sample.failed[0]}")
        levels.append(level(sample, clients))
    index.close()
    emit("load", values={"workers": job["workers"], "levels": levels, "peak_rss_bytes": peak_rss_bytes()})

"""Jina AI's embedding and reranking services: plain HTTP, a task for each role."""

from __future__ import annotations

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._api_rerank import ApiReranker, RerankService, load_reranker
from providers._services import load_service
from rag_core.registry import Spec

__all__ = ["RERANK", "SERVICE", "load", "load_rerank"]

WIDTHS = (32, 64, 128, 256, 512, 768, 1024)

SERVICE = Service(
    url="https://api.jina.ai/v1",
    path="/embeddings",
    key="JINA_API_KEY",
    models={"jina-embeddings-v3": Model(1024, 8192, WIDTHS)},
    # the service names no number of texts for this model: these keep an answer of 1,024 numbers a text small
    limits=Limits(texts=128, tokens=64_000),
    fixed={"normalized": True, "embedding_type": "float"},
    roles={"query": {"task": "retrieval.query"}, "document": {"task": "retrieval.passage"}},
    long={"error": {"truncate": False}, "truncate": {"truncate": True}},
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """Jina; options and errors of :func:`providers._services.load_service`."""
    return load_service(spec, SERVICE, options)


RERANK = RerankService(
    url=SERVICE.url,
    path="/rerank",
    key=SERVICE.key,
    windows={"jina-reranker-v2-base-multilingual": 0},  # reads longer candidates in parts of 1,024 tokens
    limits=Limits(texts=1000),
    fixed={"return_documents": False},
)


def load_rerank(spec: Spec, **options: str) -> ApiReranker:
    """Jina's reranker; options and errors of :func:`providers._api_rerank.load_reranker`."""
    return load_reranker(spec, RERANK, options)

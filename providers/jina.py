"""Jina AI's embedding service: plain HTTP, a task for each role."""

from __future__ import annotations

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._services import load_service
from rag_core.registry import Spec

__all__ = ["SERVICE", "load"]

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

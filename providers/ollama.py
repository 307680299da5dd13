"""Embedding models of an Ollama server, by plain HTTP. Nothing is cut without being asked for."""

from __future__ import annotations

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._ollama_there import PORT, host_url
from providers._services import load_service
from rag_core.registry import Spec

__all__ = ["SERVICE", "load"]

_FIND = "Represent this sentence for searching relevant passages: {text}"

SERVICE = Service(
    url=f"http://127.0.0.1:{PORT}",
    path="/api/embed",
    key="",
    # widths, windows and role prefixes from the models' cards
    models={
        "nomic-embed-text": Model(
            768, 2048, (64, 128, 256, 512, 768), "search_query: {text}", "search_document: {text}"
        ),
        "mxbai-embed-large": Model(1024, 512, (), _FIND),
        "snowflake-arctic-embed": Model(1024, 512, (), _FIND),
        "all-minilm": Model(384, 256),
        "bge-m3": Model(1024, 8192),
        "embeddinggemma": Model(
            768,
            2048,
            (128, 256, 512, 768),
            "task: search result | query: {text}",
            "title: none | text: {text}",
        ),
    },
    limits=Limits(texts=32, tokens=16_000),
    long={"error": {"truncate": False}, "truncate": {"truncate": True}},
    rows="embeddings",
    used="prompt_eval_count",
    is_open=True,
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """A model of an Ollama server; options and errors of :func:`providers._services.load_service`."""
    return load_service(spec, SERVICE, {"base_url": host_url(), **options})

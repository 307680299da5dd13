"""Cohere's embedding and reranking services, by plain HTTP or through its own client."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._api_rerank import ApiReranker, RerankService, load_reranker
from providers._sdk import SdkSend
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply

__all__ = ["RERANK", "SERVICE", "load", "load_rerank", "sdk_rerank", "sdk_send"]


def _sdk(
    package: Any, base_url: str, key: str, timeout_s: float, ask: Callable[[Any, dict[str, Any]], Any]
) -> SdkSend:
    """A sender over ``ask(client, fields)``, which gives the answer as the service writes it."""
    api_error = importlib.import_module("cohere.core.api_error").ApiError
    connections = importlib.import_module("httpx").Client(timeout=timeout_s)
    client = package.ClientV2(key or "none", base_url=base_url, max_retries=0, httpx_client=connections)

    def call(asked: dict[str, Any]) -> Reply:
        try:
            return 200, {}, json.dumps(ask(client, asked)).encode()
        except api_error as error:
            body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
            return error.status_code or 0, error.headers or {}, body.encode()

    return SdkSend(call, connections.close)


def _meta(answer: Any) -> Any:
    return answer.meta.model_dump(mode="json") if answer.meta else None


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> SdkSend:
    """A sender over ``cohere.ClientV2.embed``."""

    def ask(client: Any, asked: dict[str, Any]) -> Any:
        answer = client.embed(**asked)
        return {"embeddings": {"float": answer.embeddings.float_}, "meta": _meta(answer)}

    return _sdk(package, base_url, key, timeout_s, ask)


def sdk_rerank(package: Any, base_url: str, key: str, timeout_s: float) -> SdkSend:
    """A sender over ``cohere.ClientV2.rerank``."""

    def ask(client: Any, asked: dict[str, Any]) -> Any:
        answer = client.rerank(**asked)
        rows = [{"index": row.index, "relevance_score": row.relevance_score} for row in answer.results]
        return {"results": rows, "meta": _meta(answer)}

    return _sdk(package, base_url, key, timeout_s, ask)


SERVICE = Service(
    url="https://api.cohere.com",
    path="/v2/embed",
    key="COHERE_API_KEY",
    models={
        "embed-multilingual-v3.0": Model(1024, 512),
        "embed-english-v3.0": Model(1024, 512),
        "embed-multilingual-light-v3.0": Model(384, 512),
        "embed-english-light-v3.0": Model(384, 512),
        "embed-v4.0": Model(1536, 128_000, (256, 512, 1024, 1536)),
    },
    limits=Limits(texts=96),
    texts="texts",
    fixed={"embedding_types": ["float"]},
    roles={"query": {"input_type": "search_query"}, "document": {"input_type": "search_document"}},
    long={"error": {"truncate": "NONE"}, "truncate": {"truncate": "END"}},
    width="output_dimension",
    rows="embeddings.float",
    used="meta.billed_units.input_tokens",
    sdk=("cohere", sdk_send),
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """Cohere; options and errors of :func:`providers._services.load_service`."""
    return load_service(spec, SERVICE, options)


RERANK = RerankService(
    url=SERVICE.url,
    path="/v2/rerank",
    key=SERVICE.key,
    # a longer document is cut at max_tokens_per_doc, whose default this is
    windows={"rerank-v3.5": 4096, "rerank-english-v3.0": 4096, "rerank-multilingual-v3.0": 4096},
    limits=Limits(texts=1000),
    used="meta.billed_units.search_units",
    unit="searches",
    counts_query=False,
    names={"rerank-multilingual-v3.5": "rerank-v3.5"},
    sdk=("cohere", sdk_rerank),
)


def load_rerank(spec: Spec, **options: str) -> ApiReranker:
    """Cohere's reranker; options and errors of :func:`providers._api_rerank.load_reranker`."""
    return load_reranker(spec, RERANK, options)

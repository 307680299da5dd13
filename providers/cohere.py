"""Cohere's embedding service, by plain HTTP or through its own client."""

from __future__ import annotations

import importlib
import json
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._sdk import SdkSend
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply

__all__ = ["SERVICE", "load", "sdk_send"]


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> SdkSend:
    """A sender over ``cohere.ClientV2``."""
    api_error = importlib.import_module("cohere.core.api_error").ApiError
    connections = importlib.import_module("httpx").Client(timeout=timeout_s)
    client = package.ClientV2(key or "none", base_url=base_url, max_retries=0, httpx_client=connections)

    def call(asked: dict[str, Any]) -> Reply:
        try:
            answer = client.embed(**asked)
        except api_error as error:
            body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
            return error.status_code or 0, error.headers or {}, body.encode()
        found = {
            "embeddings": {"float": answer.embeddings.float_},
            "meta": answer.meta.model_dump(mode="json") if answer.meta else None,
        }
        return 200, {}, json.dumps(found).encode()

    return SdkSend(call, connections.close)


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

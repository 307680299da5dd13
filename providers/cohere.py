"""Cohere's embedding service, by plain HTTP or through its own client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply, Send, WireError

__all__ = ["SERVICE", "load", "sdk_send"]


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> Send:
    """A sender over ``cohere.ClientV2`` without retries of its own."""
    client = package.ClientV2(key or "none", base_url=base_url, timeout=timeout_s, max_retries=0)

    def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        said = ""
        try:
            answer = client.embed(**json.loads(body or b"{}"))
            found = answer.model_dump(mode="json", by_alias=True)
            floats = answer.embeddings.float_
            return 200, {}, json.dumps({**found, "embeddings": {"float": floats}}).encode()
        except package.core.ApiError as error:
            if error.status_code:
                names = {name.lower(): value for name, value in (error.headers or {}).items()}
                return error.status_code, names, json.dumps(error.body, default=str).encode()
            said = "answered something else than JSON"
        except Exception as error:  # noqa: BLE001 - httpx's errors, and what the client makes of odd answers
            said = f"cannot be reached or broke off ({type(error).__name__})"
        raise WireError(said)  # outside: those errors hold the request, and that holds the key

    return send


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

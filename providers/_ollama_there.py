"""Whether an Ollama server is there and has a model. Asked by detection, so nothing heavy is imported."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

from rag_core.errors import InvalidArgumentError
from rag_core.registry import Spec

__all__ = ["host_url", "missing"]

PORT = 11434
#: The time that asking for the models may take in all.
ASKING_S = 0.5


def host_url() -> str:
    """The server's address: ``OLLAMA_HOST`` in any of the forms Ollama accepts, else this machine.

    Raises:
        InvalidArgumentError: ``OLLAMA_HOST`` is no address.
    """
    text = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "127.0.0.1"
    url = text if "://" in text else f"http://{'127.0.0.1' if text[0] == ':' else ''}{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.username:
        raise InvalidArgumentError(
            f"OLLAMA_HOST is no address of the form HOST[:PORT] or http://HOST[:PORT][/PATH]; "
            f"accepted: for example 127.0.0.1:{PORT}"
        )
    if host == "0.0.0.0":  # where it listens, not where it is
        host = "127.0.0.1"
    port = port or {"https": 443}.get(parts.scheme, PORT)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path}"


def missing(spec: Spec) -> str:
    """Why the model cannot be used: no server that answers within 0.5 s, or one without the model."""
    try:
        url = host_url()
    except InvalidArgumentError as error:
        return str(error)
    found: list[Any] = []
    # a thread, because looking up a name knows no time limit
    asking = threading.Thread(target=lambda: found.append(_models(url)), daemon=True)
    asking.start()
    asking.join(ASKING_S)
    if not found or isinstance(found[0], str):
        reason = found[0] if found else f"no answer within {ASKING_S:g} s"
        return f"no Ollama server at {url} ({reason}); run: ollama serve, or set OLLAMA_HOST"
    wanted = spec.model if ":" in spec.model else f"{spec.model}:latest"
    if wanted in found[0] or spec.model in found[0]:
        return ""
    has = ", ".join(sorted(found[0])[:5]) or "no model"
    return f"the Ollama server at {url} has {has}, not {spec.model}; run: ollama pull {spec.model}"


def _models(url: str) -> list[str] | str:
    """Names of the server's models, or why they are not known. Source: GET /api/tags."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or PORT), ASKING_S).close()
    except ConnectionRefusedError:
        return "connection refused"
    except OSError as error:
        return type(error).__name__
    return _tags(parts.scheme, parts.hostname or "", parts.port or PORT, parts.path)


def _tags(scheme: str, host: str, port: int, path: str) -> list[str] | str:
    import http.client  # with its TLS the slowest import of all detection, and mostly nobody is there
    import json

    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=ASKING_S)
    try:
        connection.request("GET", f"{path}/api/tags")
        answer = connection.getresponse()
        raw = answer.read()
        if answer.status != 200:
            return f"HTTP {answer.status}"
        return [str(model["name"]) for model in json.loads(raw)["models"]]
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    except (ValueError, KeyError, TypeError):
        return "the answer is not a list of models"
    finally:
        connection.close()

"""Fetching a model from the Hugging Face hub: only when the network may be used, never in silence."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from providers._common import installed, require
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.progress import tell
from rag_core.registry import Spec

__all__ = ["can_fetch", "fetch", "is_hub_name", "is_offline", "may_fetch"]

log = logging.getLogger("rag_core")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TRUE = ("1", "true", "yes", "on")
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
HUB = "https://huggingface.co"
#: How long the hub may take to accept a connection: behind a firewall nothing answers at all.
CONNECT_S = 3.0
#: How often a running download is looked at.
LOOK_S = 0.5


def is_offline(env: Mapping[str, str]) -> bool:
    """Whether the environment forbids the hub."""
    return any(env.get(name, "").strip().lower() in TRUE for name in OFFLINE)


def is_hub_name(model: str) -> bool:
    """Whether ``model`` reads ``owner/name``; a path begins with a slash, a dot, a tilde or a drive."""
    return HUB_NAME.fullmatch(model) is not None


def may_fetch(model: str, env: Mapping[str, str]) -> bool:
    """Whether ``model`` is a name on the hub, the hub's package is installed and the network allowed."""
    return is_hub_name(model) and not is_offline(env) and installed("huggingface_hub")


def can_fetch(spec: Spec, env: Mapping[str, str]) -> bool:
    """:func:`may_fetch` of the model that ``spec`` names: the table's ``fetch``."""
    return may_fetch(spec.model, env)


def fetch(
    spec: Spec, model: str, patterns: Sequence[str], looked: Sequence[str], env: Mapping[str, str]
) -> Path:
    """Download the files of ``model`` that match ``patterns`` into the hub's cache; the folder of them.

    The size is logged before and :func:`rag_core.progress.tell` says the bytes while it runs. A download
    that was broken off goes on where it stopped.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ProviderUnavailableError: the hub cannot be reached within 3 s, or has no such model; the message
            also names the folders that were ``looked`` in.
        ProviderError: the download broke off.
    """
    hub = require(spec, "huggingface_hub")
    endpoint = env.get("HF_ENDPOINT", "").strip().rstrip("/") or HUB
    where = f"no weights of {model} on disk (looked in: {'; '.join(looked) or 'no folder is known'})"
    hint = f"use {spec.name}?path=FOLDER, or set RAG_MODELS_DIR"
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        raise ProviderUnavailableError(
            spec.name, f"{where}, and the model hub cannot be reached ({error})", hint
        ) from error
    try:
        found = hub.HfApi(endpoint=endpoint).model_info(model, files_metadata=True, timeout=CONNECT_S * 3)
    except Exception as error:  # the library's own errors, and those of its HTTP client
        raise ProviderUnavailableError(
            spec.name, f"{where}, and the model hub does not give it ({_first_line(error)})", hint
        ) from error
    files = {each.rfilename: int(each.size or 0) for each in found.siblings}
    wanted = list(hub.utils.filter_repo_objects(files, allow_patterns=list(patterns)))
    total = sum(files[name] for name in wanted)
    cache = Path(env.get("HF_HUB_CACHE") or Path(env.get("HF_HOME") or "~/.cache/huggingface") / "hub")
    cache = cache.expanduser()
    log.warning(
        "%s: downloading %s (%d files, %s) into %s", spec.name, model, len(wanted), _size(total), cache
    )
    stored = cache / f"models--{model.replace('/', '--')}" / "blobs"
    try:
        with _watched(f"download {model}", stored, total):
            folder = hub.snapshot_download(
                model, allow_patterns=list(patterns), cache_dir=cache, endpoint=endpoint
            )  # fmt: skip
    except Exception as error:
        raise ProviderError(
            f"{spec.name}: the download of {model} broke off ({_first_line(error)}); "
            "what was fetched is kept: run the same command again"
        ) from error
    return Path(folder)


@contextlib.contextmanager
def _watched(stage: str, folder: Path, total: int) -> Iterator[None]:
    """Tell how many bytes lie in ``folder`` while the block runs; the caller's listener is told, not ours."""
    done = threading.Event()
    before = _bytes(folder)
    context = contextvars.copy_context()

    def look() -> None:
        while not done.wait(LOOK_S):
            context.run(tell, stage, min(total, _bytes(folder) - before), total)

    tell(stage, 0, total)
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
        tell(stage, total, total)
    finally:
        done.set()
        watcher.join()


def _bytes(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # renamed while it was looked at
                total += entry.stat().st_size
    return total


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def _first_line(error: Any) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]

"""Data sets of the Hugging Face hub: ``hf:mteb/scifact``, ``hf:OWNER/NAME/FOLDER`` for a part of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.formats.folders import Parts
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.extras import require

__all__ = ["load"]

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
TRUE = ("1", "true", "yes", "on")
#: What a retrieval set is made of; images and archives stay on the hub.
PATTERNS = ("*.jsonl", "*.json", "*.tsv", "*.csv", "*.parquet", "*.toml", "*.txt")
CONNECT_S = 3.0


def load(name: str, read: Callable[[Path], Parts], env: Mapping[str, str] = os.environ) -> Parts:
    """Read the set ``name`` from the hub's cache, downloading what is missing where the network may be used.

    Args:
        name: ``owner/name``, or ``owner/name/folder``.
        read: reads the folder it was put in.
        env: environment variables; ``HF_HUB_OFFLINE=1`` forbids the network.

    Raises:
        InvalidArgumentError: the name is not of that form.
        MissingExtraError: huggingface_hub is not installed.
        ProviderUnavailableError: the set is not in the cache and cannot be fetched; says what to do.
        DataError: the files are not a data set of a known form.
    """
    owner, _, rest = name.partition("/")
    title, _, inside = rest.partition("/")
    if not (owner and title) or ".." in inside:
        raise InvalidArgumentError(f"hf:{name}: accepted: hf:OWNER/NAME or hf:OWNER/NAME/FOLDER")
    hub = require(f"hf:{name}", "huggingface_hub", "hub")
    patterns = [f"{inside}/{pattern}" for pattern in PATTERNS] if inside else list(PATTERNS)
    folder = Path(_fetched(hub, f"{owner}/{title}", patterns, env)) / inside
    parts = read(folder)
    about = parts.description
    return replace(parts, description=replace(about, name=about.name or title))


def _fetched(hub: Any, repository: str, patterns: list[str], env: Mapping[str, str]) -> str:
    wanted = {"repo_type": "dataset", "allow_patterns": patterns}
    is_offline = any(env.get(variable, "").strip().lower() in TRUE for variable in OFFLINE)
    reason = "the environment forbids the network"
    if not is_offline:
        try:
            return str(hub.snapshot_download(repository, etag_timeout=CONNECT_S, **wanted))
        except (OSError, ValueError, RuntimeError) as error:  # its own errors are of these
            reason = (
                f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            )
    try:
        return str(hub.snapshot_download(repository, local_files_only=True, **wanted))
    except (OSError, ValueError, RuntimeError) as error:
        raise ProviderUnavailableError(
            f"hf:{repository}",
            f"it is not in the hub's cache and cannot be fetched ({reason})",
            "run once where the hub can be reached, or download the set and give its folder with --data",
        ) from error

"""Where files go that take long to make and can be made again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """``RAG_CACHE_DIR``, else ``~/.cache/rag-core``; it may not exist yet."""
    chosen = os.environ.get("RAG_CACHE_DIR", "").strip()
    return Path(chosen).expanduser() if chosen else Path("~/.cache/rag-core").expanduser()

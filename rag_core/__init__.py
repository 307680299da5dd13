"""rag_core: retrieval building blocks. They need numpy and the standard library only.

A name is imported from its module when it is first asked for, so that a command that only prints its help,
or only reads settings, does not wait for numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_core.cache import CachedEmbedder
    from rag_core.factory import get_default_embedder, get_default_reranker, get_embedder, get_reranker
    from rag_core.fallback import FallbackEmbedder, FallbackReranker
    from rag_core.fingerprint import Fingerprint
    from rag_core.index import Hit, Index, SearchResult
    from rag_core.lazy import LazyEmbedder, LazyReranker
    from rag_core.service import EmbeddingService
    from rag_core.types import Document, Qrel, Query, Ranking, Run, ScoredDoc

__version__ = "0.1.0"

__all__ = [
    "CachedEmbedder",
    "Document",
    "EmbeddingService",
    "FallbackEmbedder",
    "FallbackReranker",
    "Fingerprint",
    "Hit",
    "Index",
    "LazyEmbedder",
    "LazyReranker",
    "Qrel",
    "Query",
    "Ranking",
    "Run",
    "ScoredDoc",
    "SearchResult",
    "get_default_embedder",
    "get_default_reranker",
    "get_embedder",
    "get_reranker",
]

#: Module -> the public names that live there.
_MODULES = {
    "cache": ("CachedEmbedder",),
    "factory": ("get_default_embedder", "get_default_reranker", "get_embedder", "get_reranker"),
    "fallback": ("FallbackEmbedder", "FallbackReranker"),
    "fingerprint": ("Fingerprint",),
    "index": ("Hit", "Index", "SearchResult"),
    "lazy": ("LazyEmbedder", "LazyReranker"),
    "service": ("EmbeddingService",),
    "types": ("Document", "Qrel", "Query", "Ranking", "Run", "ScoredDoc"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rag_core' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"rag_core.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

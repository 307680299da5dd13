"""rag_core: retrieval building blocks. Importing it loads numpy and the standard library only."""

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

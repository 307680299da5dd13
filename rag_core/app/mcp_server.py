"""An index as a tool of the Model Context Protocol, through the protocol's official SDK."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rag_core.app.showing import result_dict
from rag_core.errors import MissingExtraError, RagCoreError
from rag_core.index import SearchResult
from rag_core.secrets import redact

__all__ = ["Found", "Passage", "make_server"]

#: ``search(query, top_k, rerank, where)``
Search = Callable[[str, int, bool, dict[str, Any] | None], SearchResult]
INSTRUCTIONS = "Searches documents by meaning and by words. Read `warnings` before relying on an answer."
DESCRIPTION = """Search the indexed documents by meaning and by words, and return the best passages.

Args:
    query: a question or key words, in any language that the documents are in.
    top_k: how many passages to return at most, from 1.
    rerank: let a reranker order the candidates again: better, and slower. If it takes too long, the order
        before it is returned, with a warning.
    where: only passages whose metadata satisfy this filter, for example {"lang": "en"},
        {"year": {"$gte": 2020}}, {"source": {"$in": ["a.md", "b.md"]}}; $and, $or and $not join filters.
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """One hit: see :func:`rag_core.app.showing.hit_dict`."""

    id: str
    title: str
    text: str
    score: float | None
    source: str
    ranks: dict[str, int]
    scores: dict[str, float | None]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)  # no slots: the SDK would take their descriptors for default values
class Found:
    """The answer of the tool.

    Attributes:
        hits: best first.
        warnings: what a reader must know, such as that the reranker took too long.
        degraded: why vectors could not be searched, so that words alone did; empty where they were.
    """

    hits: list[Passage]
    warnings: list[str]
    degraded: str


def make_server(search: Search) -> Any:
    """An ``mcp.server.MCPServer`` with the tool ``semantic_search``; ``.run()`` serves standard input and
    output. ``search`` is called in threads, several at a time.

    Raises:
        MissingExtraError: the SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise MissingExtraError("the MCP server", "mcp", "mcp") from error

    def semantic_search(
        query: str, top_k: int = 10, rerank: bool = True, where: dict[str, Any] | None = None
    ) -> Found:
        try:
            answer = result_dict(query, search(query, top_k, rerank, where))
        except RagCoreError as error:
            raise ToolError(redact(str(error))) from error
        return Found([Passage(**hit) for hit in answer["hits"]], answer["warnings"], answer["degraded"])

    server = MCPServer("rag", instructions=INSTRUCTIONS, version=_version(), log_level="WARNING")
    server.add_tool(semantic_search, name="semantic_search", description=DESCRIPTION)
    return server


def _version() -> str:
    try:
        return version("rag-core-bench")
    except PackageNotFoundError:  # run from a checkout
        from rag_core import __version__

        return __version__

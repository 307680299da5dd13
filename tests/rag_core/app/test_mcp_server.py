"""The tool, asked by the SDK's own client in this process."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rag_core.app.mcp_server import make_server
from rag_core.errors import InvalidArgumentError, MissingExtraError
from rag_core.index import Hit, SearchResult
from rag_core.types import Document


def found(*warnings: str) -> SearchResult:
    document = Document(
        "d1", "The ferry leaves at nine.", "Ferry", {"source": "ferry.md", "section": "Times"}
    )
    hit = Hit(document, math.nan, "hybrid+rerank", {"bm25": 1, "fused": 1}, {"bm25": 2.5, "rerank": math.nan})
    return SearchResult((hit,), warnings, {"bm25": 0.1})


def ask(search: Callable[..., SearchResult], **arguments: Any) -> Any:
    anyio = pytest.importorskip("anyio", reason="needs pip install 'rag-core-bench[mcp]'")
    mcp = pytest.importorskip("mcp", reason="needs pip install 'rag-core-bench[mcp]'")

    async def call() -> Any:
        async with mcp.Client(make_server(search)) as client:
            tools = await client.list_tools()
            return tools.tools, await client.call_tool("semantic_search", arguments)

    return anyio.run(call)


@pytest.mark.stores_external
def test_the_tool_describes_itself() -> None:
    tools, _ = ask(lambda *asked: found(), query="ferry")
    (tool,) = tools
    assert tool.name == "semantic_search"
    assert "where: only passages" in tool.description
    properties = tool.input_schema["properties"]
    assert tool.input_schema["required"] == ["query"]
    assert {name: properties[name].get("default") for name in properties} == {
        "query": None,
        "top_k": 10,
        "rerank": True,
        "where": None,
    }
    assert set(tool.output_schema["properties"]) == {"hits", "warnings", "degraded"}


@pytest.mark.stores_external
def test_hits_come_with_text_title_source_score_ranks_and_warnings() -> None:
    _, answer = ask(lambda *asked: found("the reranker was late"), query="ferry")
    assert not answer.is_error
    assert answer.structured_content == {
        "hits": [
            {
                "id": "d1",
                "title": "Ferry",
                "text": "The ferry leaves at nine.",
                "score": None,
                "source": "hybrid+rerank",
                "ranks": {"bm25": 1, "fused": 1},
                "scores": {"bm25": 2.5, "rerank": None},
                "metadata": {"source": "ferry.md", "section": "Times"},
            }
        ],
        "warnings": ["the reranker was late"],
        "degraded": "",
    }
    assert json.loads(answer.content[0].text) == answer.structured_content


@pytest.mark.stores_external
def test_arguments_reach_the_search() -> None:
    seen: list[Any] = []

    def search(*asked: Any) -> SearchResult:
        seen.append(asked)
        return found()

    ask(search, query="ferry", top_k=3, rerank=False, where={"lang": "en"})
    ask(search, query="ferry")
    assert seen == [("ferry", 3, False, {"lang": "en"}), ("ferry", 10, True, None)]


@pytest.mark.stores_external
def test_an_error_is_an_answer_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHERE_API_KEY", "planted-0123456789")

    def search(*asked: Any) -> SearchResult:
        raise InvalidArgumentError("k is 0; accepted: a whole number from 1 (planted-0123456789)")

    _, answer = ask(search, query="ferry", top_k=0)
    assert answer.is_error
    assert "k is 0; accepted: a whole number from 1" in answer.content[0].text
    assert "planted" not in answer.content[0].text


def test_without_the_sdk_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtraError, match=r"rag-core-bench\[mcp\]"):
        make_server(lambda *asked: found())

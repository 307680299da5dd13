"""The server as a client starts it: the SDK's own client over standard input and output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.stores_external

#: A reranker that is quick at its first call, which is the warm-up, and then never ready in time; what it
#: prints, in Python and past it, must not reach the protocol.
PLUGIN = """
import os, time
from rag_core.registry import Spec

class Slow:
    name = model = "slow"
    target = "cpu"
    fingerprint = "slow/1"
    asked = 0
    def is_available(self):
        return True
    def rerank(self, query, candidates):
        print("noise in Python")
        os.system("echo noise past it")
        Slow.asked += 1
        if Slow.asked > 1:
            time.sleep(600)
        return [1.0 - i / 100 for i in range(len(candidates))]

def load(spec):
    return Slow()

def register(registries):
    registries.rerankers.add(Spec("slow", "slow", "cpu", 0, "slow_plugin:load", auto=False))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    """Environment variables with which ``slow`` is a reranker."""
    (tmp_path / "slow_plugin.py").write_text(PLUGIN)
    return {"RAG_PLUGINS": "providers:register,slow_plugin:register"}


def converse(
    rag_process: Any, arguments: list[str], env: dict[str, str], *asked: dict[str, Any]
) -> list[Any]:
    anyio = pytest.importorskip("anyio", reason="needs pip install 'rag-core-bench[mcp]'")
    mcp = pytest.importorskip("mcp", reason="needs pip install 'rag-core-bench[mcp]'")
    command = [*rag_process.command, "serve-mcp", *arguments]
    server = mcp.StdioServerParameters(command=command[0], args=command[1:], env=env)

    async def call() -> list[Any]:
        with anyio.fail_after(120):
            # its default is what standard error was when it was imported: perhaps another test's
            async with mcp.Client(mcp.stdio_client(server, errlog=sys.__stderr__)) as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                return [tools, *[await client.call_tool("semantic_search", each) for each in asked]]

    return list(anyio.run(call))


def test_a_client_finds_what_is_indexed(rag_process: Any, built: Path) -> None:
    env = rag_process.environment()
    tools, first, filtered, wrong = converse(
        rag_process,
        ["--index", str(built)],
        env,
        {"query": "ferry island", "top_k": 2},
        {"query": "ferry", "where": {"source": "museum.txt"}},
        {"query": "ferry", "where": {"source": {"$near": 1}}},
    )
    assert tools == ["semantic_search"]
    hits = first.structured_content["hits"]
    assert len(hits) == 2
    assert hits[0]["metadata"]["source"] == "ferry.md"
    assert any("leaves at nine" in hit["text"] for hit in hits)
    assert {hit["metadata"]["source"] for hit in filtered.structured_content["hits"]} == {"museum.txt"}
    assert wrong.is_error
    assert "$near" in wrong.content[0].text


def test_a_late_reranker_leaves_the_fused_order_and_a_warning(
    rag_process: Any, built: Path, tmp_path: Path, plugin: dict[str, str]
) -> None:
    env = rag_process.environment(**plugin)
    env["PYTHONPATH"] += f":{tmp_path}"
    arguments = ["--index", str(built), "--reranker", "slow", "--rerank-timeout", "0.3"]
    query = {"query": "ferry island"}
    _, late, busy, plain = converse(rag_process, arguments, env, query, query, {**query, "rerank": False})
    fused = [hit["id"] for hit in plain.structured_content["hits"]]
    assert plain.structured_content["warnings"] == []
    for answer, said in ((late, "limit of 0.3 s"), (busy, "limit of 0.3 s")):
        found = answer.structured_content
        assert [hit["id"] for hit in found["hits"]] == fused
        assert {hit["source"] for hit in found["hits"]} == {"hybrid"}
        assert any(said in warning for warning in found["warnings"])


def test_nothing_but_the_protocol_reaches_standard_output(
    rag_process: Any, built: Path, tmp_path: Path, plugin: dict[str, str]
) -> None:
    env = rag_process.environment(**plugin)
    env["PYTHONPATH"] += f":{tmp_path}"
    command = [*rag_process.command, "serve-mcp", "--index", str(built), "--reranker", "slow"]
    done = subprocess.run(command, env=env, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "noise in Python" in done.stderr
    assert "noise past it" in done.stderr

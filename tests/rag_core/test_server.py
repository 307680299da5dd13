"""The server for tests, asked with nothing but the standard library."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rag_core.testing.server import SERVICES, Answer, Fault, FaultServer, Request, vector_of

PATHS = {
    "cohere": "/cohere/v2/embed",
    "jina": "/jina/v1/embeddings",
    "ollama": "/ollama/api/embed",
    "openai": "/openai/v1/embeddings",
    "voyage": "/voyage/v1/embeddings",
}


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(dim=8) as running:
        yield running


def ask(server: FaultServer, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(answer.read())
    finally:
        connection.close()


def test_vectors_depend_on_text_role_and_width_alone() -> None:
    one = vector_of("a text", 8)
    np.testing.assert_array_equal(one, vector_of("a text", 8))
    assert one.dtype == np.float32
    assert not np.allclose(one, vector_of("a text", 8, "query"))
    assert not np.allclose(one, vector_of("a test", 8))
    norms = [float(np.linalg.norm(vector_of(str(i), 8))) for i in range(50)]
    assert min(norms) == pytest.approx(1)
    assert max(norms) == pytest.approx(20)


def test_every_format_answers(server: FaultServer) -> None:
    assert set(PATHS) == set(SERVICES)
    plain = [vector_of(text, 8).tolist() for text in ("a", "b c")]
    for name in ("jina", "openai", "voyage"):
        status, _, value = ask(server, PATHS[name], {"model": "m", "input": ["a", "b c"]})
        assert status == 200
        assert [(row["index"], row["embedding"]) for row in value["data"]] == list(enumerate(plain))
        assert value["usage"]["total_tokens"] == 3
    value = ask(server, PATHS["cohere"], {"texts": ["a"], "input_type": "search_query"})[2]
    assert value["embeddings"]["float"] == [vector_of("a", 8, "search_query").tolist()]
    assert value["meta"]["billed_units"] == {"input_tokens": 1}
    value = ask(server, PATHS["ollama"], {"input": "b c"})[2]
    assert (value["embeddings"], value["prompt_eval_count"]) == ([plain[1]], 2)


def test_base64_and_narrower_vectors(server: FaultServer) -> None:
    body = {"input": ["a"], "encoding_format": "base64", "dimensions": 4}
    row = ask(server, PATHS["openai"], body)[2]["data"][0]
    found = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    np.testing.assert_array_equal(found, vector_of("a", 8)[:4])


def test_planned_faults_come_in_turn_and_choose_speaks_after_them(server: FaultServer) -> None:
    server.plan(Fault(429, "slow", {"Retry-After": "3"}), None)
    server.choose = lambda request: Fault(503) if "b" in request.texts else None
    path, asked = PATHS["openai"], {"input": ["a", "b"]}
    status, headers, value = ask(server, path, asked)
    assert (status, headers["retry-after"], value["error"]["message"]) == (429, "3", "slow")
    assert ask(server, path, asked)[0] == 200
    assert ask(server, path, asked)[0] == 503
    assert ask(server, path, {"input": ["a"]})[0] == 200
    assert [request.texts for request in server.requests] == [["a", "b"]] * 3 + [["a"]]


@pytest.mark.parametrize(
    "kind, indexes",
    [("reordered", [1, 0, 2]), ("short", [0, 2]), ("duplicate", [0, 1, 0]), ("", [0, 1, 2])],
)
def test_damage_to_the_rows(server: FaultServer, kind: str, indexes: list[int]) -> None:
    server.plan(Fault(kind=kind))
    rows = ask(server, PATHS["openai"], {"input": ["a", "b", "c"]})[2]["data"]
    assert [row["index"] for row in rows] == indexes


@pytest.mark.parametrize(
    "kind, is_so",
    [
        ("nan", lambda row: np.isnan(row[0])),
        ("null", lambda row: row[0] is None),
        ("zero", lambda row: not any(row)),
        ("width", lambda row: len(row) == 7),
    ],
)
def test_damage_to_a_vector(server: FaultServer, kind: str, is_so: Any) -> None:
    server.plan(Fault(kind=kind))
    assert is_so(ask(server, PATHS["ollama"], {"input": ["a"]})[2]["embeddings"][0])


@pytest.mark.parametrize("kind", ["reset", "cut", "garbage"])
def test_broken_answers(server: FaultServer, kind: str) -> None:
    server.plan(Fault(kind=kind))
    with pytest.raises((OSError, http.client.HTTPException, ValueError)):
        ask(server, PATHS["jina"], {"input": ["a"]})


def test_limits_keys_and_unknown_paths(server: FaultServer) -> None:
    server.max_texts, server.max_tokens, server.max_text_tokens = 2, 5, 4
    path = PATHS["jina"]
    for texts, said in (
        (["a", "b", "c"], "at most 2 texts"),
        (["a b c", "a b c"], "max tokens per batch is 5, got 6"),
        (["a b c d e"], "a text has 5 tokens, the maximum is 4"),
        ([" "], "input is invalid"),
    ):
        status, _, value = ask(server, path, {"input": texts})
        assert status == 400
        assert said in value["detail"]
    assert ask(server, "/cohere/v3/embed", {})[0] == 404
    server.key = "right"
    assert ask(server, path, {"input": ["a"]}, Authorization="Bearer wrong")[0] == 401
    assert ask(server, path, {"input": ["a"]}, Authorization="Bearer right")[0] == 200


def test_another_route_has_the_same_faults(server: FaultServer) -> None:
    def rerank(request: Request) -> Answer:
        rows = [(i, float(len(text))) for i, text in enumerate(request.body["documents"])]
        return Answer(rows, lambda kept: {"results": [{"index": i, "relevance_score": s} for i, s in kept]})

    server.routes["/jina/v1/rerank"] = rerank
    server.plan(None, Fault(kind="short"))
    asked = {"query": "q", "documents": ["a", "bbb", "cc"]}
    whole, short = (ask(server, "/jina/v1/rerank", asked)[2]["results"] for _ in range(2))
    assert [row["relevance_score"] for row in whole] == [1, 3, 2]
    assert [row["index"] for row in short] == [0, 2]

"""The services' own clients parse what the server of these tests answers, so its formats are theirs.

Read with openai 3.57, cohere 7.3, voyageai 0.5 and ollama 0.6 (November 2026).
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from rag_core.testing.server import Fault, FaultServer, vector_of

httpx = pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SDKS = {"cohere": "cohere", "openai": "openai", "voyage": "voyageai"}


def needs(name: str) -> Any:
    package = SDKS[name]
    is_there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not is_there, reason=f"package {package!r} is not installed")


@needs("openai")
def test_openais_client_parses_the_same_answers(server: FaultServer) -> None:
    import openai

    server.dim = 32
    with openai.OpenAI(api_key="none", base_url=server.url("openai"), max_retries=0) as client:
        for extra in ({}, {"encoding_format": "float"}):
            answer = client.embeddings.create(model="m", input=["a", "b"], **extra)
            for row, text in zip(answer.data, ["a", "b"]):
                np.testing.assert_allclose(row.embedding, vector_of(text, 32), rtol=1e-6)
            assert answer.usage.total_tokens == 2
        server.plan(Fault(429, "slow", {"Retry-After": "3"}), Fault(401, "key"), Fault(kind="reset"))
        with pytest.raises(openai.RateLimitError):
            client.embeddings.create(model="m", input=["a"])
        with pytest.raises(openai.AuthenticationError):
            client.embeddings.create(model="m", input=["a"])
        with pytest.raises(openai.APIConnectionError):
            client.embeddings.create(model="m", input=["a"])


@needs("cohere")
def test_coheres_client_parses_the_same_answers(server: FaultServer) -> None:
    import cohere
    from cohere.core.api_error import ApiError

    connections = httpx.Client()
    client = cohere.ClientV2("none", base_url=server.url("cohere"), max_retries=0, httpx_client=connections)
    asked_for = {
        "model": "m",
        "texts": ["a", "b"],
        "input_type": "search_query",
        "embedding_types": ["float"],
    }
    answer = client.embed(**asked_for)
    for row, text in zip(answer.embeddings.float_, ["a", "b"]):
        np.testing.assert_allclose(row, vector_of(text, 16, "search_query"), rtol=1e-6)
    assert answer.meta.billed_units.input_tokens == 2
    server.plan(Fault(429, "slow", {"Retry-After": "3"}))
    with pytest.raises(ApiError) as error:
        client.embed(**asked_for)
    assert (error.value.status_code, error.value.headers["retry-after"]) == (429, "3")
    connections.close()


@needs("voyage")
def test_voyages_client_parses_the_same_answers(server: FaultServer) -> None:
    import voyageai

    client = voyageai.Client("none", max_retries=1, base_url=server.url("voyage"))
    answer = client.embed(["a", "b"], model="voyage-multilingual-2", input_type="query")
    for row, text in zip(answer.embeddings, ["a", "b"]):
        np.testing.assert_allclose(row, vector_of(text, 16, "query"), rtol=1e-6)
    assert answer.total_tokens == 2
    server.plan(Fault(429, "slow"))
    with pytest.raises(voyageai.error.RateLimitError):
        client.embed(["a"], model="voyage-multilingual-2")


@pytest.mark.skipif(importlib.util.find_spec("ollama") is None, reason="package 'ollama' is not installed")
def test_ollamas_client_parses_the_same_answers(server: FaultServer) -> None:
    import ollama

    client = ollama.Client(server.url("ollama"))
    answer = client.embed("nomic-embed-text", ["a", "b"])
    for row, text in zip(answer.embeddings, ["a", "b"]):
        np.testing.assert_allclose(row, vector_of(text, 16), rtol=1e-6)
    assert answer.prompt_eval_count == 2
    assert [model.model for model in client.list().models] == ["nomic-embed-text:latest"]
    server.plan(Fault(500, "unsupported value: NaN"))
    with pytest.raises(ollama.ResponseError, match="NaN"):
        client.embed("nomic-embed-text", ["a"])
    client._client.close()

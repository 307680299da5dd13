"""Whether an Ollama server is there and has the model: asked quickly, answered plainly."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from providers import EMBEDDERS
from providers._ollama_there import host_url, missing
from rag_core.registry import Registry
from rag_core.testing.server import Fault, FaultServer

SPEC = next(spec for spec in EMBEDDERS if spec.name == "ollama")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    with FaultServer() as running:
        monkeypatch.setenv("OLLAMA_HOST", running.url("ollama"))
        yield running


@pytest.mark.parametrize(
    "value, url",
    [
        ("", "http://127.0.0.1:11434"),
        ("  ", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:8080", "http://box:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:99", "http://127.0.0.1:99"),
        ("http://box/ollama/", "http://box:11434/ollama"),
        ("https://box", "https://box:443"),
        ("[::1]:99", "http://[::1]:99"),
    ],
)
def test_the_forms_of_ollama_host(value: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", value)
    assert host_url() == url


def test_a_server_that_lists_the_model_is_available(server: FaultServer) -> None:
    assert missing(SPEC) == ""
    assert missing(replace(SPEC, model="nomic-embed-text:latest")) == ""
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", "/ollama/api/tags")
    ] * 2


def test_a_server_without_the_model_says_how_to_get_it(server: FaultServer) -> None:
    server.models = ["llama3:8b", "bge-m3:latest"]
    reason = missing(SPEC)
    assert "has bge-m3:latest, llama3:8b, not nomic-embed-text; run: ollama pull nomic-embed-text" in reason
    assert missing(replace(SPEC, model="llama3:8b")) == ""
    assert "not llama3;" in missing(replace(SPEC, model="llama3"))
    server.models = []
    assert "has no model, not nomic" in missing(SPEC)


@pytest.mark.parametrize(
    "fault, reason",
    [
        (Fault(500), "HTTP 500"),
        (Fault(404), "HTTP 404"),
        (Fault(kind="garbage"), "the answer is not a list of models"),
        (Fault(kind="reset"), "ConnectionResetError"),
        (Fault(kind="cut"), "IncompleteRead"),
        (Fault(delay_s=20.0), ""),
    ],
    ids=lambda value: "",
)
def test_something_else_than_ollama_is_told_within_its_time(
    server: FaultServer, fault: Fault, reason: str
) -> None:
    server.plan(fault)
    started = time.perf_counter()
    said = missing(SPEC)
    assert said.startswith(f"no Ollama server at {server.url('ollama')} (")
    assert reason in said
    assert said.endswith("run: ollama serve, or set OLLAMA_HOST")
    assert time.perf_counter() - started < 5, "it waited for the answer"


def test_no_server_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{port}")
    assert f"no Ollama server at http://127.0.0.1:{port} (connection refused)" in missing(SPEC)
    monkeypatch.setenv("OLLAMA_HOST", "ftp://box")
    assert missing(SPEC).startswith("OLLAMA_HOST is no address of the form HOST[:PORT]")


def test_the_registry_passes_the_reason_on(server: FaultServer) -> None:
    pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")
    server.models = []
    answer = Registry("embedding provider").availability(SPEC)
    assert not answer.ok
    assert "ollama pull" in answer.reason
    assert answer.hint == ""

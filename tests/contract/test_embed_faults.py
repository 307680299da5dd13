"""What fails for a moment leaves no trace; what fails for good is told apart from what a text causes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._pacing import Timers
from rag_core.errors import (
    PartialEmbedError,
    PermanentError,
    TransientError,
)
from rag_core.registry import load_attribute
from rag_core.testing.server import Fault, FaultServer

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
NAMES = sorted(SPECS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(500),
        Fault(503),
        Fault(429),
        Fault(408),
        Fault(kind="reset"),
        Fault(kind="cut"),
        Fault(kind="garbage"),
        Fault(kind="short"),
        Fault(kind="nan"),
        Fault(kind="null"),
        Fault(kind="zero"),
        Fault(delay_s=2.0),
    ],
    ids=lambda fault: str(fault.kind or fault.status or "late"),
)
def test_a_fault_of_the_moment_leaves_no_trace(
    server: FaultServer,
    name: str,
    fault: Fault,
    made: Any,
    expected: Any,
) -> None:
    texts = ["zero", "one", "two", "three", "four"]
    provider = made(server, name, timeout_s="0.3" if fault.delay_s else "60")
    provider.embed(["a"])  # so that a kept connection breaks
    server.plan(fault, None if fault.kind else fault)
    vectors = provider.embed(texts)
    np.testing.assert_allclose(vectors, expected(server, name, texts), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_is_down_is_an_error_that_passes(name: str) -> None:
    with FaultServer() as server:
        url = server.url(name)
    provider = load_attribute(SPECS[name].load)(SPECS[name], base_url=url, max_tries="2")
    provider.transport.timers = Timers(sleep=lambda seconds: None)
    with pytest.raises(TransientError, match=r"cannot be reached .*gave up after 2 tries"):
        provider.embed(["a", "b"])


def test_an_inner_error_on_everything_is_an_outage(server: FaultServer, made: Any) -> None:
    server.choose = lambda request: Fault(500, "oops")
    with pytest.raises(TransientError, match="HTTP 500: oops"):
        made(server, "cohere", concurrency="1").embed([f"text {i}" for i in range(960)])
    assert len(server.requests) == 6 + 2, "all tries of the first batch, and a harmless text"


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_everything_is_not_blamed_on_the_texts(
    server: FaultServer, status: int, made: Any
) -> None:
    server.choose = lambda request: Fault(status, "unknown parameter: embedding_types")
    with pytest.raises(PermanentError, match="unknown parameter"):
        made(server, "cohere", concurrency="1").embed([f"text {i}" for i in range(960)])
    assert len(server.requests) == 2


def test_a_text_that_is_refused_is_found_among_many(server: FaultServer, made: Any, expected: Any) -> None:
    server.choose = lambda request: Fault(400, "input is invalid") if "bad" in request.texts else None
    with pytest.raises(PartialEmbedError) as error:
        made(server, "jina").embed(["a", "bad", "b", "c", "bad"])
    assert list(error.value.failed) == [1, 4]
    found = error.value.vectors[[0, 2, 3]]
    np.testing.assert_allclose(found, expected(server, "jina", ["a", "b", "c"]), rtol=0, atol=1e-6)


def _benchmark(name: str) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_vector_is_wrong_missing_or_shifted_whatever_fails() -> None:
    benchmark = _benchmark("faults")
    benchmark.TIMEOUT_S = 0.2
    figures = benchmark.run(300, seed=3, sleep=lambda seconds: None)
    assert figures["failed"] == {}
    for name in ("wrong", "missing", "shifted", "retries_of_permanent_errors"):
        assert figures[name] == 0, json.dumps(figures)
    assert figures["retries"] > 0


def test_an_interrupt_stops_sending(server: FaultServer, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    provider = made(server, "openai", batch="1", concurrency="2")
    post: Callable[..., Any] = provider.transport.post

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if len(server.requests) >= 3:
            raise KeyboardInterrupt
        return post(*args, **kwargs)

    monkeypatch.setattr(provider.transport, "post", interrupted)
    with pytest.raises(KeyboardInterrupt):
        provider.embed([f"text {i}" for i in range(100)])
    assert len(server.requests) <= 5

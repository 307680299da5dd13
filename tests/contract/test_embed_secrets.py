"""Keys: needed where they are, sent once, shown nowhere."""

from __future__ import annotations

import importlib.util
import logging
import pickle
import traceback
from typing import Any

import pytest

from providers import EMBEDDERS
from rag_core.errors import (
    InvalidArgumentError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    ProviderUnavailableError,
    TransientError,
)
from rag_core.registry import load_attribute
from rag_core.testing.server import Fault, FaultServer

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
SDKS = {"cohere": "cohere", "openai": "openai", "voyage": "voyageai"}


@pytest.mark.parametrize(
    "name, kind", [("jina", "http"), *((name, kind) for name in sorted(SDKS) for kind in ("http", "sdk"))]
)
def test_a_planted_key_appears_nowhere(
    name: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    made: Any,
) -> None:
    if kind == "sdk" and importlib.util.find_spec(SDKS[name]) is None:
        pytest.skip(f"package {SDKS[name]!r} is not installed")
    key = "Zq7vKp2mXw9rTb4nYc6hLd8s"
    monkeypatch.setenv(SPECS[name].env[0], key)
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    with FaultServer(SPECS[name].dim) as server:
        provider = made(server, name, engine=kind)
        seen += [repr(provider), repr(provider.transport), str(provider.runtime), repr(vars(provider))]
        seen += [repr(vars(provider.transport)), repr(provider.fingerprint)]
        provider.embed(["a"])
        assert server.requests[0].headers["authorization"] == f"Bearer {key}", "the key was not sent"
        echo = f"key {key} or {key[:9]}…{key[-9:]}"
        for fault in (
            *(Fault(status, echo) for status in (400, 401, 413, 429, 500, 503)),
            Fault(429, echo, {"Retry-After": "99999"}),
            Fault(kind="reset"),
            Fault(kind="garbage"),
            Fault(kind="cut"),
            Fault(kind="width"),
            Fault(delay_s=1.0),
        ):
            server.choose = lambda request, fault=fault: fault
            with pytest.raises(ProviderError) as error:
                made(server, name, engine=kind, max_tries="2", timeout_s="0.2").embed(["a", "b"])
            assert isinstance(error.value, TransientError | PermanentError | PartialEmbedError)
            seen += [*traceback.format_exception(error.value), repr(error.value)]
            seen.append(repr(pickle.dumps(error.value)))
        server.choose, server.key = (lambda request: None), "x" * 24
        with pytest.raises(PermanentError, match="HTTP 401") as error:
            made(server, name, engine=kind).embed(["a"])
        seen += [*traceback.format_exception(error.value), repr(error.value)]
    out, err = capfd.readouterr()
    seen += [out, err, *(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)]
    everything = "\n".join(seen)
    pieces = {key[i : i + 8] for i in range(len(key) - 7)}
    assert not [piece for piece in pieces if piece in everything]
    assert f"{name}-***" in everything, "nothing was masked, so nothing was tested"


def test_a_key_is_needed_away_from_this_machine() -> None:
    for name in ("cohere", "jina", "openai", "voyage"):
        spec = SPECS[name]
        with pytest.raises(
            ProviderUnavailableError, match=f"{spec.env[0]} is not set; export {spec.env[0]}="
        ):
            load_attribute(spec.load)(spec)
        with pytest.raises(ProviderUnavailableError, match="is not set"):
            load_attribute(spec.load)(spec, base_url="https://proxy.test/v1")


def test_a_key_that_no_header_can_carry_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "jina_secret_€_0123456789")
    with pytest.raises(InvalidArgumentError, match="character 13 of JINA_API_KEY cannot stand in") as error:
        load_attribute(SPECS["jina"].load)(SPECS["jina"])
    assert "secret" not in str(error.value)


def test_a_wrong_key_ends_a_long_call_at_once(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    server.key = "the-right-key"
    monkeypatch.setenv("VOYAGE_API_KEY", "another-key")
    with pytest.raises(PermanentError, match=r"HTTP 401: .*; check VOYAGE_API_KEY"):
        made(server, "voyage", batch="2", concurrency="2").embed([f"text {i}" for i in range(100)])
    assert len(server.requests) <= 2
    monkeypatch.setenv("VOYAGE_API_KEY", "the-right-key\n")
    assert made(server, "voyage").embed(["a"]).shape == (1, 1024)
    assert server.requests[-1].headers["authorization"] == "Bearer the-right-key"

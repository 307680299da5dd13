"""Every embedding service against a server here that speaks its format.

The formats and where they were read (November 2026) stand in :mod:`rag_core.testing.server`.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._pacing import Timers
from rag_core.errors import (
    InvalidArgumentError,
    PartialEmbedError,
    PermanentError,
    TransientError,
)
from rag_core.testing.server import Fault, FaultServer

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

SPECS = {spec.name: spec for spec in EMBEDDERS if spec.target == "api"}
NAMES = sorted(SPECS)
INDEXED = ["jina", "openai", "voyage"]


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_the_servers_own_and_tokens_are_counted(
    server: FaultServer, name: str, made: Any, expected: Any
) -> None:
    provider = made(server, name)
    texts = [f"text {i} of many" for i in range(140)]
    for role in ("document", "query"):
        np.testing.assert_allclose(
            provider.embed(texts, role=role), expected(server, name, texts, role), rtol=0, atol=1e-6
        )
    extra = 2 * 140 if name == "ollama" else 0  # the prefixes are words too
    assert provider.stats.tokens == provider.transport.stats.tokens == 2 * 4 * 140 + extra
    assert provider.transport.stats.texts == 280
    assert provider.transport.stats.requests == len(server.requests)
    assert max(len(request.texts) for request in server.requests) <= provider.limits.texts
    assert provider.is_local


def test_o08_one_text_that_breaks_the_model_costs_no_other(made: Any, expected: Any) -> None:
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
def test_o09_no_blank_reaches_a_service(server: FaultServer, name: str, made: Any, expected: Any) -> None:
    provider = made(server, name)
    vectors = provider.embed(["a", "", "  \n", "b"])
    assert len(server.requests) == 1
    assert len(server.requests[0].texts) == 2
    np.testing.assert_allclose(vectors[[0, 3]], expected(server, name, ["a", "b"]), rtol=0, atol=1e-6)
    assert not vectors[1:3].any()
    assert provider.stats.blank == 2


@pytest.mark.parametrize("name", NAMES)
def test_o10_every_row_has_length_one(server: FaultServer, name: str, made: Any) -> None:
    vectors = made(server, name).embed([f"text {i}" for i in range(40)])
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name, model",
    [("jina", ""), ("openai", ""), ("ollama", ""), ("voyage", "voyage-3.5"), ("cohere", "embed-v4.0")],
)
def test_o10_a_shortened_vector_has_length_one_too(
    server: FaultServer, name: str, model: str, made: Any
) -> None:
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
    server: FaultServer, name: str, width: str, made: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"option dimensions is {width}; accepted for "):
        made(server, name, dimensions=width)
    assert not server.requests


def test_o10_a_server_that_ignores_the_width_is_an_error(server: FaultServer, made: Any) -> None:
    server.dim = 200
    with pytest.raises(PermanentError, match="openai: the service answers vectors 200 wide; expected 256"):
        made(server, "openai", dimensions="256").embed(["a"])


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("kind", ["reordered", "short", "duplicate"])
def test_o12_vectors_go_to_their_texts_by_index(
    server: FaultServer, name: str, kind: str, made: Any, expected: Any
) -> None:
    server.plan(Fault(kind=kind))
    texts = ["zero", "one", "two"]
    vectors = made(server, name).embed(texts)
    np.testing.assert_allclose(vectors, expected(server, name, texts), rtol=0, atol=1e-6)
    again = [request.texts for request in server.requests[1:]]
    assert again == {"reordered": [], "short": [["one"]], "duplicate": [["zero", "two"]]}[kind]


@pytest.mark.parametrize("name", INDEXED)
def test_o12_a_text_whose_vector_never_comes_is_named(
    server: FaultServer, name: str, made: Any, expected: Any
) -> None:
    server.choose = lambda request: Fault(kind="short") if "one" in request.texts else None
    with pytest.raises(PartialEmbedError) as error:
        made(server, name).embed(["zero", "one", "", "two"])
    assert list(error.value.failed) == [1]
    assert "asked 3 times" in error.value.failed[1]
    found = error.value.vectors[[0, 3]]
    np.testing.assert_allclose(found, expected(server, name, ["zero", "two"]), rtol=0, atol=1e-6)


def test_o13_each_service_is_told_the_role_as_it_wants_it(made: Any) -> None:
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


def test_o13_prefixes_for_a_model_behind_an_open_server(server: FaultServer, made: Any) -> None:
    provider = made(
        server, "openai", "e5", dim="16", query_template="query: {text}", document_template="passage: {text}"
    )
    provider.embed(["x"])
    provider.embed(["x"], role="query")
    assert [request.texts for request in server.requests] == [["passage: x"], ["query: x"]]
    bare = provider.with_templates("{text}", "{text}")
    bare.embed(["x"], role="query")
    assert server.requests[-1].texts == ["x"]
    assert (provider.stats.texts, bare.stats.texts) == (2, 1)
    with pytest.raises(
        InvalidArgumentError, match=r"query_template is 'query: '; accepted: a text with \{text\}"
    ):
        made(server, "openai", query_template="query: ")


def test_o16_a_batch_too_large_is_halved_and_never_sent_as_it_was(
    server: FaultServer, made: Any, expected: Any
) -> None:
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


def test_o16_what_a_server_takes_is_learnt(server: FaultServer, made: Any) -> None:
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
def test_o16_a_finished_batch_survives_an_outage(
    server: FaultServer, name: str, made: Any, expected: Any
) -> None:
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
def test_o17_retry_after_is_obeyed_in_seconds_and_as_a_date(
    server: FaultServer, name: str, made: Any
) -> None:
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
    assert slept == pytest.approx([3.15, 3.15, 9.45, 2.0, 4.0])
    assert provider.transport.stats.waited_s == pytest.approx(sum(slept))
    assert provider.transport.stats.n_429 == 5
    server.plan(Fault(429, "slow", {"Retry-After": "99999"}))
    with pytest.raises(TransientError, match=f"^{name}: .*asks to wait 99999 s, more than the 60 s"):
        provider.embed(["a"])
    for status in (400, 401, 403, 404, 422):
        before = len(server.requests)
        fresh = made(server, name)
        server.plan(Fault(status, "no"))
        with pytest.raises(PermanentError) as error:
            fresh.embed(["a"])
        assert error.value.status == status
        assert len(server.requests) == before + 1


def test_long_texts_are_refused_or_cut_as_asked(server: FaultServer, made: Any) -> None:
    fields = {"cohere": ("truncate", "NONE", "END"), "jina": ("truncate", False, True)}
    fields |= {"voyage": ("truncation", False, True), "ollama": ("truncate", False, True)}
    for name, (field, refuse, cut) in fields.items():
        long = "word " * 40_000
        for option, value in (("error", refuse), ("truncate", cut)):
            provider = made(server, name, long=option)
            provider.embed([long, "short"])
            assert server.requests[-1].body[field] == value
            assert provider.stats.truncated == (option == "truncate")
    provider = made(server, "openai", long="truncate")
    provider.embed(["word " * 40_000, "short"])
    assert provider.stats.truncated == 1
    assert 20_000 < len(server.requests[-1].texts[0]) < 32_000
    assert server.requests[-1].texts[1] == "short"


def test_the_width_of_an_unknown_model_is_found_by_asking(server: FaultServer, made: Any) -> None:
    server.dim = 24
    assert made(server, "openai", "acme/model").embed(["a"]).shape == (1, 24)
    assert made(server, "ollama", "acme-model").embed(["a"]).shape == (1, 24)
    assert made(server, "cohere", "embed-new", dim="24").dim == 24
    assert len(server.requests) == 4
    server.choose = lambda request: Fault(429, "insufficient_quota")
    with pytest.raises(TransientError):
        made(server, "jina", "jina-new")


def test_fingerprints_tell_servers_models_and_widths_apart(server: FaultServer, made: Any) -> None:
    first = made(server, "openai")
    assert first.fingerprint.revision == server.url("openai")
    others = [made(server, "openai", "text-embedding-3-large"), made(server, "openai", dimensions="512")]
    digests = {each.fingerprint.digest for each in [first, *others]}
    assert len(digests) == 3
    assert made(server, "openai", encoding="float", concurrency="1").fingerprint == first.fingerprint


def test_float_and_base64_are_the_same_vectors(server: FaultServer, made: Any) -> None:
    for name in ("openai", "voyage"):
        texts = [f"text {i}" for i in range(5)]
        both = [made(server, name, encoding=encoding).embed(texts) for encoding in ("base64", "float")]
        np.testing.assert_array_equal(*both)
        assert [request.body.get("encoding_format") for request in server.requests[-2:]] == ["base64", None]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_and_values_are_refused(server: FaultServer, name: str, made: Any) -> None:
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


def test_tokens_a_minute_bound_the_requests(server: FaultServer, made: Any) -> None:
    provider = made(server, "openai", tpm="1000", dimensions="16")
    assert provider.limits.tokens == 100

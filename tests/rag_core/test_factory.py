from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest

from rag_core import factory, registry
from rag_core.errors import (
    InvalidArgumentError,
    ProviderUnavailableError,
    SpecStringError,
    UnknownNameError,
)
from rag_core.factory import (
    SpecString,
    get_default_embedder,
    get_default_reranker,
    get_embedder,
    get_reranker,
    provider_order,
    resolve,
)
from rag_core.registry import Registry, Spec


class Made:
    """What the loader below returns: the spec and options that it was given."""

    def __init__(self, spec: Spec, options: dict[str, str]) -> None:
        self.spec, self.options = spec, options


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch):
    """Empty registries, no plug-in, and a module ``acme_provider`` with a loader."""
    embedders, rerankers = Registry("embedding provider"), Registry("reranker")
    for module in (registry, factory):
        monkeypatch.setattr(module, "EMBEDDERS", embedders)
        monkeypatch.setattr(module, "RERANKERS", rerankers)
    monkeypatch.setattr(registry, "_loaded", set())
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    for name in ("RAG_EMBED_PROVIDER", "RAG_RERANK_PROVIDER", "RAG_PROVIDER_ORDER", "RAG_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    provider = ModuleType("acme_provider")

    def load(spec: Spec, *, threads: str = "", size: str = "") -> Made:
        return Made(spec, {"threads": threads, "size": size})

    def fail(spec: Spec) -> Made:
        raise TypeError("a bug of the provider's own")

    provider.load, provider.fail = load, fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_provider", provider)
    return embedders, rerankers


def spec(name: str, target: str = "cpu", **values: object) -> Spec:
    values.setdefault("load", "acme_provider:load")
    return Spec(name, f"model-{name}", target, 4, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("fake", SpecString("fake")),
        (" e5-small@cpu ", SpecString("e5-small", "", "cpu")),
        ("ollama:nomic-embed-text:v1.5", SpecString("ollama", "nomic-embed-text:v1.5")),
        (
            "st:BAAI/bge-m3@nvidia?dtype=fp16&batch=8",
            SpecString("st", "BAAI/bge-m3", "nvidia", {"dtype": "fp16", "batch": "8"}),
        ),
        ("fake?fail=a%26b+c", SpecString("fake", options={"fail": "a&b c"})),
        ("fake?fail=", SpecString("fake", options={"fail": ""})),
    ],
)
def test_spec_strings_parse_and_print(text: str, expected: SpecString) -> None:
    parsed = SpecString.parse(text)
    assert parsed == expected
    assert SpecString.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "the name is empty"),
        ("@cpu", "the name is empty"),
        ("a:", "the model is empty"),
        ("a@gpu", "the target is 'gpu'"),
        ("a@", "the target is ''"),
        ("a?threads", "the options are 'threads'"),
        ("a?", "there are no options after '?'"),
    ],
)
def test_malformed_spec_strings_are_refused_with_the_grammar(text: str, problem: str) -> None:
    with pytest.raises(SpecStringError) as error:
        SpecString.parse(text)
    assert problem in str(error.value)
    assert "name[:model][@target][?option=value" in str(error.value)


def test_order_of_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.factory.is_apple_silicon", lambda: True)
    assert provider_order({}) == ("api", "mlx", "nvidia", "cpu")
    assert provider_order({"RAG_PROVIDER_ORDER": " cpu , api,"}) == ("cpu", "api")
    with pytest.raises(InvalidArgumentError, match="RAG_PROVIDER_ORDER names 'gpu'; accepted: api, mlx"):
        provider_order({"RAG_PROVIDER_ORDER": "gpu,cpu"})


def test_mlx_is_chosen_unasked_on_apple_silicon_only(tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.devices.why_not", lambda target: "")
    tables[0].add(spec("both", "mlx"), spec("both"))
    chosen = {}
    for apple in (True, False):
        monkeypatch.setattr("rag_core.factory.is_apple_silicon", lambda apple=apple: apple)
        chosen[apple] = (
            provider_order({}),
            get_embedder("both", {}).spec.target,
            get_default_embedder({}).spec.target,
            get_default_embedder({"RAG_PROVIDER_ORDER": "mlx,cpu"}).spec.target,
            get_embedder("both@mlx", {}).spec.target,
        )
    assert chosen[True] == (("api", "mlx", "nvidia", "cpu"), "mlx", "mlx", "mlx", "mlx")
    assert chosen[False] == (("api", "nvidia", "cpu"), "cpu", "cpu", "mlx", "mlx")


def test_the_model_of_the_spec_string_replaces_the_default(tables) -> None:
    tables[0].add(spec("a"))
    assert get_embedder("a", {}).spec.model == "model-a"
    assert get_embedder("a:other", {}).spec.model == "other"


def test_options_reach_the_loader_as_text(tables) -> None:
    tables[0].add(spec("a"))
    assert get_embedder("a?threads=2&size=x", {}).options == {"threads": "2", "size": "x"}


def test_an_unknown_option_is_named(tables) -> None:
    tables[0].add(spec("a"))
    with pytest.raises(InvalidArgumentError, match=r"embedding provider 'a\?colour=red': .*'colour'"):
        get_embedder("a?colour=red", {})


def test_a_providers_own_type_error_is_not_disguised(tables) -> None:
    tables[0].add(spec("a", load="acme_provider:fail"))
    with pytest.raises(TypeError, match="a bug of the provider's own"):
        get_embedder("a", {})


def test_the_first_available_target_of_the_order_is_taken(tables) -> None:
    tables[0].add(spec("a"), spec("a", "api", env=("A_KEY",)))
    assert get_embedder("a", {}).spec.target == "cpu"
    assert get_embedder("a", {"A_KEY": "k"}).spec.target == "api"
    assert get_embedder("a@cpu", {"A_KEY": "k"}).spec.target == "cpu"
    assert get_embedder("a", {"A_KEY": "k", "RAG_PROVIDER_ORDER": "cpu"}).spec.target == "cpu"


def test_all_reasons_stand_in_the_refusal(tables) -> None:
    tables[0].add(spec("a", "api", env=("A_KEY",)), spec("a", requires=("no_such_package",), extra="acme"))
    with pytest.raises(ProviderUnavailableError) as error:
        resolve(tables[0], "a", {})
    message = str(error.value)
    assert "api: A_KEY is not set" in message
    assert "cpu: package 'no_such_package' is not installed" in message
    assert "export A_KEY" in message


def test_an_unknown_name_is_a_value_error_with_the_nearest(tables) -> None:
    tables[0].add(spec("minilm"))
    with pytest.raises(ValueError, match="unknown embedding provider 'minilmm'; did you mean 'minilm'"):
        get_embedder("minilmm", {})


def test_a_server_that_is_named_needs_neither_key_nor_search(tables) -> None:
    tables[0].add(spec("a", "api", env=("A_KEY",), missing="no_such_module:missing", load="builtins:dict"))
    found, parsed = resolve(tables[0], "a?base_url=http://127.0.0.1:1", {})
    assert (found.env, found.missing) == ((), "")
    assert parsed.options == {"base_url": "http://127.0.0.1:1"}
    with pytest.raises(ProviderUnavailableError, match="A_KEY is not set"):
        resolve(tables[0], "a", {})


@pytest.mark.parametrize(
    "env, expected",
    [
        ({"A_KEY": "k"}, "cloud"),
        ({}, "first"),
        ({"A_KEY": "k", "RAG_PROVIDER_ORDER": "cpu,api"}, "first"),
        ({"A_KEY": "k", "RAG_EMBED_PROVIDER": "second"}, "second"),
        ({"RAG_EMBED_PROVIDER": " second?threads=2 "}, "second"),
        ({"RAG_EMBED_PROVIDER": "  "}, "first"),
    ],
)
def test_choice_of_the_default(tables, env: dict[str, str], expected: str) -> None:
    tables[0].add(
        spec("test-double", auto=False),
        spec("away", requires=("no_such_package",)),
        spec("first"),
        spec("second"),
        spec("cloud", "api", env=("A_KEY",)),
    )
    assert get_default_embedder(env).spec.name == expected


def test_the_default_that_is_named_is_taken_exactly_or_refused(tables) -> None:
    tables[0].add(spec("fake"), spec("a"), spec("cloud", "api", env=("A_KEY",)))
    with pytest.raises(UnknownNameError, match="did you mean 'cloud'"):
        get_default_embedder({"RAG_EMBED_PROVIDER": "clowd"})
    with pytest.raises(ProviderUnavailableError, match="A_KEY is not set"):
        get_default_embedder({"RAG_EMBED_PROVIDER": "cloud"})


def test_nothing_available_falls_to_the_fake_with_a_warning(tables, caplog: pytest.LogCaptureFixture) -> None:
    tables[0].add(spec("fake", auto=False), spec("a", requires=("no_such_package",)))
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert get_default_embedder({}).spec.name == "fake"
    (record,) = caplog.records
    assert "vectors mean nothing" in record.getMessage()
    assert "bench providers" in record.getMessage()


def test_rerankers_fall_to_noop_without_one(tables, caplog: pytest.LogCaptureFixture) -> None:
    tables[1].add(spec("noop", auto=False), spec("cross", requires=("no_such_package",)))
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert get_default_reranker({}).spec.name == "noop"
    assert not caplog.records
    tables[1].add(spec("cross"))
    assert get_default_reranker({}).spec.name == "cross"
    assert get_default_reranker({"RAG_RERANK_PROVIDER": "noop"}).spec.name == "noop"
    assert get_reranker("cross?size=1", {}).options["size"] == "1"


def test_the_process_environment_is_the_default(tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables[0].add(spec("a"), spec("b"))
    monkeypatch.setenv("RAG_EMBED_PROVIDER", "b")
    assert get_default_embedder().spec.name == "b"


def test_the_choice_is_logged(tables, caplog: pytest.LogCaptureFixture) -> None:
    tables[0].add(spec("a"))
    with caplog.at_level(logging.INFO, "rag_core"):
        get_default_embedder({})
    assert "a@cpu chosen by auto-detection" in caplog.text

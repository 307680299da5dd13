from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest

from rag_core import devices, registry
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import Registry, Spec, load_attribute, load_plugins, nearest


def spec(name: str = "alpha", target: str = "cpu", **values: object) -> Spec:
    return Spec(name, f"model-{name}", target, 4, "builtins:dict", **values)  # type: ignore[arg-type]


def filled(*specs: Spec) -> Registry:
    made = Registry("embedding provider")
    made.add(*specs)
    return made


@pytest.fixture
def fresh_plugins(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """No plug-in loaded yet, empty registries, and a module ``acme_plugin`` that adds ``acme``."""
    monkeypatch.setattr(registry, "_loaded", set())
    monkeypatch.setattr(registry, "EMBEDDERS", Registry("embedding provider"))
    monkeypatch.setattr(registry, "RERANKERS", Registry("reranker"))
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    plugin = ModuleType("acme_plugin")
    plugin.calls = 0  # type: ignore[attr-defined]

    def register(registries: registry.Registries) -> None:
        plugin.calls += 1  # type: ignore[attr-defined]
        registries.embedders.add(spec("acme"))
        registries.rerankers.add(spec("acme-rerank"))

    plugin.register = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_plugin", plugin)
    return plugin


def test_names_once_in_order_of_registration() -> None:
    made = filled(spec("b"), spec("a"), spec("b", "mlx"))
    assert made.names() == ["b", "a"]
    assert [(s.name, s.target) for s in made] == [("b", "cpu"), ("a", "cpu"), ("b", "mlx")]


def test_a_later_spec_of_the_same_name_and_target_replaces() -> None:
    made = filled(spec("a", note="old"), spec("b"), spec("a", note="new"))
    assert [s.note for s in made.find("a")] == ["new"]
    assert made.names() == ["a", "b"]


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'a': target is 'gpu'; accepted: api, mlx, nvidia, cpu"):
        filled(spec("a", "gpu"))


@pytest.mark.parametrize("typed, meant", [("e5-smal", "e5-small"), ("minlm", "minilm"), ("bge", "bge-m3")])
def test_a_misspelt_name_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    made = filled(spec("e5-small"), spec("minilm"), spec("bge-m3"))
    with pytest.raises(
        UnknownNameError, match=f"unknown embedding provider '{typed}'; did you mean .*'{meant}'"
    ):
        made.find(typed)
    with pytest.raises(ValueError):
        made.find(typed)


def test_a_name_near_to_none_is_answered_with_all() -> None:
    assert nearest("zzzz", ["b", "a"]) == "; accepted: a, b"
    assert nearest("zzzz", []) == "; accepted: none is registered"


def test_find_by_target() -> None:
    made = filled(spec("a"), spec("a", "mlx"))
    assert [s.target for s in made.find("a")] == ["cpu", "mlx"]
    assert [s.target for s in made.find("a", "mlx")] == ["mlx"]
    with pytest.raises(UnknownNameError, match="'a' has no target 'nvidia'; accepted: cpu, mlx"):
        made.find("a", "nvidia")


def test_a_missing_package_gives_the_pip_line() -> None:
    answer = filled().availability(spec(requires=("json", "no_such_package"), extra="acme"))
    assert not answer.ok
    assert answer.reason == "package 'no_such_package' is not installed"
    assert answer.hint == "run: pip install 'rag-core-bench[acme]'"
    assert filled().availability(spec(requires=("no_such_package",))).hint == ""
    assert not filled().availability(spec(requires=("no_such_package.sub",))).ok


@pytest.mark.parametrize("env", [{}, {"ACME_API_KEY": ""}, {"ACME_API_KEY": "  "}])
def test_a_missing_or_blank_key_gives_the_variable(env: dict[str, str]) -> None:
    answer = filled().availability(spec(target="api", env=("ACME_API_KEY",)), env)
    assert not answer.ok
    assert answer.reason == "ACME_API_KEY is not set"
    assert answer.hint == "export ACME_API_KEY=…"


def test_what_has_all_it_needs_is_available() -> None:
    answer = filled().availability(
        spec(target="api", env=("ACME_API_KEY",), requires=("json",)), {"ACME_API_KEY": "k"}
    )
    assert answer.ok
    assert answer.reason == ""


@pytest.mark.parametrize("target", ["mlx", "nvidia"])
def test_a_device_that_is_not_there_gives_its_reason(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "why_not", lambda asked: f"no {asked} here")
    answer = filled().availability(spec(target=target))
    assert not answer.ok
    assert answer.reason == f"no {target} here"
    monkeypatch.setattr(devices, "why_not", lambda asked: "")
    assert filled().availability(spec(target=target)).ok


@pytest.mark.parametrize("target, hint", [("api", ""), ("cpu", "use a?path=FOLDER, or set RAG_MODELS_DIR")])
def test_what_is_missing_gives_its_reason(target: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("acme_missing")
    module.missing = lambda given: f"no {given.name} here"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_missing", module)
    answer = filled().availability(spec("a", target, missing="acme_missing:missing"))
    assert (answer.ok, answer.reason, answer.hint) == (False, "no a here", hint)


def test_create_calls_the_loader_with_the_options() -> None:
    made = filled()
    module = ModuleType("acme_loader")
    module.load = lambda given, **options: (given.name, options)  # type: ignore[attr-defined]
    sys.modules["acme_loader"] = module
    try:
        one = Spec("a", "m", "cpu", 4, "acme_loader:load")
        assert made.create(one, threads="2") == ("a", {"threads": "2"})
    finally:
        del sys.modules["acme_loader"]


def test_load_attribute() -> None:
    assert load_attribute("os.path:join") is __import__("os").path.join
    for malformed in ("os.path", "os:", ":join"):
        with pytest.raises(InvalidArgumentError, match="accepted: module:attribute"):
            load_attribute(malformed)


def test_a_plug_in_named_in_the_environment_is_called_once(fresh_plugins: ModuleType) -> None:
    env = {"RAG_PLUGINS": " acme_plugin:register , "}
    load_plugins(env)
    load_plugins(env)
    assert fresh_plugins.calls == 1
    assert registry.EMBEDDERS.names() == ["acme"]
    assert registry.RERANKERS.names() == ["acme-rerank"]


def test_a_plug_in_of_an_entry_point_is_called(
    fresh_plugins: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name, value = "acme", "acme_plugin:register"

    asked = []
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or [Point()])
    load_plugins({})
    assert asked == ["rag_core.plugins"]
    assert registry.EMBEDDERS.names() == ["acme"]


def test_without_an_environment_given_the_process_has_its_say(
    fresh_plugins: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_PLUGINS", "acme_plugin:register")
    load_plugins()
    assert fresh_plugins.calls == 1


def test_a_broken_plug_in_is_logged_and_the_others_work(
    fresh_plugins: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rag_core"):
        load_plugins({"RAG_PLUGINS": "no_such_module:register,acme_plugin:typo,acme_plugin:register"})
    assert registry.EMBEDDERS.names() == ["acme"]
    first, second = (record.getMessage() for record in caplog.records)
    assert "no_such_module:register (RAG_PLUGINS) failed: ModuleNotFoundError" in first
    assert "acme_plugin:typo" in second
    assert "AttributeError" in second

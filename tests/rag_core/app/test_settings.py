"""Which provider and which reranker a command takes, and from where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_core import get_embedder
from rag_core.app import settings
from rag_core.app.settings import (
    analyser_for,
    chain_of,
    read_settings,
    record_chain,
    recorded_chain,
    reranker_for,
    search_options,
    service_for,
)
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError, UnknownNameError
from rag_core.fingerprint import Fingerprint
from rag_core.service_config import ServiceConfig


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("COHERE", "JINA", "VOYAGE"):
        monkeypatch.delenv(f"{service}_API_KEY", raising=False)
    for kind in ("EMBED", "RERANK"):
        monkeypatch.delenv(f"RAG_{kind}_PROVIDER", raising=False)
    monkeypatch.chdir(tmp_path)


def unasked() -> Fingerprint:
    raise AssertionError("the identity is not needed")


def test_the_file_of_the_folder_is_read_and_may_name_no_provider() -> None:
    assert read_settings(None) == ServiceConfig()
    Path("rag.toml").write_text("[search]\ntop_k = 3\n")
    assert read_settings(None).search == {"top_k": 3}
    with pytest.raises(InvalidArgumentError, match=r"other\.toml cannot be read"):
        read_settings(Path("other.toml"))


def test_the_option_comes_before_the_file_the_environment_and_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = ServiceConfig(chain=["fake-minilm", "fake"])
    monkeypatch.setenv("RAG_EMBED_PROVIDER", "fake-jina")
    assert chain_of(file, "fake-e5-small", ["fake"]) == ["fake-e5-small"]
    assert chain_of(file, "", ["fake-cohere"]) == ["fake-minilm", "fake"]
    assert chain_of(ServiceConfig(), "", ["fake"]) == ["fake-jina"]
    monkeypatch.delenv("RAG_EMBED_PROVIDER")
    assert chain_of(ServiceConfig(), "", ["fake-cohere"]) == ["fake-cohere"]


def test_with_nothing_available_the_fake_stands_in_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings, "default_spec", lambda registry: "")
    assert chain_of(ServiceConfig(), "") == ["fake"]
    assert "vectors mean nothing" in caplog.text


def test_a_wrong_name_is_refused_and_a_missing_key_is_told() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fake-minilm'"):
        service_for(ServiceConfig(), "fake-minilmm")
    with pytest.raises(ProviderUnavailableError, match="COHERE_API_KEY is not set"):
        service_for(ServiceConfig(), "cohere")
    # an index of that provider can still answer by words
    assert service_for(ServiceConfig(), "", ["cohere"]).name == "cohere"
    assert service_for(ServiceConfig(chain=["cohere", "fake"]), "").name == "cohere"


def test_the_budget_of_the_option_comes_before_that_of_the_file() -> None:
    file = ServiceConfig(max_usd=5)
    for given, expected in ((None, 5), (1.5, 1.5)):
        budget = service_for(file, "fake", max_usd=given).budget
        assert budget is not None
        assert budget.max_usd == expected


def test_an_index_remembers_its_chain(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    record_chain(tmp_path, ["onnx?path=model", "ollama?base_url=http://me:planted@host:1"])
    first, second = recorded_chain(tmp_path, unasked)
    assert first.startswith("onnx?path=")
    assert str(tmp_path).replace("/", "%2F") in first
    assert "planted" not in second
    assert "planted" not in (tmp_path / "provider.json").read_text()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"chain": [1]}', '{"chain": []}'])
def test_without_a_record_the_identity_tells(tmp_path: Path, text: str) -> None:
    (tmp_path / "provider.json").write_text(text)
    assert recorded_chain(tmp_path, lambda: get_embedder("fake").fingerprint) == ["fake"]
    other = Fingerprint("ollama", "all-minilm", "1", 8, "fp32", "mean")
    assert recorded_chain(tmp_path, lambda: other) == ["ollama:all-minilm"]


def test_the_passthrough_is_no_reranker_unless_it_is_asked_for() -> None:
    assert reranker_for(ServiceConfig(), "") == (None, [])
    reranker, _ = reranker_for(ServiceConfig(), "noop")
    assert reranker is not None
    assert reranker.name == "noop"


def test_the_reranker_of_the_file_with_its_fallback() -> None:
    file = ServiceConfig(rerankers=["fake-overlap", "noop"])
    reranker, _ = reranker_for(file, "")
    assert reranker is not None
    assert reranker.name == "fallback(fake-overlap,noop)"
    with pytest.raises(UnknownNameError, match="unknown reranker"):
        reranker_for(file, "overlapp")


def test_a_reranker_of_other_languages_is_warned_of() -> None:
    asked = []

    def corpus() -> list[str]:
        asked.append(1)
        return ["en", "pt"]

    for name in ("noop", "fake-overlap"):  # made for any language: nobody looks at the documents
        assert reranker_for(ServiceConfig(), name, corpus=corpus)[1] == []
    assert not asked
    _, warnings = reranker_for(ServiceConfig(rerankers=["maxsim", "noop"]), "", corpus=corpus)
    assert warnings == [
        "reranker maxsim is made for en; the documents also have pt, where it loses precision"
    ]


def test_options_come_before_the_file_and_nothing_is_made_up() -> None:
    file = ServiceConfig(search={"top_k": 3, "rrf_k": 20}, rerank={"mix": "ranks", "timeout_s": 2})
    assert search_options(file, top_k=None, score_threshold=0.5) == {
        "top_k": 3,
        "rrf_k": 20,
        "rerank_mix": "ranks",
        "rerank_timeout_s": 2,
        "score_threshold": 0.5,
    }
    assert search_options(ServiceConfig(), top_k=None) == {}


def test_the_record_is_not_written_again_when_nothing_has_changed(tmp_path: Path) -> None:
    record_chain(tmp_path, ["fake"])
    path = tmp_path / "provider.json"
    before = path.stat().st_ino
    record_chain(tmp_path, ["fake"])
    assert path.stat().st_ino == before
    record_chain(tmp_path, ["fake-jina"])
    assert json.loads(path.read_text()) == {"chain": ["fake-jina"]}


def test_how_a_new_index_reads_words() -> None:
    assert analyser_for(ServiceConfig()) is None
    told = analyser_for(ServiceConfig(index={"languages": ["pt"]}))
    assert told is not None
    assert told.config() == {"languages": ["pt"], "stem": True, "stop": True}
    raw = analyser_for(ServiceConfig(index={"analyser": "raw"}))
    assert raw is not None
    assert raw.config() == {"languages": [], "stem": False, "stop": False}
    with pytest.raises(InvalidArgumentError, match="analyser is 'magic'; accepted: language, raw"):
        analyser_for(ServiceConfig(index={"analyser": "magic"}))
    with pytest.raises(InvalidArgumentError, match="knows no languages"):
        analyser_for(ServiceConfig(index={"analyser": "raw", "languages": ["pt"]}))

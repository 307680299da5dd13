"""providers/onnx.py and providers/_st_folder.py, on a model that looks token vectors up in a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers import _onnx_write as write
from providers._st_folder import ModelFolder
from providers.onnx import _width, load
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError

pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")
SPEC = next(spec for spec in EMBEDDERS if spec.name == "onnx")
WORDS = ["[CLS]", "[SEP]", "[UNK]", "q:", "d:", "water", "bill", "dog"]
TABLE = np.random.default_rng(1).normal(size=(len(WORDS), 4)).astype(np.float32)


def model(
    output: str = "last_hidden_state", pooled: bool = False, inputs=("input_ids", "attention_mask")
) -> bytes:
    nodes = [write.node("Gather", ["table", "input_ids"], ["tokens" if pooled else output])]
    shape: tuple[Any, ...] = ("batch", "n", 4)
    if pooled:
        nodes.append(write.node("ReduceMax", ["tokens"], [output], axes=[1], keepdims=0))
        shape = ("batch", 4)
    return write.model(
        "table",
        nodes,
        [write.tensor("table", TABLE)],
        [write.value_info(name, write.INT64, ("batch", "n")) for name in inputs],
        [write.value_info(output, write.FLOAT, shape)],
        {"": 17},
        8,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    path = tmp_path / "tiny-model"
    (path / "1_Pooling").mkdir(parents=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "model.onnx").write_bytes(model())
    put(path, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    put(path, "config.json", {"hidden_size": 4, "max_position_embeddings": 8})
    put(path, "config_sentence_transformers.json", {"prompts": {"query": "q: ", "passage": "d: "}})
    return path


def put(folder: Path, name: str, values: Any) -> None:
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


def direction(rows: list[int], how: str = "mean") -> np.ndarray:
    vector = (
        TABLE[rows].mean(axis=0)
        if how == "mean"
        else TABLE[rows[0]]
        if how == "cls"
        else TABLE[rows].max(axis=0)
    )
    return vector / np.linalg.norm(vector)


def test_everything_comes_from_the_models_files(folder: Path) -> None:
    embedder = load(SPEC, path=str(folder), threads="1")
    fingerprint = embedder.fingerprint
    assert (embedder.model, embedder.dim, embedder.max_tokens) == ("tiny-model", 4, 8)
    assert (fingerprint.pooling, fingerprint.dtype, fingerprint.batching) == ("mean", "stored", "any")
    assert (fingerprint.query_template, fingerprint.document_template) == ("q: {text}", "d: {text}")
    assert len(fingerprint.revision) == 16
    vectors = embedder.embed(["water bill", "dog"])
    assert np.allclose(vectors, [direction([0, 4, 5, 6, 1]), direction([0, 4, 7, 1])], atol=1e-6)
    assert np.allclose(embedder.embed(["dog"], role="query"), direction([0, 3, 7, 1]), atol=1e-6)
    assert embedder.count_tokens(["dog " * 20]) == [23], "the tokenizer's own cutting and padding are off"
    assert embedder.runtime["file"] == "model.onnx"


def test_options_stand_above_the_files(folder: Path) -> None:
    for name in ("1_Pooling/config.json", "config.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    embedder = load(
        SPEC,
        path=str(folder),
        pooling="cls",
        query_prompt="",
        document_prompt="q: ",
        max_tokens="5",
        threads="1",
    )
    assert np.allclose(embedder.embed(["dog"]), direction([0], "cls"), atol=1e-6)
    assert embedder.fingerprint.query_template == "{text}"
    assert (embedder.fingerprint.document_template, embedder.max_tokens) == ("q: {text}", 5)


def test_a_graph_that_pools_itself_is_taken_as_it_is(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "model.onnx").write_bytes(model("sentence_embedding", pooled=True))
    embedder = load(SPEC, path=str(folder), threads="1")
    assert embedder.fingerprint.pooling == "model"
    assert np.allclose(embedder.embed(["dog"]), direction([0, 4, 7, 1], "max"), atol=1e-6)
    with pytest.raises(
        ProviderUnavailableError, match=r"outputs are sentence_embedding; accepted: .*last_hidden"
    ):
        load(SPEC, path=str(folder), pooling="mean")


def test_the_name_of_the_file_says_its_dtype(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model_int8.onnx").write_bytes(model() + write._bytes(2, "DynamicQuantizeLinear"))
    both = load(SPEC, path=str(folder)), load(SPEC, path=str(folder), dtype="int8")
    assert [e.fingerprint.dtype for e in both] == ["stored", "int8"]
    assert both[0].fingerprint.revision != both[1].fingerprint.revision
    assert both[1].fingerprint.batching == "one text a call", "it chooses one scale for a whole call"
    assert both[1]._runner.token_budget == 0
    with pytest.raises(
        ProviderUnavailableError, match=r"no model_q4\.onnx.*there: model\.onnx, onnx/model_int8"
    ):
        load(SPEC, path=str(folder), dtype="q4")
    (folder / "model.onnx").unlink()
    assert load(SPEC, path=str(folder)).fingerprint.dtype == "int8", "the only file there is"
    (folder / "onnx" / "model_int8.onnx").rename(folder / "model_odd.onnx")
    assert load(SPEC, path=str(folder)).fingerprint.dtype == "stored"


def test_external_data_is_part_of_the_revision(folder: Path) -> None:
    before = load(SPEC, path=str(folder)).fingerprint.revision
    (folder / "model.onnx_data").write_bytes(b"weights")
    assert load(SPEC, path=str(folder)).fingerprint.revision != before


@pytest.mark.parametrize(
    "name, message",
    [
        ("model.onnx", r"no model\.onnx or model_fp32\.onnx in .*there: no model\*\.onnx"),
        ("tokenizer.json", r"tokenizer\.json is missing"),
        ("1_Pooling/config.json", r"1_Pooling/config\.json is missing.*pooling=mean or pooling=cls"),
        ("config.json", r"no file in .* says how many tokens.*max_tokens="),
        ("config_sentence_transformers.json", r"is missing.*query_prompt= and document_prompt="),
    ],
)
def test_a_missing_file_is_named_with_what_replaces_it(name: str, message: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(ProviderUnavailableError, match=message):
        load(SPEC, path=str(folder))


def test_a_damaged_model_is_named(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(ProviderError, match=f"^onnx: onnxruntime cannot open {folder / 'model.onnx'}"):
        load(SPEC, path=str(folder))


def test_damaged_files_are_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ProviderError, match=r"tokenizer\.json cannot be read"):
        load(SPEC, path=str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(ProviderError, match=r"config\.json is not JSON"):
        ModelFolder("onnx", folder).window()
    put(folder, "config.json", [1])
    with pytest.raises(ProviderError, match=r"config\.json holds a list"):
        ModelFolder("onnx", folder).window()


def test_a_model_with_unknown_inputs_is_refused(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(model(inputs=("input_ids", "attention_mask", "pixel_values")))
    with pytest.raises(
        ProviderUnavailableError, match=r"takes pixel_values; accepted inputs: attention_mask"
    ):
        load(SPEC, path=str(folder))


def test_the_module_list_says_where_pooling_is_and_what_cannot_be_done(folder: Path) -> None:
    files = ModelFolder("onnx", folder)
    (folder / "Pool").mkdir()
    put(folder, "Pool/config.json", {"pooling_mode": "cls"})
    modules = [{"type": "a.b.Transformer", "path": ""}, {"type": "a.b.Pooling", "path": "Pool"}]
    put(folder, "modules.json", modules)
    assert files.pooling() == "cls"
    put(folder, "Pool/config.json", {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True})
    with pytest.raises(
        ProviderUnavailableError, match=r"asks for pooling .*max_tokens.*accepted: one of mean, cls"
    ):
        files.pooling()
    put(folder, "modules.json", [*modules, {"type": "a.b.Dense", "path": "2_Dense"}])
    with pytest.raises(ProviderUnavailableError, match="has a module 'Dense'"):
        files.pooling()


@pytest.mark.parametrize(
    "files, window",
    [
        ({"sentence_bert_config.json": {"max_seq_length": 6}}, 6),
        ({"tokenizer_config.json": {"model_max_length": 7}}, 7),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 8),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 8),
        ({"config.json": {"max_position_embeddings": 514, "model_type": "xlm-roberta"}}, 512),
    ],
)
def test_the_window_is_that_of_the_narrowest_authority(files: dict, window: int, folder: Path) -> None:
    for name, values in files.items():
        put(folder, name, values)
    assert ModelFolder("onnx", folder).window() == window


def test_a_window_that_is_no_number_is_refused(folder: Path) -> None:
    put(folder, "sentence_bert_config.json", {"max_seq_length": "long"})
    with pytest.raises(ProviderError, match=r"sentence_bert_config\.json limits texts to 'long' tokens"):
        ModelFolder("onnx", folder).window()


def test_prompts_by_default_name_and_none(folder: Path) -> None:
    files, name = ModelFolder("onnx", folder), "config_sentence_transformers.json"
    put(folder, name, {"prompts": {}, "default_prompt_name": None})
    assert files.prompts() == ("", "")
    put(folder, name, {"prompts": {"s2s": "x ", "query": "q "}, "default_prompt_name": "s2s"})
    assert files.prompts() == ("q ", "x ")
    put(folder, name, {"prompts": {}, "default_prompt_name": "gone"})
    with pytest.raises(InvalidArgumentError, match="has no prompt 'gone'"):
        files.prompts()


def test_the_width_is_read_or_asked_for(folder: Path) -> None:
    files, open_ended = ModelFolder("onnx", folder), SimpleNamespace(shape=["batch", "n", "width"])
    assert _width(SPEC, SimpleNamespace(shape=["batch", "n", 7]), files) == 7
    assert _width(SPEC, open_ended, files) == 4
    put(folder, "config.json", {"max_position_embeddings": 8})
    with pytest.raises(ProviderUnavailableError, match=r"expected hidden_size in config\.json"):
        _width(SPEC, open_ended, files)


def test_no_folder_and_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"onnx: no folder; accepted: onnx\?path=FOLDER"):
        load(SPEC)
    with pytest.raises(ProviderUnavailableError, match="gone is not a folder"):
        load(SPEC, path=str(tmp_path / "gone"))


@pytest.mark.parametrize(
    "options", [{"threads": "0"}, {"pooling": "max"}, {"dtype": "fp8"}, {"max_tokens": "2"}]
)
def test_bad_options_are_refused(options: dict[str, str], folder: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=f"onnx: option {next(iter(options))} is"):
        load(SPEC, path=str(folder), **options)


def test_without_the_packages_the_pip_line_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[onnx\]'"):
        load(SPEC, path=str(folder))

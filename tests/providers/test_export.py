"""`providers/_export.py`: refusals anywhere; real exports of tiny random models where torch is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from providers import EMBEDDERS, RERANKERS, _export
from providers._export import FILES, export
from providers._sentences import SENTENCES
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.registry import load_attribute

SPEC = next(spec for spec in EMBEDDERS if spec.export)
CROSS = next(spec for spec in RERANKERS if spec.name == "cross-encoder")
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz0123456789.,áéíóúüñçãõ图书馆",
    "the",
    "##e",
]


def test_the_hook_is_this_function() -> None:
    assert load_attribute(SPEC.export) is export


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dtypes": ["int3"]}, "option --dtype is 'int3'; accepted: 'fp32', 'fp16', 'int8', 'q8'"),
        ({"dtypes": []}, "no --dtype; accepted: fp32, fp16, int8, q8"),
        ({"opset": 9}, "option --opset is 9; accepted: a whole number from 14 to 20"),
    ],
)
def test_options_outside_what_is_accepted(options, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        export(SPEC, str(tmp_path), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    with pytest.raises(InvalidArgumentError, match="is not an empty folder; choose another --out"):
        export(SPEC, "m", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_missing_package_gives_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"torch.*pip install 'rag-core-bench\[local\]'"):
        export(SPEC, str(tmp_path), tmp_path / "out")


local = pytest.mark.embeddings_local
needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "onnx", "onnxruntime")),
    reason="needs pip install 'rag-core-bench[local]'",
)


def _tokenizer(folder: Path, pair_types: int) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Split("", "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{pair_types} [SEP]:{pair_types}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """``sentence``: a sentence model, its transformer in a folder below; ``pairs``: a classifier."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=300, num_labels=1, initializer_range=0.4,
    )  # fmt: skip
    root = tmp_path_factory.mktemp("models")
    sentence, pairs = root / "sentence", root / "pairs"
    below = sentence / "0_Transformer"
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(below)
    transformers.BertForSequenceClassification(config).save_pretrained(pairs)
    _tokenizer(below, 0)
    _tokenizer(pairs, 1)
    (pairs / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 300}))
    (below / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 280}))
    (sentence / "1_Pooling").mkdir()
    (sentence / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    prompts = {"prompts": {"query": "q ", "document": ""}}
    (sentence / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    parts = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in parts]
    (sentence / "modules.json").write_text(json.dumps(modules))
    return {"sentence": sentence, "pairs": pairs}


@local
@needs_torch
def test_a_sentence_model_becomes_a_folder_that_the_onnx_provider_reads(models, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = export(SPEC, str(models["sentence"]), out, tuple(FILES))
    assert done.folder == out
    assert done.command == f"bench run --provider 'onnx?path={out}'"
    assert done.notes == ()
    assert [file.dtype for file in done.files] == list(FILES)
    by_dtype = {file.dtype: file for file in done.files}
    assert by_dtype["fp32"].agrees
    assert by_dtype["fp32"].agreement["minimum"] > 0.99999
    assert by_dtype["fp16"].agrees
    for file in done.files:
        assert (out / file.name).stat().st_size == file.size_bytes
        assert file.agreement["minimum"] <= file.agreement["p1"] <= 1.000001
    vectors = {}
    for dtype in FILES:
        embedder = load_attribute(SPEC.load)(SPEC, path=str(out), dtype=dtype)
        assert (embedder.fingerprint.pooling, embedder.max_tokens) == ("cls", 280)
        assert embedder.fingerprint.query_template == "q {text}"
        vectors[dtype] = embedder.embed(SENTENCES[:8])
    reference = vectors["fp32"]
    for dtype, least in (("fp16", 0.999), ("q8", 0.98), ("int8", 0.9)):
        assert np.einsum("ij,ij->i", vectors[dtype], reference).min() > least
    assert not list(tmp_path.glob("**/.out.*")), "nothing is left of the work"


@local
@needs_torch
def test_a_classifier_becomes_a_folder_that_the_reranker_reads(models, tmp_path: Path) -> None:
    import torch
    import transformers

    out = tmp_path / "out"
    out.mkdir()  # an empty folder will do
    done = export(SPEC, str(models["pairs"]), out, ("fp32", "q8"))
    assert done.command == f"bench run --reranker 'cross-encoder?path={out}'"
    assert done.files[0].agreement["spearman"] == pytest.approx(1)
    assert sorted(file.name for file in out.glob("*.onnx")) == ["model.onnx", "model_q8.onnx"]
    reranker = load_attribute(CROSS.load)(CROSS, path=str(out))
    query, candidates = SENTENCES[0], list(SENTENCES[1:4])
    scores = reranker.rerank(query, candidates)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(models["pairs"]).eval()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(models["pairs"] / "tokenizer.json"))
    for score, candidate in zip(scores, candidates):
        made = tokenizer.encode(query, candidate)
        assert 1 in made.type_ids
        with torch.inference_mode():
            logits = model(torch.tensor([made.ids]), token_type_ids=torch.tensor([made.type_ids])).logits
        assert score == pytest.approx(logits.item(), abs=1e-3)


@local
@needs_torch
def test_what_the_folder_does_not_say_is_said(make_bert, models, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in (models["sentence"] / "0_Transformer").iterdir():
        (plain / file.name).write_bytes(file.read_bytes())
    done = export(SPEC, str(plain), tmp_path / "out", ("fp16",))
    assert done.command.endswith("/out&dtype=fp16'")
    assert len(done.notes) == 2
    assert "no pooling: mean is taken" in done.notes[0]
    assert not (tmp_path / "out" / "model.onnx").exists(), "fp32 was not asked for"
    embedder = load_attribute(SPEC.load)(SPEC, path=str(tmp_path / "out"), dtype="fp16")
    assert embedder.fingerprint.pooling == "mean"


@local
@needs_torch
def test_a_failure_leaves_nothing(models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("tool failed")

    monkeypatch.setitem(_export.WRITERS, "int8", broken)
    with pytest.raises(ProviderError, match=r"cannot be written as int8 .*tool failed.*leave int8 out"):
        export(SPEC, str(models["sentence"]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@local
@needs_torch
def test_a_place_that_cannot_be_written_is_said(models, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgumentError, match=r"cannot be made .*choose another --out"):
        export(SPEC, str(models["sentence"]), tmp_path / "file" / "out")


@local
@needs_torch
def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ProviderUnavailableError, match=r"no tokenizer\.json"):
        export(SPEC, str(tmp_path), tmp_path / "out")
    with pytest.raises(ProviderUnavailableError, match="no weights of owner/none"):
        export(SPEC, "owner/none", tmp_path / "out")

"""Architectures that are not BERT's, through sentence-transformers' own modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._torch_embed import load_torch
from rag_core.errors import InvalidArgumentError, ProviderError, ProviderUnavailableError

pytestmark = pytest.mark.embeddings_local
ST = next(spec for spec in EMBEDDERS if (spec.name, spec.target) == ("st", "cpu"))
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "q", ":", *"abcdefghijkl"]
TEXTS = ["a b c", "d", "e f g h i j k l a b", "l l"]
NO_PROMPTS = {"query_prompt": "", "document_prompt": ""}


@pytest.fixture(scope="session")
def modules() -> Any:
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    import sentence_transformers.sentence_transformer.modules as found

    return found


def saved(folder: Path, kind: str) -> Path:
    """A random encoder in ``folder``, as transformers saves one."""
    import tokenizers
    import torch
    import transformers

    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(4)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=24,
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40, initializer_range=0.3,
    )  # fmt: skip
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def distilbert(modules: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("distilbert"), "distilbert")


def test_another_architecture_agrees(distilbert: Path, modules: Any) -> None:
    import sentence_transformers

    first = modules.Transformer(str(distilbert))
    for pooling in ("mean", "cls"):
        last = modules.Pooling(first.get_embedding_dimension(), pooling)
        model = sentence_transformers.SentenceTransformer(modules=[first, last], device="cpu")
        expected = model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
        embedder = load_torch(ST, path=str(distilbert), pooling=pooling, **NO_PROMPTS)
        assert (embedder.embed(TEXTS) * expected).sum(axis=1).min() > 0.99999
        assert embedder.fingerprint.pooling == pooling
        assert embedder.runtime["forward"] == "sentence-transformers"
        assert embedder.max_tokens == 24
        assert embedder.count_tokens(["a " * 30]) == [32], "the tokenizer's own cutting is off"


def test_nothing_is_guessed(distilbert: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="or say pooling=mean or pooling=cls"):
        load_torch(ST, path=str(distilbert), **NO_PROMPTS)
    with pytest.raises(ProviderUnavailableError, match="or say query_prompt= and document_prompt="):
        load_torch(ST, path=str(distilbert), pooling="mean")


def test_every_module_of_the_folder_counts(distilbert: Path, modules: Any, tmp_path: Path) -> None:
    """A pooling and a layer that this project's own forward does not have; a BERT too takes this way then."""
    import sentence_transformers
    import torch

    first = modules.Transformer(str(distilbert))
    torch.manual_seed(1)
    parts = [first, modules.Pooling(32, "max"), modules.Dense(32, 8)]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
    model.prompts = {"query": "q : ", "document": ""}
    model.save(str(tmp_path))
    embedder = load_torch(ST, path=str(tmp_path))
    assert (embedder.dim, embedder.fingerprint.pooling) == (8, "model")
    for role in ("query", "document"):
        expected = model.encode(TEXTS, prompt_name=role, normalize_embeddings=True, show_progress_bar=False)
        assert (embedder.embed(TEXTS, role=role) * expected).sum(axis=1).min() > 0.99999
    with pytest.raises(InvalidArgumentError, match=r"option pooling is 'cls'; .*modules\.json decides it"):
        load_torch(ST, path=str(tmp_path), pooling="cls")
    dense = next(tmp_path.glob("2_Dense/config.json"))
    dense.write_text(dense.read_text() + "\n")
    assert load_torch(ST, path=str(tmp_path)).fingerprint.revision != embedder.fingerprint.revision


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_a_pooling_module_decides_who_computes(kind: str, modules: Any, tmp_path: Path) -> None:
    import sentence_transformers

    first = modules.Transformer(str(saved(tmp_path / "plain", kind)))
    for pooling, forward in (("cls", "own"), ("max", "sentence-transformers")):
        model = sentence_transformers.SentenceTransformer(
            modules=[first, modules.Pooling(32, pooling), modules.Normalize()], device="cpu"
        )
        model.save(str(tmp_path / pooling))
        expected = model.encode(TEXTS, show_progress_bar=False)
        embedder = load_torch(ST, path=str(tmp_path / pooling))
        assert (embedder.embed(TEXTS) * expected).sum(axis=1).min() > 0.99999
        assert embedder.runtime["forward"] == (forward if kind == "bert" else "sentence-transformers")


def test_a_prompt_left_out_of_pooling_is_refused(modules: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path, "bert")
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ProviderUnavailableError, match=r"leaves its prompt out of pooling"):
        load_torch(ST, path=str(folder), query_prompt="q: ", document_prompt="")
    assert np.isfinite(load_torch(ST, path=str(folder), **NO_PROMPTS).embed(TEXTS)).all()


def test_an_unknown_architecture_is_told(distilbert: Path, tmp_path: Path) -> None:
    for file in distilbert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "unheard-of"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ProviderError, match=r"sentence-transformers cannot load .*unheard-of"):
        load_torch(ST, path=str(tmp_path), pooling="mean", **NO_PROMPTS)

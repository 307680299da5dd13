"""Rows of 8 bits: one product against numpy, a tiny encoder against its floats."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from providers import _bert_rows
from providers import _onnx_write as onnx
from providers._bert_onnx import CONTRIB, IR_VERSION, OPSET, Floats, Graph, encoder_graph, source_of
from providers._bert_rows import (
    Product,
    Ranges,
    measure,
    rows_graph,
    smoothing,
    takes_lengths,
    watched,
)
from providers._bert_weights import BertWeights, read_bert
from rag_core.errors import MissingExtraError

from .tiny_rows import MASK, MEASURED, SPEC, answer, measured


class Rows(Floats):
    """A BERT's matrices, each for itself."""

    def matrix(self, name):
        return self.floats(f"{name}.weight"), self.floats(f"{name}.bias")


def test_a_product_is_right_to_the_rounding_of_its_weights() -> None:
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(1)
    weights = rng.normal(0, 0.1, (24, 64)).astype(np.float32)
    weights[3] = 0
    bias = rng.normal(0, 1, 24).astype(np.float32)
    rows = rng.integers(0, 256, (2, 5, 64)).astype(np.uint8)
    graph = Graph()
    product = Product.of(weights, np.zeros(64, np.float32))
    assert not product.lost.any()
    product.add(graph, "rows", "y", 0.02, 100, bias)
    model = onnx.model(
        "product", graph.nodes, graph.tensors, [onnx.value_info("rows", 2, ("batch", "tokens", 64))],
        [onnx.value_info("y", onnx.FLOAT, ("batch", "tokens", 24))], {"": OPSET, CONTRIB: 1}, IR_VERSION,
    )  # fmt: skip
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = session.run(None, {"rows": rows})[0]
    exact = (rows.astype(np.float64) - 100) * 0.02 @ weights.T
    assert np.linalg.norm(found - bias - exact) < 0.01 * np.linalg.norm(exact)
    np.testing.assert_allclose(found[..., 3], np.broadcast_to(bias[3], (2, 5)), rtol=1e-6)


def test_what_rounding_takes_off_on_average_is_known() -> None:
    rng = np.random.default_rng(2)
    weights = rng.normal(0, 1, (4, 32)).astype(np.float32)
    vectors = rng.normal(3, 1, (500, 32)).astype(np.float32)
    product = Product.of(weights, vectors.mean(axis=0))
    rounded = product.rounded * product.scale[:, None]
    np.testing.assert_allclose((vectors @ (weights - rounded).T).mean(axis=0), product.lost, atol=1e-4)
    assert np.abs(product.lost).max() > 0.01


def test_smoothing_is_loudness_against_weights_on_a_grid() -> None:
    loud, weights = np.array([1, 32, 32], np.float32), np.array([[1, 1, -32], [0.5, 0.1, 1]], np.float32)
    # 32 ** 0.6 = 8; 32 ** 0.6 / 32 ** 0.4 = 2
    np.testing.assert_allclose(smoothing(loud, weights, 0.6), [1, 8, 2], rtol=1e-6)
    nudged = smoothing(loud * np.float32(1.000001), weights, 0.6)
    np.testing.assert_array_equal(nudged, smoothing(loud, weights, 0.6))
    zeros = smoothing(np.zeros(3, np.float32), np.zeros((2, 3), np.float32), 0.6)
    assert np.isfinite(zeros).all()


def test_ranges_are_those_of_the_tensors(make_bert) -> None:
    runtime = pytest.importorskip("onnxruntime")
    weights = read_bert(SPEC, make_bert()[0])
    ranges = measured(weights)
    names = watched(weights.shape)
    assert sorted(names) == sorted(ranges.low) == sorted(ranges.high) == sorted(ranges.mean)
    assert sorted(ranges.tops) == ["layer0.active", "layer1.active"]
    model = encoder_graph("tiny", source_of(weights, "fp32"), names)
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    # texts are cut to the model's positions
    rows = [np.array([row[: weights.shape.positions]]) for row in MEASURED]
    for name in ("hidden", "layer1.active", "layer0.v"):
        answers = [session.run([name], {"input_ids": r, "attention_mask": r * 0 + 1})[0][0] for r in rows]
        joined = np.concatenate(answers)
        np.testing.assert_allclose(ranges.low[name], joined.min(axis=0), atol=1e-5)
        np.testing.assert_allclose(ranges.high[name], joined.max(axis=0), atol=1e-5)
        np.testing.assert_allclose(ranges.mean[name], joined.mean(axis=0), atol=1e-5)
        middle, half = ranges.middle(name), ranges.half(name)
        assert (joined <= middle + half + 1e-5).all()
        assert (joined >= middle - half - 1e-5).all()
    tops = session.run(["layer1.active"], {"input_ids": rows[1], "attention_mask": rows[1] * 0 + 1})
    assert 0 < ranges.tops["layer1.active"] <= tops[0].max()


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_an_encoder_of_rows_is_near_its_floats_and_no_text_depends_on_another(
    activation: str, lengths: bool, make_bert, cosines
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    if lengths and not takes_lengths(runtime.__version__):
        pytest.skip("needs onnxruntime 1.25")
    weights = read_bert(SPEC, make_bert("bert", activation)[0])
    model = rows_graph("tiny", Rows(weights), measured(weights), lengths)
    exact = answer(encoder_graph("tiny", source_of(weights, "fp32")))
    found = answer(model)
    # two random layers of 32 feel the rounding more than twelve trained ones of 384
    assert cosines(found, exact)[MASK == 1].min() > 0.99
    np.testing.assert_allclose(found[1:, :3], answer(model, slice(1, 2), 3), atol=1e-5)


def _odd_channels(weights: BertWeights, factor: float, shift: float) -> BertWeights:
    """``weights`` with a normalised channel that is ``factor`` times as loud, and read as quietly, and every
    other one ``shift`` above the rest.
    """
    tensors = {name: np.array(values) for name, values in weights.tensors.items()}
    for name, values in tensors.items():
        if name.endswith("LayerNorm.weight"):
            values[:] = 1
            values[7] = factor
        elif name.endswith("LayerNorm.bias"):
            values[::2] += shift
        elif name.endswith(("query.weight", "key.weight", "value.weight", "intermediate.dense.weight")):
            values[:, 7] /= factor
    return replace(weights, tensors=tensors)


def _error(weights: BertWeights, ranges: Ranges) -> float:
    """Of all channels but the loud one, relative to what they should be."""
    exact = answer(encoder_graph("tiny", source_of(weights, "fp32")))[MASK == 1]
    found = answer(rows_graph("tiny", Rows(weights), ranges, lengths=False))[MASK == 1]
    found, exact = np.delete(found, 7, axis=-1), np.delete(exact, 7, axis=-1)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def test_a_loud_channel_does_not_drown_the_others(make_bert, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = _odd_channels(read_bert(SPEC, make_bert()[0]), 40, 0)
    ranges = measured(weights)
    smooth = _error(weights, ranges)
    monkeypatch.setattr(_bert_rows, "smoothing", lambda loud, weights, moved: np.ones_like(loud))
    assert _error(weights, ranges) > 10 * smooth


def test_the_middles_taken_off_are_given_back(make_bert) -> None:
    weights = _odd_channels(read_bert(SPEC, make_bert()[0]), 1, 3)
    ranges = measured(weights)
    for name in ("hidden", "layer0.attended", "layer0.hidden", "layer1.attended", "layer0.v", "layer1.v"):
        assert np.abs(ranges.middle(name)).max() > 1, "or nobody would see it missing"
    assert _error(weights, ranges) < 0.02


@pytest.mark.parametrize(
    "version, takes",
    [("1.25.0", True), ("1.32.0", True), ("2.0", True), ("1.24.4", False), ("1.9.0", False), ("dev", False)],
)
def test_lengths_need_a_runtime_that_heeds_them(version: str, takes: bool) -> None:
    assert takes_lengths(version) is takes


def test_measuring_needs_the_runtime(make_bert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="onnxruntime"):
        measure(SPEC, b"", read_bert(SPEC, make_bert()[0]).shape, [])

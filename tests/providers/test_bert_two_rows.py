"""Two rows of 8 bits a vector: a tiny encoder against its floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from providers import RERANKERS, _bert_two_rows
from providers._bert_onnx import encoder_graph, source_of
from providers._bert_rows import Ranges, measure, rows_graph, takes_lengths, watched
from providers._bert_two_rows import two_rows_graph
from providers._bert_weights import BertWeights, read_bert
from providers._minilm_rows import RowFloats

SPEC = RERANKERS[0]
#: Texts to measure on and texts to answer, of the tiny encoder's 40 words.
MEASURED = [[1, 8, 30, 2], [1, 9, 2] * 80, [1, *range(5, 40), 2], [1, 7, 9, 30, 2], [1, 5, 2]]
IDS = np.array([[1, 7, 9, 30, 2], [1, 5, 2, 0, 0]])
MASK = np.array([[1] * 5, [1] * 3 + [0] * 2])


def _stored_in_8_bits(weights: BertWeights) -> BertWeights:
    """``weights`` with matrices that 8 bits and a scale for each output hold without a loss."""
    tensors = dict(weights.tensors)
    for name, values in tensors.items():
        if values.ndim == 2 and "embeddings" not in name:
            scale = np.abs(values).max(axis=1, keepdims=True) / 127
            tensors[name] = (np.rint(values / scale) * scale).astype(np.float32)
    return replace(weights, tensors=tensors)


def _measured(weights: BertWeights) -> Ranges:
    model = encoder_graph("tiny", source_of(weights, "fp32"), watched(weights.shape))
    return measure(SPEC, model, weights.shape, MEASURED)


def _answer(model: bytes, rows: slice = slice(2), length: int = 5) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {"input_ids": IDS[rows, :length], "attention_mask": MASK[rows, :length]}
    return session.run(["last_hidden_state"], feed)[0]


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_two_rows_are_their_floats_and_no_text_depends_on_another(
    activation: str, lengths: bool, make_bert, cosines
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    if lengths and not takes_lengths(runtime.__version__):
        pytest.skip("needs onnxruntime 1.25")
    weights = _stored_in_8_bits(read_bert(SPEC, make_bert("bert", activation)[0]))
    ranges = _measured(weights)
    model = two_rows_graph("tiny", RowFloats(weights), ranges, lengths)
    exact = _answer(encoder_graph("tiny", source_of(weights, "fp32")))[MASK == 1]
    found = _answer(model)
    far = 1 - cosines(found[MASK == 1], exact)
    assert far.max() < 1e-4
    once = _answer(rows_graph("tiny", RowFloats(weights), ranges, lengths))[MASK == 1]
    assert far.mean() < (1 - cosines(once, exact)).mean() / 20
    np.testing.assert_allclose(found[1:, :3], _answer(model, slice(1, 2), 3), atol=1e-5)


def test_activations_beyond_what_was_measured_stay_right(make_bert, cosines) -> None:
    weights = _stored_in_8_bits(read_bert(SPEC, make_bert()[0]))
    ranges = _measured(weights)
    third = replace(
        ranges,
        low={name: values / 3 for name, values in ranges.low.items()},
        high={name: values / 3 for name, values in ranges.high.items()},
    )
    assert _bert_two_rows.MARGIN > 3
    exact = _answer(encoder_graph("tiny", source_of(weights, "fp32")))[MASK == 1]
    found = _answer(two_rows_graph("tiny", RowFloats(weights), third, lengths=False))[MASK == 1]
    assert cosines(found, exact).min() > 0.9999

"""Two rows of 8 bits a vector: a tiny encoder against its floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from providers import _bert_two_rows
from providers._bert_onnx import encoder_graph, source_of
from providers._bert_rows import rows_graph, takes_lengths
from providers._bert_two_rows import two_rows_graph
from providers._bert_weights import BertWeights, read_bert
from providers._minilm_rows import RowFloats

from .tiny_rows import MASK, SPEC, answer, measured


def _stored_in_8_bits(weights: BertWeights) -> BertWeights:
    """``weights`` with matrices that 8 bits and a scale for each output hold without a loss."""
    tensors = dict(weights.tensors)
    for name, values in tensors.items():
        if values.ndim == 2 and "embeddings" not in name:
            scale = np.abs(values).max(axis=1, keepdims=True) / 127
            tensors[name] = (np.rint(values / scale) * scale).astype(np.float32)
    return replace(weights, tensors=tensors)


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_two_rows_are_their_floats_and_no_text_depends_on_another(
    activation: str, lengths: bool, make_bert, cosines
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    if lengths and not takes_lengths(runtime.__version__):
        pytest.skip("needs onnxruntime 1.25")
    weights = _stored_in_8_bits(read_bert(SPEC, make_bert("bert", activation)[0]))
    ranges = measured(weights)
    model = two_rows_graph("tiny", RowFloats(weights), ranges, lengths)
    exact = answer(encoder_graph("tiny", source_of(weights, "fp32")))[MASK == 1]
    found = answer(model)
    far = 1 - cosines(found[MASK == 1], exact)
    assert far.max() < 1e-4
    once = answer(rows_graph("tiny", RowFloats(weights), ranges, lengths))[MASK == 1]
    assert far.mean() < (1 - cosines(once, exact)).mean() / 20
    np.testing.assert_allclose(found[1:, :3], answer(model, slice(1, 2), 3), atol=1e-5)


def test_activations_beyond_what_was_measured_stay_right(make_bert, cosines) -> None:
    weights = _stored_in_8_bits(read_bert(SPEC, make_bert()[0]))
    ranges = measured(weights)
    third = replace(
        ranges,
        low={name: values / 3 for name, values in ranges.low.items()},
        high={name: values / 3 for name, values in ranges.high.items()},
    )
    assert _bert_two_rows.MARGIN > 3
    exact = answer(encoder_graph("tiny", source_of(weights, "fp32")))[MASK == 1]
    found = answer(two_rows_graph("tiny", RowFloats(weights), third, lengths=False))[MASK == 1]
    assert cosines(found, exact).min() > 0.9999

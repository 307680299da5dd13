"""What the tests of encoders in 8-bit rows share: texts of the tiny encoder's 40 words, ranges, answers."""

from __future__ import annotations

import numpy as np
import pytest

from providers import EMBEDDERS
from providers._bert_onnx import encoder_graph, source_of
from providers._bert_rows import Ranges, measure, watched
from providers._bert_weights import BertWeights

SPEC = EMBEDDERS[0]
MEASURED = [[1, 8, 30, 2], [1, 9, 2] * 200, [1, *range(5, 40), 2], [1, 7, 9, 30, 2], [1, 5, 2]]
IDS = np.array([[1, 7, 9, 30, 2], [1, 5, 2, 0, 0]])
MASK = np.array([[1] * 5, [1] * 3 + [0] * 2])


def measured(weights: BertWeights) -> Ranges:
    """The ranges of its tensors on :data:`MEASURED`."""
    model = encoder_graph("tiny", source_of(weights, "fp32"), watched(weights.shape))
    return measure(SPEC, model, weights.shape, MEASURED)


def answer(model: bytes, rows: slice = slice(2), length: int = 5) -> np.ndarray:
    """Token vectors of ``rows`` of :data:`IDS`, their first ``length`` tokens."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {"input_ids": IDS[rows, :length], "attention_mask": MASK[rows, :length]}
    return session.run(["last_hidden_state"], feed)[0]

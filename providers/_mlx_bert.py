"""A BERT-like encoder on MLX: any dtype, any of the three outputs, everything on the device to the last step.

MLX computes nothing until it is asked for: :func:`mlx_call` answers values that are on the host, so that
whoever holds a clock stops it after the work and not after the promise of it.
"""

from __future__ import annotations

import importlib
import math
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from providers._bert_weights import LAYER, BertShape, BertWeights
from providers._common import choice, require
from providers._rows import Call, Ids
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = [
    "DEVICES",
    "DTYPES",
    "OUTPUTS",
    "POOLINGS",
    "Device",
    "device",
    "import_mlx",
    "mlx_call",
    "runtime_info",
]


class Device(NamedTuple):
    """What suits a kind of device.

    Attributes:
        dtype: of the weights where none is asked for, and of the activations beside quantised weights.
        token_budget: tokens of one call, padding included.
    """

    dtype: str
    token_budget: int


#: Kind of MLX's default device -> settings. Halves take half the memory and their vectors are those of floats
#: (least cosine 0.999998 for MiniLM); MLX's CPU has no kernels for them. A GPU wants calls that fill it; its
#: budget is a guess that nobody has measured yet.
DEVICES = {"gpu": Device("fp16", 8192), "cpu": Device("fp32", 256)}
#: dtype -> MLX's name of it.
FLOATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
#: dtype -> bits of a weight.
QUANTISED = {"q8": 8, "q4": 4}
DTYPES = (*FLOATS, *QUANTISED)
OUTPUTS = ("sentence", "tokens", "logits")
POOLINGS = ("mean", "cls")
#: Weights that share a scale, per bits: the largest count that divides a row. Smaller ones cost memory
#: (half a bit a weight at 64, one at 32) and win accuracy, which 4 bits need.
GROUPS = {8: (64, 32), 4: (32,)}
#: Tensors of a classifier's head, as Hugging Face's BERT and its RoBERTa name them: dense, then logits.
HEADS = (("pooler.dense", "classifier"), ("classifier.dense", "classifier.out_proj"))


def import_mlx(spec: Spec) -> tuple[Any, Any]:
    """``mlx.core`` and ``mlx.nn``.

    Raises:
        MissingExtraError: mlx is not installed.
        ProviderUnavailableError: it is and cannot be loaded, for example without the library it wraps.
    """
    require(spec, "mlx")
    try:
        return importlib.import_module("mlx.core"), importlib.import_module("mlx.nn")
    except ImportError as error:
        raise ProviderUnavailableError(spec.name, f"mlx cannot be loaded ({error})") from error


def device(mx: Any) -> str:
    """``gpu`` or ``cpu``: where MLX computes unless told otherwise."""
    return "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu"


def runtime_info(mx: Any) -> dict[str, Any]:
    """What stands in a result about the library that computes; how it was made sure that the device had
    finished when the clock was stopped is ``sync``.
    """
    try:
        found = version("mlx")
    except PackageNotFoundError:  # built from source without metadata
        found = str(getattr(mx, "__version__", ""))
    return {"library": "mlx", "version": found, "device": device(mx), "sync": "mx.eval"}


def mlx_call(
    spec: Spec, weights: BertWeights, dtype: str, output: str = "sentence", pooling: str = "mean"
) -> Call:
    """A :data:`providers._rows.Call` of the encoder in ``weights``.

    Args:
        spec: whose name errors begin with.
        weights: the encoder; its tensors are copied to the device and evaluated before this returns.
        dtype: one of :data:`DTYPES`. ``q8`` and ``q4`` quantise the matrices and the word table.
        output: ``sentence`` pools token vectors, float32 (rows, width); ``tokens`` gives them, float32
            (rows, tokens, width); ``logits`` runs the classifier's head, float32 (rows, labels).
        pooling: ``mean`` over the tokens that count, or ``cls``; for ``sentence`` alone.

    Returns:
        A call that any thread may make; one runs at a time.

    Raises:
        MissingExtraError: mlx is not installed.
        InvalidArgumentError: an option is outside what is accepted.
        ProviderError: a tensor is missing; from the call: a token id or a row outside the tables, which
            MLX itself would answer with whatever lies beside them.
    """
    for option, value, accepted in (
        ("dtype", dtype, DTYPES), ("output", output, OUTPUTS), ("pooling", pooling, POOLINGS)
    ):  # fmt: skip
        choice(spec.name, option, value, accepted)
    mx, nn = import_mlx(spec)
    make = _Maker(mx, weights, dtype)
    encode = _Encoder(mx, nn, make, weights.shape)
    finish: Any = {"sentence": _Pool(mx, pooling), "tokens": _as_is}.get(output)
    if finish is None:
        finish = _Head(mx, make, _head_names(spec, weights))
    # a lazy array belongs to the thread that made it: nothing lazy may be left in the model
    mx.eval(make.made)
    lock, shape = threading.Lock(), weights.shape  # the call must not keep the tensors on the host

    def call(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        _check(spec, shape, ids)
        with lock:
            seen = mx.array(np.ascontiguousarray(mask, np.float32))
            tokens = encode(mx.array(ids.astype(np.int32)), seen, mx.array(types.astype(np.int32)))
            answer = finish(tokens, seen).astype(mx.float32)
            mx.eval(answer)
            return np.array(answer, np.float32)

    return call


def _check(spec: Spec, shape: BertShape, ids: Ids) -> None:
    longest = shape.positions - shape.first_position
    if ids.shape[1] > longest:
        raise ProviderError(f"{spec.name}: a row of {ids.shape[1]} tokens; the model has {longest} positions")
    if ids.size and not 0 <= ids.min() <= ids.max() < shape.words:
        raise ProviderError(
            f"{spec.name}: token ids from {ids.min()} to {ids.max()}; the model has {shape.words}: the "
            "tokenizer is not this model's"
        )


def _as_is(tokens: Any, seen: Any) -> Any:
    return tokens


class _Maker:
    """Puts tensors on the device, in the dtype asked for."""

    def __init__(self, mx: Any, weights: BertWeights, dtype: str) -> None:
        self._mx, self._weights, self._bits = mx, weights, QUANTISED.get(dtype, 0)
        self.float = getattr(mx, FLOATS[DEVICES[device(mx)].dtype if self._bits else dtype])
        self.made: list[Any] = []

    def __call__(self, name: str) -> Any:
        """The tensor as floats."""
        array = self._mx.array(self._weights.float32(name)).astype(self.float)
        self._mx.eval(array)  # one at a time, or the float32 copies of all stand beside them
        self.made.append(array)
        return array

    def matrix(self, name: str) -> tuple[list[Any], dict[str, int]]:
        """The tensor, quantised if so asked: its parts, and how it was done; ``{}`` for plain floats."""
        array = self(name)
        fitting = [size for size in GROUPS.get(self._bits, ()) if array.shape[-1] % size == 0]
        if not fitting:
            return [array], {}
        how = {"group_size": fitting[0], "bits": self._bits}
        parts = list(self._mx.quantize(array, **how))
        self._mx.eval(parts)
        self.made[-1:] = parts
        return parts, how


class _Dense:
    """``x W^T + b``."""

    def __init__(self, mx: Any, make: _Maker, name: str) -> None:
        self._mx = mx
        self._parts, self._how = make.matrix(f"{name}.weight")
        self._bias = make(f"{name}.bias")

    def __call__(self, x: Any) -> Any:
        if self._how:
            return self._mx.quantized_matmul(x, *self._parts, transpose=True, **self._how) + self._bias
        return self._mx.addmm(self._bias, x, self._parts[0].T)


class _Layer:
    """Self-attention and feed-forward, each added to its input and normalised after that."""

    def __init__(self, mx: Any, make: _Maker, at: str, shape: BertShape, activation: Any) -> None:
        self._mx, self._shape, self._activation = mx, shape, activation
        self._query, self._key, self._value = (
            _Dense(mx, make, f"{at}attention.self.{part}") for part in ("query", "key", "value")
        )
        self._mixed = _Dense(mx, make, f"{at}attention.output.dense")
        self._inner = _Dense(mx, make, f"{at}intermediate.dense")
        self._outer = _Dense(mx, make, f"{at}output.dense")
        self._norms = [
            [make(f"{at}{part}.LayerNorm.{kind}") for kind in ("weight", "bias")]
            for part in ("attention.output", "output")
        ]

    def __call__(self, x: Any, penalty: Any) -> Any:
        mx, shape = self._mx, self._shape
        rows, tokens, dim = x.shape
        width = dim // shape.heads
        query, key, value = (
            part(x).reshape(rows, tokens, shape.heads, width).transpose(0, 2, 1, 3)
            for part in (self._query, self._key, self._value)
        )
        mixed = mx.fast.scaled_dot_product_attention(
            query, key, value, scale=1 / math.sqrt(width), mask=penalty
        )
        mixed = self._mixed(mixed.transpose(0, 2, 1, 3).reshape(rows, tokens, dim))
        x = mx.fast.layer_norm(x + mixed, *self._norms[0], shape.epsilon)
        inner = self._outer(self._activation(self._inner(x)))
        return mx.fast.layer_norm(x + inner, *self._norms[1], shape.epsilon)


class _Encoder:
    """Ids (rows, tokens) to token vectors (rows, tokens, width)."""

    def __init__(self, mx: Any, nn: Any, make: _Maker, shape: BertShape) -> None:
        self._mx, self._shape, self._float = mx, shape, make.float
        self._words, self._how = make.matrix("embeddings.word_embeddings.weight")
        self._positions = make("embeddings.position_embeddings.weight")
        self._types = make("embeddings.token_type_embeddings.weight")
        self._norm = [make(f"embeddings.LayerNorm.{kind}") for kind in ("weight", "bias")]
        activation = {"gelu": nn.gelu, "gelu_new": nn.gelu_approx, "relu": nn.relu}[shape.activation]
        self._layers = [_Layer(mx, make, LAYER.format(i), shape, activation) for i in range(shape.layers)]

    def __call__(self, ids: Any, seen: Any, types: Any) -> Any:
        mx, shape = self._mx, self._shape
        rows = [part[ids] for part in self._words]
        words = mx.dequantize(*rows, **self._how) if self._how else rows[0]
        first = shape.first_position
        # RoBERTa's kin know one type, whatever a tokenizer tells apart
        kinds = self._types[types] if shape.types > 1 else self._types[0]
        x = words + self._positions[first : first + ids.shape[1]] + kinds
        x = mx.fast.layer_norm(x, *self._norm, shape.epsilon)
        penalty = mx.where(seen[:, None, None, :] > 0, 0.0, -math.inf).astype(self._float)
        for layer in self._layers:
            x = layer(x, penalty)
        return x


class _Pool:
    """Token vectors (rows, tokens, width) to sentence vectors (rows, width), in float32."""

    def __init__(self, mx: Any, how: str) -> None:
        self._mx, self._how = mx, how

    def __call__(self, tokens: Any, seen: Any) -> Any:
        if self._how == "cls":
            return tokens[:, 0]
        weights = seen[:, :, None]
        return (tokens.astype(self._mx.float32) * weights).sum(axis=1) / weights.sum(axis=1)


class _Head:
    """The classifier on a row's first token: dense, tanh, logits."""

    def __init__(self, mx: Any, make: _Maker, names: tuple[str, str]) -> None:
        self._mx = mx
        self._dense, self._logits = (_Dense(mx, make, name) for name in names)

    def __call__(self, tokens: Any, seen: Any) -> Any:
        return self._logits(self._mx.tanh(self._dense(tokens[:, 0])))


def _head_names(spec: Spec, weights: BertWeights) -> tuple[str, str]:
    for names in HEADS:
        if all(f"{name}.weight" in weights.tensors for name in names):
            return names
    wanted = " or ".join(" and ".join(f"{name}.weight" for name in names) for names in HEADS)
    raise ProviderError(f"{spec.name}: {weights.folder} holds no classifier's head; expected {wanted}")

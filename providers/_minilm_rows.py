"""MiniLM's packaged weights, multiplied as integers: :mod:`providers._bert_two_rows`, made once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert_onnx import EMBEDDINGS, Floats, encoder_graph, once, source_of
from providers._bert_rows import measure, takes_lengths, watched
from providers._bert_two_rows import two_rows_graph
from providers._bert_weights import LAYER, BertShape, BertWeights
from providers._common import require
from providers._fitting import fitting_rows
from providers._models import MINILM
from providers._onnx_read import Model, read_model
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["CONVERTER", "RowFloats", "packaged_weights", "rows_file"]

#: Raised when the same weights give another file.
CONVERTER = 1
#: What stands before Hugging Face's names in the package's file.
PREFIX = "inner."
HEADS, EPSILON = 12, 1e-12
TABLES = ("word", "position", "token_type")
DENSE = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
CLS, SEP, FIRST_PLAIN = 101, 102, 999


class RowFloats(Floats):
    """A :class:`providers._bert_rows.RowSource`; the table of words in 16 bits."""

    def __init__(self, weights: BertWeights) -> None:
        super().__init__(weights, half=True)

    def matrix(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The matrix (out, in) and the bias (out,) of ``name``."""
        return self.floats(f"{name}.weight"), self.floats(f"{name}.bias")


def packaged_weights(path: Path) -> BertWeights:
    """The encoder in the package's ONNX file ``path``, its 8-bit weights times their scales.

    A matrix is called ``val_49`` there and its bias by Hugging Face's name, so each is found as what is
    multiplied before that bias is added.

    Raises:
        OSError: the file cannot be read.
        ProviderError: it is damaged, or lacks a weight.
    """
    model = read_model(path)
    tensors: dict[str, NDArray[np.float32]] = {}
    try:
        for table in TABLES:
            name = f"{EMBEDDINGS}{table}_embeddings.weight"
            tensors[name] = model.floats(PREFIX + name)
        _norm(model, tensors, f"{EMBEDDINGS}LayerNorm")
        layers = 0
        while f"{PREFIX}{LAYER.format(layers)}output.dense.bias" in model.tensors:
            for part in DENSE:
                _dense(model, tensors, LAYER.format(layers) + part)
            for part in NORMS:
                _norm(model, tensors, LAYER.format(layers) + part)
            layers += 1
        words, positions, types = (tensors[f"{EMBEDDINGS}{table}_embeddings.weight"] for table in TABLES)
        shape = BertShape(
            dim=words.shape[1], layers=layers, heads=HEADS,
            inner=len(tensors[f"{LAYER.format(0)}intermediate.dense.bias"]), epsilon=EPSILON,
            words=len(words), positions=len(positions), types=len(types), first_position=0,
            activation="gelu", pad=0,
        )  # fmt: skip
    except (KeyError, IndexError) as error:
        raise ProviderError(f"{path} lacks {error} of {MINILM}'s weights") from error
    return BertWeights(shape, tensors, "int8", _digest(path), path.parent)


def _norm(model: Model, tensors: dict[str, NDArray[np.float32]], name: str) -> None:
    for end in ("weight", "bias"):
        tensors[f"{name}.{end}"] = model.floats(f"{PREFIX}{name}.{end}")


def _dense(model: Model, tensors: dict[str, NDArray[np.float32]], name: str) -> None:
    bias = f"{PREFIX}{name}.bias"
    products = [each for each in model.taker(bias).inputs if each != bias]
    if len(products) != 1:
        raise KeyError(f"{name}.weight")
    tensors[f"{name}.weight"] = model.floats(model.maker(products[0]).inputs[1]).T
    tensors[f"{name}.bias"] = model.floats(bias)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def rows_file(spec: Spec, path: Path, tokenizer: Any) -> Path | bytes:
    """The 8-bit rows of the package's file ``path`` in the cache folder: see
    :func:`providers._bert_onnx.once`.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ProviderUnavailableError: there is no such file.
        ProviderError: as of :func:`packaged_weights`.
    """
    if not path.is_file():
        raise ProviderUnavailableError(spec.name, f"no model file {path}")
    lengths = takes_lengths(str(require(spec, "onnxruntime").__version__))

    def make() -> bytes:
        weights = packaged_weights(path)
        plain = range(FIRST_PLAIN, weights.shape.words)
        rows = fitting_rows(lambda text: tokenizer.encode(text).ids, plain, (CLS, SEP))
        exact = encoder_graph(MINILM, source_of(weights, "fp32"), watched(weights.shape))
        ranges = measure(spec, exact, weights.shape, rows)
        return two_rows_graph(MINILM, RowFloats(weights), ranges, lengths)

    name = f"{spec.name}-int8-rows" if lengths else f"{spec.name}-int8-rows-masked"
    return once(name, _digest(path), make, CONVERTER)

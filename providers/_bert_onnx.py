"""A BERT-like encoder written as an ONNX file with numpy alone, with the fused operators of onnxruntime.

What was tried on two cores with AVX-512 and VNNI (onnxruntime 1.32, one thread a call, all-MiniLM-L6-v2,
least cosine to fp32 on texts of 5 to 140 words):

* 8-bit blocks of 16 weights, activations as int8 in blocks too (``MatMulNBits``, accuracy level 4): 2.1
  times as fast as fp32 on one query, 1.1 to 1.4 on long batches, cosine 0.9994 on 64 sentences in 20
  languages once channels of like magnitude share a block, 0.9990 in the model's own order; blocks of 32
  take as long: 0.9991 and 0.9985; of 128 gain a tenth and fall further, 4-bit blocks to 0.88;
* ``DynamicQuantizeMatMul`` per channel: 4 and 2.3 times as fast, but cosine 0.985, and one scale for a
  whole call, so that a text depends on its neighbours;
* rows of 8 bits with a scale per token: 4.9 times as fast on one query, but 0.991, 0.997 with outliers moved
  into the weights, and any one of its four products alone takes it below 0.9993: no text depends on another,
  but it is not fp32's equal here as such rows (:mod:`providers._bert_rows`) are for e5-small;
* the fused ``Attention`` is no faster than one joined product and ``MultiHeadAttention``; the fused
  SkipLayerNormalization took ten times as long as a sum and a LayerNormalization, and the node ``Sum`` is
  there because ``Add`` would be fused into it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from providers import _onnx_write as onnx
from providers._bert_weights import LAYER, BertShape, BertWeights
from providers._cache import cache_folder, write_whole

__all__ = [
    "BLOCK",
    "CONTRIB",
    "CONVERTER",
    "INT8_ACTIVATIONS",
    "Blocks",
    "Floats",
    "Graph",
    "Source",
    "blocks_of",
    "encoder_graph",
    "inputs_of_products",
    "once",
    "source_of",
]

log = logging.getLogger("rag_core")
#: Raised when the same weights give another file.
CONVERTER = 1
OPSET, IR_VERSION = 21, 10
CONTRIB = "com.microsoft"
#: MatMulNBits: activations as int8 in blocks of a row, so that no row depends on another.
INT8_ACTIVATIONS = 4
INT32 = 6
#: Weights, and activations, that share a scale.
BLOCK = 16
#: Hugging Face's activation -> operator and its domain. ``gelu_new`` is the tanh form.
ACTIVATIONS = {"gelu": ("Gelu", CONTRIB), "gelu_new": ("FastGelu", CONTRIB), "relu": ("Relu", "")}
EMBEDDINGS, OUTPUT = "embeddings.", "last_hidden_state"


class Graph:
    """Nodes and constants of a file in the making."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.tensors: list[bytes] = []

    def add(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Any) -> str:
        """A node with one output, whose name is answered."""
        self.nodes.append(onnx.node(kind, inputs, [output], domain, **attributes))
        return output

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """``values`` under ``name``, which is answered."""
        self.tensors.append(onnx.tensor(name, values))
        return name

    def blocks(
        self, source: str, output: str, weights: NDArray[np.uint8], scales: NDArray[np.float32],
        bias: NDArray[np.float32], bits: int,
    ) -> str:  # fmt: skip
        """``source`` times a matrix in blocks: uint8 (out, in / block, bytes of a block) and float32
        scales (out, in / block), plus ``bias`` (out,).
        """
        inputs = [
            source,
            self.constant(f"{output}.weight", weights),
            self.constant(f"{output}.scale", scales),
            "",
            "",
            self.constant(f"{output}.bias", bias),
        ]
        size = weights.shape[2] * 8 // bits
        return self.add(
            "MatMulNBits", inputs, output, CONTRIB, K=weights.shape[1] * size, N=len(weights), bits=bits,
            block_size=size, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip


class Source(Protocol):
    """Weights in the form in which a graph is to hold them; names are Hugging Face's."""

    @property
    def shape(self) -> BertShape:
        """Sizes of the encoder."""
        ...

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Where the channels of a token vector come from; None where they are in the model's order."""
        ...

    def floats(self, name: str) -> NDArray[np.float32]:
        """A vector or the position and type tables, as they are."""
        ...

    def words(self, graph: Graph) -> str:
        """Add the look-up of ``input_ids`` in the table of words; answers float32 (batch, tokens, dim)."""
        ...

    def linear(self, graph: Graph, source: str, output: str, names: Sequence[str]) -> str:
        """Add ``source`` times the matrices ``names`` side by side, biases included."""
        ...


class Floats:
    """Matrices as floats; ``half`` stores them in 16 bits, which are widened when the file is opened."""

    order: NDArray[np.int64] | None = None

    def __init__(self, weights: BertWeights, half: bool = False) -> None:
        self.weights, self.shape, self.half = weights, weights.shape, half

    def floats(self, name: str) -> NDArray[np.float32]:
        """See :class:`Source`."""
        return self.weights.float32(name)

    def words(self, graph: Graph) -> str:
        """See :class:`Source`."""
        table = self.floats(f"{EMBEDDINGS}word_embeddings.weight")
        if not self.half:
            return graph.add("Gather", [graph.constant("words", table), "input_ids"], "word")
        graph.add("Gather", [graph.constant("words", table.astype(np.float16)), "input_ids"], "word.half")
        return graph.add("Cast", ["word.half"], "word", to=onnx.FLOAT)

    def linear(self, graph: Graph, source: str, output: str, names: Sequence[str]) -> str:
        """See :class:`Source`."""
        weights, bias = _joined(self.weights, names)
        stored = np.ascontiguousarray(weights.T, np.float16 if self.half else np.float32)
        matrix = graph.constant(f"{output}.weight", stored)
        if self.half:
            matrix = graph.add("Cast", [matrix], f"{output}.wide", to=onnx.FLOAT)
        product = graph.add("MatMul", [source, matrix], f"{output}.product")
        return graph.add("Add", [product, graph.constant(f"{output}.bias", bias)], output)


class Blocks(Floats):
    """Matrices as 8-bit blocks of 16 with a scale each, the table of words in 16 bits.

    Channels of like magnitude stand side by side, so that a loud one does not cost its block its precision.
    """

    def __init__(self, weights: BertWeights) -> None:
        self.order = channel_order(weights)
        super().__init__(_reordered(weights, self.order), half=True)

    def linear(self, graph: Graph, source: str, output: str, names: Sequence[str]) -> str:
        """See :class:`Source`."""
        weights, bias = _joined(self.weights, names)
        return graph.blocks(source, output, *blocks_of(weights), bias, 8)


def source_of(weights: BertWeights, dtype: str) -> Source:
    """``weights`` as ``fp32``, ``fp16`` or ``q8``."""
    return Blocks(weights) if dtype == "q8" else Floats(weights, dtype == "fp16")


def channel_order(weights: BertWeights) -> NDArray[np.int64]:
    """Channels from the quietest to the loudest, int64 (dim,).

    A normalised channel has mean square 1, so its layer's scale and shift tell its magnitude without a
    text being read: the mean over layers of sqrt(scale² + shift²).
    """
    scales = [name for name in weights.tensors if name.endswith("LayerNorm.weight")]
    loudness = [
        np.hypot(weights.float32(name), weights.float32(name.replace(".weight", ".bias"))) for name in scales
    ]
    return np.argsort(np.mean(loudness, axis=0), kind="stable")


#: Ends of the names of what reads channels (by columns) and writes them (by rows).
READERS = ("self.query.weight", "self.key.weight", "self.value.weight", "intermediate.dense.weight")
WRITERS = ("output.dense.weight", "output.dense.bias", "LayerNorm.weight", "LayerNorm.bias")


def _reordered(weights: BertWeights, order: NDArray[np.int64]) -> BertWeights:
    """The same encoder with its channels in ``order``: tables and readers by columns, writers by rows."""
    tensors = {}
    for name, values in weights.tensors.items():
        if name.endswith(WRITERS):
            values = values[order]
        elif name.endswith(READERS) or name.endswith("_embeddings.weight"):
            values = values[:, order]
        tensors[name] = values
    return replace(weights, tensors=tensors)


def blocks_of(weights: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """8-bit blocks of ``weights`` (out, in): uint8 (out, in / 16, 16), each plus 128, and float32 scales
    (out, in / 16): the largest magnitude of a block over 127. ``in`` is filled up with zeros.
    """
    rows, width = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -width % BLOCK)))
    cut = padded.reshape(rows, -1, BLOCK)
    scales = (np.abs(cut).max(axis=2) / 127).astype(np.float32)
    scales[scales == 0] = 1
    stored = np.clip(np.rint(cut / scales[:, :, None]), -127, 127) + 128
    return stored.astype(np.uint8), scales


def _joined(weights: BertWeights, names: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Matrices (out, in) and biases (out,) of ``names``, one below the other."""
    parts = [(weights.float32(f"{name}.weight"), weights.float32(f"{name}.bias")) for name in names]
    return np.concatenate([w for w, _ in parts]), np.concatenate([b for _, b in parts])


def inputs_of_products(shape: BertShape) -> list[str]:
    """Names in :func:`encoder_graph` of the normalised vectors and the activations that matrices take."""
    layers = range(shape.layers)
    parts = ("attended", "active", "hidden")
    return ["hidden", *(f"layer{n}.{part}" for n in layers for part in parts)][:-1]


def embedded(graph: Graph, source: Source) -> list[str]:
    """Add the look-ups of ``input_ids`` and of the positions; answers the names of what is to be summed."""
    word = source.words(graph)
    places = source.floats(f"{EMBEDDINGS}position_embeddings.weight")[source.shape.first_position :]
    places = places + source.floats(f"{EMBEDDINGS}token_type_embeddings.weight")[0]
    graph.add("Shape", ["input_ids"], "length", start=1, end=2)
    start = graph.constant("zero", np.zeros(1, np.int64))
    return [word, graph.add("Slice", [graph.constant("places", places), start, "length", start], "place")]


def norm(
    graph: Graph, source: Source, inputs: Sequence[str], output: str, of: str,
    less: NDArray[np.float32] | None = None,
) -> str:  # fmt: skip
    """The sum of ``inputs`` through the layer normalisation ``of``, minus ``less`` (dim,)."""
    total = graph.add("Sum", inputs, f"{output}.sum")
    weight, bias = (source.floats(f"{of}.{part}") for part in ("weight", "bias"))
    scales = [
        graph.constant(f"{output}.weight", weight),
        graph.constant(f"{output}.bias", bias if less is None else bias - less),
    ]
    return graph.add("LayerNormalization", [total, *scales], output, epsilon=source.shape.epsilon)


def model_of(
    name: str, graph: Graph, shape: BertShape, watched: Sequence[str] = (), opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> bytes:  # fmt: skip
    """``graph``, which makes ``last_hidden_state``, as a model: see :func:`encoder_graph`."""
    sizes = ("batch", "tokens")
    return onnx.model(
        name, graph.nodes, graph.tensors,
        [onnx.value_info(each, onnx.INT64, sizes) for each in ("input_ids", "attention_mask")],
        [
            onnx.value_info(OUTPUT, onnx.FLOAT, (*sizes, shape.dim)),
            *(onnx.value_info(each, onnx.FLOAT, (*sizes, f"{each}.width")) for each in watched),
        ],
        {"": opset, CONTRIB: 1}, ir_version,
    )  # fmt: skip


def encoder_graph(name: str, source: Source, watched: Sequence[str] = ()) -> bytes:
    """The encoder as an ONNX model; ``watched`` names what else it answers, each (batch, tokens, width).

    Inputs ``input_ids`` and ``attention_mask``, int64 (batch, tokens); output ``last_hidden_state``,
    float32 (batch, tokens, dim). Every token is of type 0. Post-normalised transformer of Devlin et al.,
    https://arxiv.org/abs/1810.04805, queries, keys and values in one product.
    """
    shape, graph = source.shape, Graph()
    hidden = norm(graph, source, embedded(graph, source), "hidden", f"{EMBEDDINGS}LayerNorm")
    mask = graph.add("Cast", ["attention_mask"], "mask", to=INT32)
    kind, domain = ACTIVATIONS[shape.activation]
    for n in range(shape.layers):
        at, of = f"layer{n}", LAYER.format(n)
        own = [f"{of}attention.self.{part}" for part in ("query", "key", "value")]
        joined = source.linear(graph, hidden, f"{at}.qkv", own)
        three = [f"{at}.q", f"{at}.k", f"{at}.v"]
        graph.nodes.append(onnx.node("Split", [joined], three, axis=2, num_outputs=3))
        mixed = graph.add(
            "MultiHeadAttention", [*three, "", mask], f"{at}.mixed", CONTRIB, num_heads=shape.heads
        )
        attended = source.linear(graph, mixed, f"{at}.out", [f"{of}attention.output.dense"])
        attention = [attended, hidden]
        hidden = norm(graph, source, attention, f"{at}.attended", f"{of}attention.output.LayerNorm")
        inner = source.linear(graph, hidden, f"{at}.inner", [f"{of}intermediate.dense"])
        active = graph.add(kind, [inner], f"{at}.active", domain)
        outer = source.linear(graph, active, f"{at}.outer", [f"{of}output.dense"])
        is_last = n == shape.layers - 1 and source.order is None
        name_of_hidden = OUTPUT if is_last else f"{at}.hidden"
        hidden = norm(graph, source, [outer, hidden], name_of_hidden, f"{of}output.LayerNorm")
    if source.order is not None:
        back = graph.constant("back", np.argsort(source.order))
        graph.add("Gather", [hidden, back], OUTPUT, axis=2)
    return model_of(name, graph, shape, watched)


def once(name: str, digest: str, make: Callable[[], bytes], version: int = CONVERTER) -> Path | bytes:
    """The file ``name`` in the cache folder, made by ``make`` if it is not there.

    Its name holds ``digest``, of what it is made from, and the converter's ``version``, so that an old one
    is never taken for a new one; one that is damaged is made again. Where the folder cannot be written, a
    warning and the file's content.
    """
    path = cache_folder() / f"{name}-{digest}-{version}.onnx"
    if onnx.is_sealed(path):
        return path
    if path.is_file():
        log.warning("%s is damaged and is made again", path)
    data = onnx.sealed(make())
    try:
        write_whole(path, data)
    except OSError as error:
        log.warning("%s is converted again at every start: %s; set RAG_CACHE_DIR", name, error)
        return data
    return path

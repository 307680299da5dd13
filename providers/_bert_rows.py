"""An encoder of 8-bit rows: activations and weights multiplied as integers, no text depending on another.

``MatMulIntegerToFloat`` is onnxruntime's fastest product on a CPU with 8-bit dot products, and each pass over
its factors before and after it shows. So what can be is put into the weights when the file is made:

* a normalised vector and an attention's answer stay within bounds that sentences of many languages tell, so
  one scale serves every token of every text. Only the feed-forward layer's activations, the largest of which
  is 1 for some tokens and 60 for others, take a scale per token;
* a normalised vector has a few loud channels, and the others would be left with a handful of steps. Each
  channel is divided by a scale and its weights multiplied by it (SmoothQuant, Xiao et al.,
  https://arxiv.org/abs/2211.10438);
* a channel that swings between 3 and 5 would waste its steps below: its middle is taken off in the shift of
  the normalisation before, and given back in the biases of what reads it;
* what rounding takes off the weights changes an output by a constant on average, which its bias gives back;
* a bias of the keys adds the same to all scores of a query, which the softmax takes off again, and is left
  out; the middle of the values passes through their average, and is given back after it;
* GELU never falls below -0.17: its zero lies that far above the lowest step.

Measured (onnxruntime 1.32, one thread, AVX-512 with VNNI, e5-small): 1.2 times the passages/s and queries/s
of a scale per token for all four products, mean cosine to fp32 0.9997 both ways. Half of the time is the
products, at nine tenths of the rate that they reach alone, a quarter the attention. What did not help: one
scale for the activations too (mean cosine 0.9992 at best), a scale per token for the attention's answer
(nearer by a fifth, but a fiftieth slower) or for what the attention reads (a fortieth slower), the fused
SkipLayerNormalization (six times as slow as a sum and a LayerNormalization), rounding the weights by the
activations' covariance (GPTQ: nearer by a tenth on average, further at worst), larger or smaller calls,
denormals as zero, memory without arena or pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from providers._bert_onnx import (
    ACTIVATIONS,
    CONTRIB,
    EMBEDDINGS,
    INT32,
    IR_VERSION,
    OPSET,
    OUTPUT,
    Graph,
    Source,
    embedded,
    inputs_of_products,
    model_of,
    norm,
)
from providers._bert_weights import LAYER, BertShape
from providers._common import require
from rag_core.registry import Spec

__all__ = ["Ranges", "RowSource", "RowsWriter", "measure", "rows_graph", "takes_lengths", "watched"]

Floats = NDArray[np.float32]
#: Below the least value of an activation: GELU's is -0.16997, that of its tanh form -0.17004.
LEAST = {"gelu": 0.1701, "gelu_new": 0.1701, "relu": 0.0}
#: Share of a channel's loudness that its weights take over, before the attention and before the feed-forward
#: layer. With 0.5, 0.6, 0.7 and 0.8, e5-small's cosines to fp32 were short of 1 by 2.5, 2.4, 2.2 and 2.2, and
#: by 2.6, 2.4, 2.3 and 2.4 ten-thousandths on average.
MOVED = {"qkv": 0.7, "inner": 0.6}
#: Smoothing scales are powers of the fourth root of 2, lest a last bit of a machine's floats shows in them.
STEPS_PER_OCTAVE = 4
#: No scale is zero.
TINY = 1e-9
#: The zero of signed rows.
MIDDLE = 128
#: Since this onnxruntime, ``Attention`` heeds the lengths of the rows; 1.24 opens the file and does not.
LENGTHS_SINCE = (1, 25)
LENGTHS_OPSET, LENGTHS_IR_VERSION = 24, 11


class RowSource(Source, Protocol):
    """A :class:`providers._bert_onnx.Source` that has its matrices as floats."""

    def matrix(self, name: str) -> tuple[Floats, Floats]:
        """The matrix (out, in) and the bias (out,) of ``name``."""
        ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """What the channels of the tensors :func:`watched` names were on some texts: each value is (width,).

    Attributes:
        low, high, mean: by name of a tensor.
        tops: by name of a layer's activations, what nine of ten tokens' largest one exceeds.
    """

    low: dict[str, Floats]
    high: dict[str, Floats]
    mean: dict[str, Floats]
    tops: dict[str, float]

    def middle(self, name: str) -> Floats:
        """Half way between the lowest and the highest."""
        return np.asarray((self.low[name] + self.high[name]) / 2, np.float32)

    def half(self, name: str) -> Floats:
        """Half of what lies between the lowest and the highest, never 0."""
        return np.maximum((self.high[name] - self.low[name]) / 2, np.float32(1e-3))


def watched(shape: BertShape) -> list[str]:
    """What :func:`measure` measures: names in :func:`providers._bert_onnx.encoder_graph`."""
    each = [f"layer{n}.{part}" for n in range(shape.layers) for part in ("v", "mixed")]
    return [*inputs_of_products(shape), *each]


def measure(spec: Spec, model: bytes, shape: BertShape, rows: Iterable[Sequence[int]]) -> Ranges:
    """The ranges of what ``model`` computes on ``rows``.

    Args:
        spec: who asks, for the message.
        model: :func:`providers._bert_onnx.encoder_graph` in fp32 that answers ``watched(shape)``.
        shape: its sizes.
        rows: token ids of the texts to measure on, each cut to the model's positions.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    runtime = require(spec, "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # sums in one order, whatever the number of CPUs
    options.enable_cpu_mem_arena = False  # it would keep room for every length of row
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = watched(shape)
    low: dict[str, Floats] = {}
    high: dict[str, Floats] = {}
    total: dict[str, NDArray[np.float64]] = {}
    largest: dict[str, list[Floats]] = {name: [] for name in names if name.endswith(".active")}
    tokens = 0
    for row in rows:
        ids = np.array([row[: shape.positions - shape.first_position]], np.int64)
        tokens += ids.size
        answers = session.run(names, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        for name, (answer,) in zip(names, answers):
            below, above = answer.min(axis=0), answer.max(axis=0)
            low[name] = np.minimum(low.get(name, below), below)
            high[name] = np.maximum(high.get(name, above), above)
            total[name] = total.get(name, 0) + answer.sum(axis=0, dtype=np.float64)
            if name in largest:
                largest[name].append(answer.max(axis=1))
    mean = {name: np.asarray(values / tokens, np.float32) for name, values in total.items()}
    tops = {name: float(np.quantile(np.concatenate(values), 0.1)) for name, values in largest.items()}
    return Ranges(low, high, mean, tops)


def takes_lengths(version: str) -> bool:
    """Whether this version of onnxruntime heeds the lengths in :func:`rows_graph`'s attention."""
    parts = version.split(".")[:2]
    return len(parts) == 2 and all(map(str.isdigit, parts)) and tuple(map(int, parts)) >= LENGTHS_SINCE


def smoothing(loud: Floats, weights: Floats, moved: float) -> Floats:
    """Scales (in,) by which channels as loud as ``loud`` (in,) are divided and ``weights`` (out, in)
    multiplied: loud ** moved / largest weight ** (1 - moved), rounded to :data:`STEPS_PER_OCTAVE`.
    """
    weight = np.maximum(np.abs(weights).max(axis=0), 1e-4)
    octaves = moved * np.log2(np.maximum(loud, 1e-3)) - (1 - moved) * np.log2(weight)
    steps = np.rint(octaves * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    return np.asarray(np.exp2(steps), np.float32)


@dataclass(frozen=True, slots=True)
class Product:
    """Weights (out, in) in 8 bits: a scale for each output.

    Attributes:
        rounded: int8 (out, in). scale: (out,).
        lost: (out,), what rounding takes off the outputs on average.
    """

    rounded: NDArray[np.int8]
    scale: Floats
    lost: Floats

    @classmethod
    def of(cls, weights: Floats, mean: Floats) -> Product:
        """``weights`` rounded; ``mean`` (in,) of what they are multiplied by."""
        scale = np.maximum(np.abs(weights).max(axis=1) / 127, TINY).astype(np.float32)
        rounded = np.rint(weights / scale[:, None]).astype(np.int8)
        return cls(rounded, scale, (weights - rounded * scale[:, None]) @ mean)

    def add(
        self, graph: Graph, rows: str, output: str, step: float, zero: int, bias: Floats | None = None
    ) -> str:
        """Add the product with ``rows``, uint8 in steps of ``step`` above ``zero``, plus ``bias``."""
        inputs = [
            rows,
            graph.constant(f"{output}.weight", np.ascontiguousarray(self.rounded.T)),
            graph.constant(f"{output}.step", np.full(1, step, np.float32)),
            graph.constant(f"{output}.scale", self.scale),
            graph.constant(f"{output}.zero", np.full(1, zero, np.uint8)),
        ]
        if bias is not None:
            inputs += ["", graph.constant(f"{output}.bias", bias.astype(np.float32))]
        return graph.add("MatMulIntegerToFloat", inputs, output, CONTRIB)


def rows_graph(name: str, source: RowSource, ranges: Ranges, lengths: bool = True) -> bytes:
    """The encoder in 8-bit rows, used like that of :func:`providers._bert_onnx.encoder_graph`.

    Args:
        name: of the graph.
        source: the weights.
        ranges: answer of :func:`measure`.
        lengths: the attention takes the rows' lengths, for an onnxruntime that :func:`takes_lengths`: a sixth
            (of 400 tokens) to a half (of 32) less time than with a mask. ``attention_mask`` must then be ones
            followed by zeros.
    """
    writer = _Writer(source, ranges, lengths)
    writer.write()
    return writer.model(name)


class RowsWriter:
    """A graph for an encoder in rows, and the nodes that all such encoders share."""

    def __init__(self, source: RowSource, ranges: Ranges, lengths: bool) -> None:
        self.graph = Graph()
        self._source, self._ranges, self._lengths = source, ranges, lengths

    def model(self, name: str) -> bytes:
        """The graph as an ONNX model."""
        versions = (LENGTHS_OPSET, LENGTHS_IR_VERSION) if self._lengths else (OPSET, IR_VERSION)
        return model_of(name, self.graph, self._source.shape, (), *versions)

    def begin(self) -> list[str]:
        """Add what all layers read, and the embeddings, whose sum is still to be normalised."""
        graph = self.graph
        parts = embedded(graph, self._source)
        if self._lengths:
            axis = graph.constant("lengths.axis", np.array([1], np.int64))
            graph.add("ReduceSum", ["attention_mask", axis], "lengths", keepdims=0)
        else:
            graph.add("Cast", ["attention_mask"], "mask", to=INT32)
        graph.constant("middle", np.array(MIDDLE, np.uint8))
        return parts

    def attend(self, three: Sequence[str], output: str) -> str:
        """Add the attention of queries, keys and values within each text."""
        graph, heads = self.graph, self._source.shape.heads
        if self._lengths:
            inputs = [*three, "", "", "", "lengths"]
            return graph.add("Attention", inputs, output, q_num_heads=heads, kv_num_heads=heads)
        return graph.add("MultiHeadAttention", [*three, "", "mask"], output, CONTRIB, num_heads=heads)


class _Writer(RowsWriter):
    """One row a vector."""

    def write(self) -> None:
        """Add all nodes.

        Every normalised vector but the last goes without its middle; ``less`` is what it lacks.
        """
        graph, source, ranges = self.graph, self._source, self._ranges
        parts = self.begin()
        graph.constant("channels", np.array([-1], np.int64))
        name, less = "hidden", ranges.middle("hidden")
        hidden = norm(graph, source, parts, "hidden", f"{EMBEDDINGS}LayerNorm", less)
        for n in range(source.shape.layers):
            at, of = f"layer{n}", LAYER.format(n)
            out = self._attention(at, of, hidden, name, less)
            less = ranges.middle(f"{at}.attended")
            of_attended = f"{of}attention.output.LayerNorm"
            attended = norm(graph, source, [out, hidden], f"{at}.attended", of_attended, less)
            outer = self._feed_forward(at, of, attended, less)
            is_last = n == source.shape.layers - 1
            name = f"{at}.hidden"
            less = np.zeros_like(less) if is_last else ranges.middle(name)
            output = OUTPUT if is_last else name
            hidden = norm(graph, source, [*outer, attended], output, f"{of}output.LayerNorm", less)

    def _rows(self, vectors: str, name: str, at: str, weights: Floats) -> tuple[str, float, Product]:
        """``vectors``, the tensor ``name`` without its middle, as rows: their name, their step, and the
        ``weights`` that they are multiplied by.
        """
        graph, half = self.graph, self._ranges.half(name)
        scales = smoothing(half, weights, MOVED[at.partition(".")[2]])
        step = float((half / scales).max()) / 127
        inverse = graph.constant(f"{at}.smoothing", 1 / scales)
        smooth = graph.add("Mul", [vectors, inverse], f"{at}.smooth")
        mean = (self._ranges.mean[name] - self._ranges.middle(name)) / scales
        return self._quantised(smooth, at, step), step, Product.of(weights * scales, mean)

    def _quantised(self, vectors: str, at: str, step: float) -> str:
        scale = self.graph.constant(f"{at}.rows.step", np.array(step, np.float32))
        return self.graph.add("QuantizeLinear", [vectors, scale, "middle"], f"{at}.rows")

    def _attention(self, at: str, of: str, hidden: str, name: str, less: Floats) -> str:
        """Add an attention on ``hidden``, the tensor ``name`` without ``less``; the answer has that back."""
        graph, source, ranges = self.graph, self._source, self._ranges
        parts = [source.matrix(f"{of}attention.self.{part}") for part in ("query", "key", "value")]
        weights = np.concatenate([weight for weight, _ in parts])
        rows, step, joined = self._rows(hidden, name, f"{at}.qkv", weights)
        biases = np.concatenate([bias for _, bias in parts]) + weights @ less + joined.lost
        # an average of the values lies between them
        middle, half = ranges.middle(f"{at}.v"), ranges.half(f"{at}.v")
        biases[-len(middle) :] -= middle
        width = source.shape.dim
        for place, part in enumerate("qkv"):
            own = slice(place * width, (place + 1) * width)
            product = Product(joined.rounded[own], joined.scale[own], joined.lost[own])
            product.add(graph, rows, f"{at}.{part}", step, MIDDLE, None if part == "k" else biases[own])
        mixed = self.attend([f"{at}.{part}" for part in "qkv"], f"{at}.mixed")
        weight, bias = source.matrix(f"{of}attention.output.dense")
        step = float(half.max()) / 127
        product = Product.of(weight, ranges.mean[f"{at}.mixed"] - middle)
        bias = bias + weight @ middle + product.lost + less
        return product.add(graph, self._quantised(mixed, f"{at}.out", step), f"{at}.out", step, MIDDLE, bias)

    def _feed_forward(self, at: str, of: str, attended: str, less: Floats) -> list[str]:
        """Add a feed-forward layer on ``attended``, which lacks ``less``; the sum of what is answered has
        that back.
        """
        graph, source, ranges = self.graph, self._source, self._ranges
        weight, bias = source.matrix(f"{of}intermediate.dense")
        rows, step, product = self._rows(attended, f"{at}.attended", f"{at}.inner", weight)
        bias = bias + weight @ less + product.lost
        inner = product.add(graph, rows, f"{at}.inner", step, MIDDLE, bias)
        kind, domain = ACTIVATIONS[source.shape.activation]
        active = graph.add(kind, [inner], f"{at}.active", domain)
        rows, step_of_token, zero = self._rows_of_tokens(active, at)
        weight, bias = source.matrix(f"{of}output.dense")
        product = Product.of(weight, ranges.mean[f"{at}.active"])
        whole = product.add(graph, rows, f"{at}.whole", 1, zero)
        scaled = graph.add("Mul", [whole, step_of_token], f"{at}.scaled")
        rest = graph.constant(f"{at}.outer.bias", (bias + product.lost + less).astype(np.float32))
        return [scaled, rest]

    def _rows_of_tokens(self, active: str, at: str) -> tuple[str, str, int]:
        """``active`` as rows with a step per token: their name, that of their steps, and their zero.

        The zero lies where a token louder than nine of ten quieter ones' loudest needs it: one that is
        quieter has longer steps than it could have, lest its lowest values fall below the first step.
        """
        graph, least = self.graph, LEAST[self._source.shape.activation]
        top = max(self._ranges.tops[f"{at}.active"], TINY)
        zero = round(255 * least / (top + least))
        part = graph.constant(f"{at}.part", np.full(1, 1 / (255 - zero), np.float32))
        floor = graph.constant(f"{at}.floor", np.full(1, least / zero if zero else TINY, np.float32))
        largest = graph.add("ReduceMax", [active, "channels"], f"{at}.largest")
        long = graph.add("Mul", [largest, part], f"{at}.long")
        step = graph.add("Max", [long, floor], f"{at}.step")
        if at == "layer0":
            graph.add("Shape", [step], "steps")
        zeros = graph.add(
            "Expand", [graph.constant(f"{at}.zero", np.full(1, zero, np.uint8)), "steps"], f"{at}.zeros"
        )
        width = self._source.shape.inner
        rows = graph.add(
            "QuantizeLinear", [active, step, zeros], f"{at}.outer.rows", axis=-1, block_size=width
        )
        return rows, step, zero

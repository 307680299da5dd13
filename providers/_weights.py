"""ONNX weights: which file of a folder, its digest, and what the folder says about the window."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from providers._common import choice
from providers._folders import ANY_MODEL, CONFIG, TOKENIZER
from rag_core.errors import ProviderError

__all__ = ["ANY_MODEL", "FILES", "Weights", "has_onnx", "onnx_file", "patterns", "read_json", "window_tokens"]

#: Names of the model's file per dtype, as exporters write them; looked for in the folder, then in ``onnx/``.
FILES = {
    "fp32": ("model.onnx", "model_fp32.onnx"),
    "fp16": ("model_fp16.onnx",),
    "int8": ("model_int8.onnx", "model_quantized.onnx", "model_uint8.onnx"),
    "q8": ("model_q8.onnx",),
    "q4": ("model_q4.onnx", "model_bnb4.onnx"),
}

#: Model files tried first, in this order; otherwise the only file of the folder is taken.
USUAL_FILES = ("model.onnx", "onnx/model.onnx")
#: What is fetched from the hub.
PATTERNS = ("*.json", "*.txt", "onnx/model.onnx", "onnx/model.onnx_data")
#: `model_max_length` of a tokenizer that has no limit is a number like 1e30.
UNLIMITED_TOKENS = 1_000_000
#: Operations that quantise activations by their range over the whole batch.
DYNAMIC_MARKS = (b"DynamicQuantizeLinear", b"DynamicQuantizeMatMul", b"DynamicQuantizeLSTM")
BLOCK_BYTES = 1 << 22


class Weights:
    """A folder with ``tokenizer.json`` and one ONNX file.

    Attributes:
        folder: where they are.
        file: the ONNX file.
        tokenizer: the tokenizer file.
        digest: 12 hexadecimal digits over the ONNX file, its data file if it has one, and the tokenizer.
        is_dynamic: the graph quantises activations while it runs, so that the texts of one batch share
            a scale and a text's result depends on its neighbours.
    """

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder, self.file, self.tokenizer = folder, file, folder / TOKENIZER
        hasher = hashlib.sha256()
        self.is_dynamic = _hash(file, hasher)
        for more in (
            file.with_name(file.name + "_data"),
            file.with_name(file.name + ".data"),
            self.tokenizer,
        ):
            if more.is_file():
                _hash(more, hasher)
        self.digest = hasher.hexdigest()[:12]


def patterns(file: str = "", dtype: str = "") -> tuple[str, ...]:
    """What is fetched from the hub for ``file`` or for ``dtype``."""
    more = (file,) if file else tuple(f"onnx/{name}" for name in FILES.get(dtype, ()))
    return (*PATTERNS, *more)


def has_onnx(folder: Path) -> None:
    """Accept a folder with a tokenizer and any ONNX file.

    Raises:
        FileNotFoundError: why ``folder`` will not do.
    """
    _found(folder)


def onnx_file(folder: Path, file: str = "", dtype: str = "") -> Path:
    """The ONNX file to use: ``file`` within ``folder``, for example ``onnx/model_quantized.onnx``, the one
    whose name says ``dtype`` (one of :data:`FILES`), or ``model.onnx``, ``onnx/model.onnx``, the only one.

    Raises:
        FileNotFoundError: why ``folder`` will not do.
        InvalidArgumentError: ``dtype`` is unknown.
    """
    found = _found(folder, file)
    if file:
        return folder / file
    if dtype:
        choice("onnxruntime", "dtype", dtype, tuple(FILES))
        for name in FILES[dtype]:
            for place in (folder, folder / "onnx"):
                if (place / name).is_file():
                    return place / name
        raise FileNotFoundError(f"no {' or '.join(FILES[dtype])} here or in onnx/")
    for name in USUAL_FILES:
        if (folder / name).is_file():
            return folder / name
    if len(found) > 1:
        names = ", ".join(each.relative_to(folder).as_posix() for each in found)
        raise FileNotFoundError(f"several ONNX files, choose one with file=: {names}")
    return found[0]


def _found(folder: Path, file: str = "") -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError("no such folder")
    if not (folder / TOKENIZER).is_file():
        raise FileNotFoundError(f"no {TOKENIZER}")
    if file and not (folder / file).is_file():
        raise FileNotFoundError(f"no file {file}")
    found = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not found and not file:
        raise FileNotFoundError("no model.onnx and no onnx/*.onnx")
    return found


def _hash(file: Path, hasher: Any) -> bool:
    """Feed ``file`` to ``hasher``; whether one of :data:`DYNAMIC_MARKS` stands in it."""
    seen, tail = False, b""
    with file.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            hasher.update(block)
            joined = tail + block
            seen = seen or any(mark in joined for mark in DYNAMIC_MARKS)
            tail = block[-32:]
    return seen


def read_json(owner: str, file: Path) -> dict[str, Any]:
    """The object in ``file``; empty when there is no such file.

    Raises:
        ProviderError: it is not a JSON object.
    """
    if not file.is_file():
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProviderError(f"{owner}: {file} is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise ProviderError(f"{owner}: {file} holds a {type(values).__name__}; expected {{…}}")
    return values


def window_tokens(owner: str, folder: Path) -> int:
    """The longest input that the model's files allow, in tokens; 0 when they do not say.

    The least of what sentence-transformers and the tokenizer say and of the number of positions. RoBERTa
    and its kin count positions from the padding id + 1, so that many of them are no use to a text.

    Raises:
        ProviderError: a file is not a JSON object.
    """
    config = read_json(owner, folder / CONFIG)
    limits = [
        read_json(owner, folder / "sentence_bert_config.json").get("max_seq_length"),
        read_json(owner, folder / "tokenizer_config.json").get("model_max_length"),
    ]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and str(config.get("model_type", "")).endswith(("roberta", "camembert")):
        pad = config.get("pad_token_id")
        positions -= (1 if pad is None else int(pad)) + 1
    limits.append(positions)
    known = [int(n) for n in limits if isinstance(n, (int, float)) and 0 < n < UNLIMITED_TOKENS]
    return min(known, default=0)

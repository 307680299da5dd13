"""ONNX weights: which file of a folder, its digest, and what the folder says about the window."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from providers._folders import ANY_MODEL, TOKENIZER, find_folder, why_missing
from rag_core.registry import Spec

__all__ = ["ANY_MODEL", "Weights", "find_weights", "missing", "read_json", "window_tokens"]

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


def find_weights(
    spec: Spec, model: str, path: str = "", file: str = "", env: Mapping[str, str] | None = None
) -> Weights:
    """The ONNX weights of ``model``, looked for as :func:`providers._folders.find_folder` does.

    Args:
        spec: whose name errors begin with.
        model: name on the hub, ``owner/name``.
        path: a folder to look in and nowhere else.
        file: the ONNX file within the folder, for example ``onnx/model_quantized.onnx``; by default
            ``model.onnx``, ``onnx/model.onnx``, or the only one there.
        env: environment; ``os.environ`` by default.

    Raises:
        ProviderUnavailableError: none of the folders holds the model; all of them stand in the message.
    """
    folder = find_folder(
        spec, model, path, lambda each: _model_file(each, file), [(*PATTERNS, file) if file else PATTERNS],
        "an ONNX model and tokenizer.json", env,
    )  # fmt: skip
    return Weights(folder, _model_file(folder, file))


def missing(spec: Spec) -> str:
    """Why the ONNX weights of ``spec`` are not at hand; empty when they are."""
    return why_missing(spec, lambda folder: _model_file(folder, ""))


def _model_file(folder: Path, wanted: str) -> Path:
    """The ONNX file to use.

    Raises:
        FileNotFoundError: why ``folder`` will not do.
    """
    if not folder.is_dir():
        raise FileNotFoundError("no such folder")
    if not (folder / TOKENIZER).is_file():
        raise FileNotFoundError(f"no {TOKENIZER}")
    if wanted:
        if (folder / wanted).is_file():
            return folder / wanted
        raise FileNotFoundError(f"no file {wanted}")
    for name in USUAL_FILES:
        if (folder / name).is_file():
            return folder / name
    found = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not found:
        raise FileNotFoundError("no model.onnx and no onnx/*.onnx")
    if len(found) > 1:
        names = ", ".join(each.relative_to(folder).as_posix() for each in found)
        raise FileNotFoundError(f"several ONNX files, choose one with file=: {names}")
    return found[0]


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


def read_json(file: Path) -> dict[str, Any]:
    """The object in ``file``; empty when there is no such file.

    Raises:
        ValueError: it is not JSON.
    """
    if not file.is_file():
        return {}
    values = json.loads(file.read_text(encoding="utf-8"))
    return values if isinstance(values, dict) else {}


def window_tokens(folder: Path) -> int:
    """The longest input that the model's files allow, in tokens; 0 when they do not say.

    The least of the tokenizer's ``model_max_length`` and the number of positions. RoBERTa and its kin
    count positions from the padding id + 1, so that many of them are no use to a text.
    """
    config = read_json(folder / "config.json")
    limits = [read_json(folder / "tokenizer_config.json").get("model_max_length")]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and str(config.get("model_type", "")).endswith(("roberta", "camembert")):
        positions -= int(config.get("pad_token_id") or 1) + 1
    limits.append(positions)
    known = [int(n) for n in limits if isinstance(n, (int, float)) and 0 < n < UNLIMITED_TOKENS]
    return min(known, default=0)

"""Reading weights into numpy without a framework: safetensors, whole or in shards, and torch's older files.

The format: 8 bytes with the length of a JSON header, the header (name -> dtype, shape, offsets), the data.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._common import require
from rag_core.errors import ProviderError
from rag_core.registry import Spec

__all__ = ["digest_of", "read_tensors", "shards"]

INDEX = "model.safetensors.index.json"
#: dtype of the format -> numpy's; bfloat16, which numpy lacks, is read as its 16 bits and widened.
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
LARGEST_HEADER_BYTES = 100_000_000


def shards(folder: Path) -> list[Path]:
    """The files that hold the weights in ``folder``, sorted by name; none where there are none."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if (folder / INDEX).is_file():
        names = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    found = folder / "pytorch_model.bin"
    return [found] if found.is_file() else []


def digest_of(files: list[Path]) -> str:
    """12 hexadecimal digits over the content of ``files``."""
    hasher = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                hasher.update(block)
    return hasher.hexdigest()[:12]


def read_tensors(spec: Spec, folder: Path) -> tuple[dict[str, NDArray[Any]], str]:
    """Name -> array, and the dtype in which the matrices are stored (``fp32``, ``fp16`` or ``bf16``).

    Arrays of fp32 and fp16 are views of the mapped file; bfloat16 is widened to float32.

    Raises:
        ProviderError: a file is damaged or missing.
        MissingExtraError: the weights are in torch's own form and torch is not installed.
    """
    tensors: dict[str, NDArray[Any]] = {}
    kinds: dict[str, int] = {}
    for file in shards(folder):
        for name, kind, values in _torch_file(spec, file) if file.suffix == ".bin" else _mapped(spec, file):
            tensors[name] = values
            kinds[kind] = kinds.get(kind, 0) + values.size
    if not tensors:
        raise ProviderError(f"{spec.name}: {folder} holds no weights")
    return tensors, max(kinds, key=lambda kind: kinds[kind])


def _mapped(spec: Spec, file: Path) -> Iterator[tuple[str, str, NDArray[Any]]]:
    try:
        with file.open("rb") as stream:
            data = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        size = int(data[:8].view("<u8")[0])
        if not 0 < size <= min(LARGEST_HEADER_BYTES, data.size - 8):
            raise ValueError(f"its header says {size} bytes of {data.size}")
        header = json.loads(data[8 : 8 + size].tobytes())
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, stop = (8 + size + int(offset) for offset in entry["data_offsets"])
            if stop > data.size:
                raise ValueError(f"{name} ends at byte {stop} of {data.size}")
            values = data[start:stop].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
            if entry["dtype"] == "BF16":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            yield name, NAMES.get(entry["dtype"], entry["dtype"]), values
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProviderError(f"{spec.name}: {file} cannot be read ({error}); fetch it again") from error


def _torch_file(spec: Spec, file: Path) -> Iterator[tuple[str, str, NDArray[Any]]]:
    torch = require(spec, "torch")
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # damaged files raise whatever the unpickler met
        raise ProviderError(f"{spec.name}: {file} cannot be read ({error}); fetch it again") from error
    for name, tensor in found.items():
        kind = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}.get(tensor.dtype, "?")
        yield name, kind, (tensor.float() if kind == "bf16" else tensor).numpy()

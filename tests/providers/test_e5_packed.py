from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from providers._e5_packed import parse_packed
from rag_core.errors import ProviderError

PATH = Path("weights.bin")


def test_the_head_and_the_vocabulary(tiny_e5) -> None:
    packed = parse_packed(tiny_e5[0], PATH)
    assert (packed.dim, packed.layers, packed.heads, packed.inner) == (64, 2, 2, 128)
    assert (packed.words, packed.positions, packed.bos, packed.eos, packed.unknown) == (13, 16, 0, 2, 3)
    assert packed.epsilon == pytest.approx(1e-12)
    assert packed.pieces[4:8] == ["▁", "▁a", "▁ab", "b"]
    assert packed.scores[4:8].tolist() == [-5, -3, -3.5, -4]
    assert packed.characters == {9: " ", 10: " ", 0xFB01: "fi", 0xAD: ""}


def test_tensors_come_back_as_they_were(tiny_e5) -> None:
    data, tensors = tiny_e5
    packed = parse_packed(data, PATH)
    assert np.array_equal(packed.floats("emb.pos"), tensors["emb.pos"].ravel())
    for name, width in (("emb.word", 64), ("l1.fi.w", 64), ("l0.fo.w", 128)):
        halves, scales = packed.quantised(name, width)
        rows = tensors[name].shape[0]
        assert halves.shape == (rows, width // 32, 16)
        assert scales.shape == (rows, width // 32)
        values = np.stack([halves & 15, halves >> 4], axis=-1).reshape(rows, width // 32, 32)
        floats = (values.astype(np.float32) - 8) * scales[:, :, None]
        assert np.array_equal(floats.reshape(rows, width), tensors[name])


def test_another_file_is_refused() -> None:
    with pytest.raises(ProviderError, match=r"weights\.bin begins with b'ABCD'; expected b'E5S1'"):
        parse_packed(b"ABCDEFGH", PATH)


def test_a_file_that_is_cut_short_is_refused_wherever_it_ends(tiny_e5) -> None:
    data, _ = tiny_e5
    for size in (*range(4, 400, 9), 1000, len(data) // 2, len(data) - 1):
        with pytest.raises(ProviderError, match=r"weights\.bin is damaged"):
            parse_packed(data[:size], PATH)


def test_another_block_size_is_refused(tiny_e5) -> None:
    data = bytearray(tiny_e5[0])
    data[40:44] = (64).to_bytes(4, "little")
    with pytest.raises(ProviderError, match="blocks of 64; expected 32"):
        parse_packed(bytes(data), PATH)

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from providers import _onnx_write as onnx


def test_numbers_are_written_seven_bits_a_byte() -> None:
    """The two examples of the protocol buffers documentation, and a negative number."""
    assert onnx._varint(150) == b"\x96\x01"
    assert onnx._varint(0) == b"\0"
    assert onnx._varint(-1) == b"\xff" * 9 + b"\x01"
    assert onnx._bytes(2, "testing") == b"\x12\x07testing"


def test_an_attribute_holds_its_value_and_kind() -> None:
    assert onnx.attribute("a", 5) == b"\x0a\x01a\x18\x05\xa0\x01\x02"
    assert onnx.attribute("a", "s") == b"\x0a\x01a\x22\x01s\xa0\x01\x03"
    assert onnx.attribute("a", 0.5) == b"\x0a\x01a\x15" + struct.pack("<f", 0.5) + b"\xa0\x01\x01"
    assert onnx.attribute("a", [1, 2]) == b"\x0a\x01a\x40\x01\x40\x02\xa0\x01\x07"


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8])
def test_a_runtime_reads_what_was_written(kind: type) -> None:
    runtime = pytest.importorskip("onnxruntime")
    values = np.arange(6).reshape(2, 3).astype(kind)
    number = onnx._TYPES[values.dtype.name]
    data = onnx.model(
        "transposed",
        [onnx.node("Transpose", ["constant"], ["flipped"], perm=[1, 0]), onnx.node("Identity", ["x"], ["y"])],
        [onnx.tensor("constant", values)],
        [onnx.value_info("x", onnx.FLOAT, ("rows", 2))],
        [onnx.value_info("flipped", number, (3, 2)), onnx.value_info("y", onnx.FLOAT, ("rows", 2))],
        {"": 17},
        8,
    )
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["rows", 2]
    flipped, same = session.run(None, {"x": np.ones((4, 2), np.float32)})
    assert flipped.dtype == kind
    assert np.array_equal(flipped, values.T)
    assert same.shape == (4, 2)


def test_a_seal_tells_a_whole_file_from_a_damaged_one(tmp_path: Path) -> None:
    file, whole = tmp_path / "a.onnx", onnx.sealed(b"model")
    assert not onnx.is_sealed(file)
    file.write_bytes(whole)
    assert onnx.is_sealed(file)
    for damaged in (b"", b"model", whole[:-1], b"modem" + whole[5:], whole + b"x"):
        file.write_bytes(damaged)
        assert not onnx.is_sealed(file)


def test_a_runtime_reads_a_sealed_model() -> None:
    runtime = pytest.importorskip("onnxruntime")
    sizes = [onnx.value_info(name, onnx.FLOAT, (2,)) for name in "xy"]
    data = onnx.model("same", [onnx.node("Identity", ["x"], ["y"])], [], sizes[:1], sizes[1:], {"": 17}, 8)
    session = runtime.InferenceSession(onnx.sealed(data), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]

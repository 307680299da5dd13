"""What was written is read again, and what is damaged is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from providers import _onnx_write as onnx
from providers._onnx_read import Node, read_model
from rag_core.errors import ProviderError


def _write(file: Path, *tensors: bytes, nodes: tuple[bytes, ...] = ()) -> Path:
    file.write_bytes(onnx.sealed(onnx.model("m", nodes, tensors, [], [], {"": 17}, 8)))
    return file


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8])
def test_constants_are_those_that_were_written(kind: type, tmp_path: Path) -> None:
    values = np.arange(-3, 3).reshape(2, 3).astype(kind)
    scalar = np.array(300).astype(kind)
    model = read_model(
        _write(tmp_path / "a.onnx", onnx.tensor("a", values), onnx.tensor("long/name" * 40, scalar))
    )
    assert list(model.tensors) == ["a", "long/name" * 40]
    found = model.tensors["a"]
    assert found.dtype == kind
    np.testing.assert_array_equal(found, values)
    assert model.tensors["long/name" * 40].shape == ()
    np.testing.assert_array_equal(model.tensors["long/name" * 40], scalar)


def test_shapes_in_one_field_are_read_too(tmp_path: Path) -> None:
    """Other writers pack ``dims`` into one field, which parsers must accept."""
    packed = (
        onnx._bytes(1, b"\x02\x03") + onnx._number(2, 3) + onnx._bytes(8, "a") + onnx._bytes(9, b"\1" * 6)
    )
    assert read_model(_write(tmp_path / "a.onnx", packed)).tensors["a"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_constants_of_a_kind_that_is_not_read_have_no_values(tmp_path: Path) -> None:
    halves = onnx.tensor("b", np.zeros(2, np.uint8), onnx.INT4, (4,))
    elsewhere = onnx._number(1, 6) + onnx._number(2, 3) + onnx._bytes(8, "a")
    model = read_model(_write(tmp_path / "a.onnx", elsewhere, halves))
    assert model.tensors["a"].size == model.tensors["b"].size == 0


def test_nodes_and_what_they_make_of_constants(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    stored = rng.integers(-127, 128, (4, 3)).astype(np.int8)
    scales = rng.uniform(0.1, 1, (1, 3)).astype(np.float32)
    nodes = (
        onnx.node("Cast", ["w_q"], ["w_f"], to=onnx.FLOAT),
        onnx.node("Mul", ["w_f", "scale"], ["w"]),
        onnx.node("MatMul", ["x", "w"], ["y"], "com.microsoft"),
    )
    tensors = (onnx.tensor("w_q", stored), onnx.tensor("scale", scales))
    model = read_model(_write(tmp_path / "a.onnx", *tensors, nodes=nodes))
    assert model.nodes[2] == Node("MatMul", ("x", "w"), ("y",))
    assert model.maker("y") == model.taker("x") == model.nodes[2]
    np.testing.assert_array_equal(model.floats("w"), stored * scales)
    np.testing.assert_array_equal(model.floats("w_q"), stored)
    for name in ("y", "nothing"):
        with pytest.raises(KeyError, match=name):
            model.floats(name)
    with pytest.raises(KeyError):
        model.taker("y")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"text, and no more than that",
        lambda data: data[:40],
        lambda data: b"\xff" * 20,
        lambda data: data.replace(b"\x08\x02\x08\x03", b"\x08\x02\x08\x04"),
    ],
)
def test_what_is_no_model_is_refused(damage, tmp_path: Path) -> None:
    file = _write(tmp_path / "a.onnx", onnx.tensor("a", np.ones((2, 3), np.float32)))
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    with pytest.raises(ProviderError, match=r"a\.onnx is not an ONNX model, or is damaged"):
        read_model(file)

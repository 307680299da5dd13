"""The reusable part of ONNX providers, with a stand-in for the session where no model is needed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from providers._onnx import open_session, pool
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

SPEC = Spec("tiny", "tiny", "cpu", 3, "x:y", extra="onnx")


def test_mean_pooling_ignores_padding_and_cls_takes_the_first() -> None:
    hidden = np.array([[[1, 2], [3, 4], [99, 99]], [[5, 6], [7, 8], [9, 10]]], np.float32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int64)
    assert pool(hidden, mask, "mean").tolist() == [[2, 3], [7, 8]]
    assert pool(hidden, mask, "cls").tolist() == [[1, 2], [5, 6]]
    with pytest.raises(InvalidArgumentError, match="pooling: option how is 'max'; accepted: 'mean', 'cls'"):
        pool(hidden, mask, "max")


def test_no_model_file_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match=r"no model file .*gone\.onnx"):
        open_session(SPEC, tmp_path / "gone.onnx", 1)


def test_no_runtime_is_said_with_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[onnx\]'"):
        open_session(SPEC, tmp_path / "m.onnx", 1)


def test_each_session_says_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """O14: a second session has threads of its own, and that is not silent."""
    made = []

    class Options:
        def add_session_config_entry(self, name: str, value: str) -> None:
            setattr(self, name.replace(".", "_"), value)

    def start(path: str, options: Options, providers: list[str]) -> object:
        made.append((options, providers))
        return object()

    monkeypatch.setitem(
        sys.modules, "onnxruntime", SimpleNamespace(SessionOptions=Options, InferenceSession=start)
    )
    (tmp_path / "m.onnx").write_bytes(b"")
    with caplog.at_level(logging.INFO, "rag_core"):
        open_session(SPEC, tmp_path / "m.onnx", 2)
        open_session(SPEC, tmp_path / "m.onnx", 3)
    first, second = (record.getMessage() for record in caplog.records)
    assert "2 threads" in first
    assert "3 threads" in second
    for options, providers in made:
        assert options.intra_op_num_threads == options.inter_op_num_threads == 1
        assert options.session_intra_op_allow_spinning == "0"
        assert providers == ["CPUExecutionProvider"]


@pytest.mark.parametrize("content", [b"", b"{ damaged", b"\x08\x08"])
def test_a_damaged_model_is_named(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'rag-core-bench[onnx]'")
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises(ProviderError, match=f"^tiny: onnxruntime cannot open {file} "):
        open_session(SPEC, file, 1)
    with pytest.raises(ProviderError, match=r"^tiny: onnxruntime cannot open the model "):
        open_session(SPEC, content, 1)

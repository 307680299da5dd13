"""The reusable part of ONNX providers, with a stand-in for the session where no model is needed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from providers._onnx import OnnxEmbedder, batches_by_length, open_session, pool
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.registry import Spec

SPEC = Spec("tiny", "tiny", "cpu", 3, "x:y", extra="onnx")


class Tokenizer:
    """Words to numbers from 10; 1 and 2 stand around them."""

    def encode(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(ids=[1, *(10 + len(word) for word in text.split()), 2])


class Session:
    """Token vectors that are a function of the token id alone."""

    def __init__(self, *inputs: str) -> None:
        self.inputs, self.shapes, self.fed = inputs, [], []

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.inputs]

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="last_hidden_state"), SimpleNamespace(name="pooler_output")]

    def run(self, outputs: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert outputs == ["last_hidden_state"]
        self.shapes.append(feed["input_ids"].shape)
        self.fed.append(sorted(feed))
        ids = feed["input_ids"].astype(np.float32)
        return [np.stack([ids, ids * 0 + 1, np.where(ids == 0, 1000, 0)], axis=2).astype(np.float32)]


def make(pooling: str = "mean", threads: int = 1, budget: int = 256, inputs=("input_ids", "attention_mask")):
    fingerprint = Fingerprint("tiny", "tiny", "1", 3, "fp32", pooling, max_tokens=8)
    return OnnxEmbedder(fingerprint, Session(*inputs), Tokenizer(), threads, {}, token_budget=budget)


def test_groups_hold_like_lengths_within_the_budget() -> None:
    lengths = [5, 100, 7, 6, 90, 300, 5]
    groups = batches_by_length(lengths, token_budget=200)
    assert groups == [[5], [1, 4], [2, 3, 0, 6]]
    assert batches_by_length([], 200) == []


def test_every_position_is_in_one_group() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 257, 500).tolist()
    groups = batches_by_length(lengths, 512)
    assert sorted(i for group in groups for i in group) == list(range(500))
    assert all(len(group) == 1 or len(group) * max(lengths[i] for i in group) <= 512 for group in groups)


def test_mean_pooling_ignores_padding_and_cls_takes_the_first() -> None:
    hidden = np.array([[[1, 2], [3, 4], [99, 99]], [[5, 6], [7, 8], [9, 10]]], np.float32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int64)
    assert pool(hidden, mask, "mean").tolist() == [[2, 3], [7, 8]]
    assert pool(hidden, mask, "cls").tolist() == [[1, 2], [5, 6]]
    with pytest.raises(InvalidArgumentError, match="pooling: option how is 'max'; accepted: 'mean', 'cls'"):
        pool(hidden, mask, "max")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("budget", [1, 12, 256])
def test_vectors_come_back_in_the_order_of_the_texts(threads: int, budget: int) -> None:
    texts = ["a bb ccc", "a", "dddd eeeee", "ffffff " * 5, "a"]
    vectors = make(threads=threads, budget=budget).embed(texts)
    expected = np.concatenate([make().embed([text]) for text in texts])
    assert np.allclose(vectors, expected, rtol=0, atol=1e-7)
    assert not vectors[:, 2].any(), "padding reached the mean"


def test_long_texts_keep_the_closing_token_and_are_counted() -> None:
    embedder = make()
    embedder.embed(["w " * 50, "w " * 6, "w"])
    assert embedder.stats.truncated == 1
    assert embedder.stats.tokens == 8 + 8 + 3
    assert embedder.count_tokens(["w " * 50, "w", " "]) == [52, 3, 0]
    cls_and_sep = make(pooling="cls")
    assert np.allclose(cls_and_sep.embed(["w " * 50]), cls_and_sep.embed(["w"]))


def test_only_the_inputs_that_the_model_has_are_fed() -> None:
    two, three = make(), make(inputs=("input_ids", "token_type_ids", "attention_mask"))
    two.embed(["a"])
    three.embed(["a"])
    assert two._session.fed == [["attention_mask", "input_ids"]]
    assert three._session.fed == [["attention_mask", "input_ids", "token_type_ids"]]


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

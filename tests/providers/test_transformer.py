"""What every local transformer shares, with a stand-in for the model."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from providers._onnx import session_call
from providers._rows import RowRunner
from providers._transformer import TransformerEmbedder
from rag_core.fingerprint import Fingerprint


class Tokenizer:
    """Words to numbers from 10; 1 and 2 stand around them."""

    def encode(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(ids=[1, *(10 + len(word) for word in text.split()), 2])

    def encode_batch(self, texts: list[str]) -> list[SimpleNamespace]:
        return [self.encode(text) for text in texts]


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


def make(
    pooling: str = "mean",
    threads: int = 1,
    budget: int = 256,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    long: str = "truncate",
    prompt: str = "",
) -> tuple[TransformerEmbedder, Session]:
    template = prompt + "{text}"
    fingerprint = Fingerprint(
        "tiny", "tiny", "1", 3, "fp32", pooling, document_template=template, max_tokens=8
    )
    session = Session(*inputs)
    runner = RowRunner(session_call(session, "last_hidden_state", pooling), threads, budget)
    return TransformerEmbedder(fingerprint, Tokenizer(), runner, {}, long=long), session


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("budget", [1, 12, 256])
def test_vectors_come_back_in_the_order_of_the_texts(threads: int, budget: int) -> None:
    texts = ["a bb ccc", "a", "dddd eeeee", "ffffff " * 5, "a"]
    vectors = make(threads=threads, budget=budget)[0].embed(texts)
    expected = np.concatenate([make()[0].embed([text]) for text in texts])
    assert np.allclose(vectors, expected, rtol=0, atol=1e-7)
    assert not vectors[:, 2].any(), "padding reached the mean"


def test_long_texts_keep_the_closing_token_and_are_counted() -> None:
    embedder, _ = make()
    embedder.embed(["w " * 50, "w " * 6, "w"])
    assert embedder.stats.truncated == 1
    assert embedder.stats.tokens == 8 + 8 + 3
    assert embedder.count_tokens(["w " * 50, "w", " "]) == [52, 3, 0]
    cls_and_sep, _ = make(pooling="cls")
    assert np.allclose(cls_and_sep.embed(["w " * 50]), cls_and_sep.embed(["w"]))


def test_only_the_inputs_that_the_model_has_are_fed() -> None:
    embedder, two = make()
    embedder.embed(["a"])
    embedder, three = make(inputs=("input_ids", "token_type_ids", "attention_mask"))
    embedder.embed(["a"])
    assert two.fed == [["attention_mask", "input_ids"]]
    assert three.fed == [["attention_mask", "input_ids", "token_type_ids"]]


def test_a_batch_size_is_the_rows_of_one_call() -> None:
    embedder, session = make()
    assert embedder.batch_size == 0
    embedder.batch_size = 2
    embedder.embed(["a"] * 5)
    assert [rows for rows, _ in session.shapes] == [2, 2, 1]


def test_windows_read_a_long_text_to_its_end() -> None:
    """O31: the last words count, and nothing is called truncated."""
    embedder, session = make(long="windows")
    text = " ".join(["w"] * 20 + ["longest"])
    windows = embedder.embed([text, "w"])
    assert embedder.stats.truncated == 0
    assert all(tokens <= 8 for _, tokens in session.shapes)
    assert not np.allclose(windows[0], embedder.embed(["w"])[0], atol=1e-3), "the last word was not read"
    assert np.allclose(windows[1], make()[0].embed(["w"])[0])


def test_every_window_repeats_the_prompt() -> None:
    seen = []

    class Recording(Session):
        def run(self, outputs: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            seen.extend(feed["input_ids"].tolist())
            return super().run(outputs, feed)

    fingerprint = Fingerprint(
        "t", "t", "1", 3, "fp32", "mean", document_template="xxxxxx {text}", max_tokens=8
    )
    runner = RowRunner(session_call(Recording("input_ids"), "last_hidden_state", "mean"), 1)
    embedder = TransformerEmbedder(fingerprint, Tokenizer(), runner, {}, long="windows")
    embedder.embed([" ".join("abcdefghijkl")])
    assert len(seen) > 1
    assert all(row[:2] == [1, 16] and row[-1] == 2 for row in seen)
    assert all(len(row) == 8 for row in seen)


def test_other_prompts_make_a_copy_on_the_same_model() -> None:
    embedder, _ = make(prompt="a long prompt ")
    bare = embedder.with_templates("{text}", "{text}")
    assert embedder.count_tokens(["word"]) == [6]
    assert bare.count_tokens(["word"]) == [3]
    own, plain = embedder.embed(["word"]), bare.embed(["word"])
    assert not np.allclose(own, plain)
    assert np.array_equal(plain, make()[0].embed(["word"]))
    assert (embedder.stats.tokens, bare.stats.tokens) == (6, 3)


def test_a_tokenizer_is_told_from_another_one() -> None:
    class Shouting(Tokenizer):
        def encode(self, text: str) -> SimpleNamespace:
            return super().encode(text.replace("-", " "))

    class Larger(Tokenizer):
        def get_vocab_size(self) -> int:
            return 30_522

    one, other = make()[0], make()[0]
    assert one.tokenizer_digest() == other.tokenizer_digest()
    assert len(one.tokenizer_digest()) == 16
    digests = {one.tokenizer_digest()}
    for tokenizer in (Shouting(), Larger()):
        other._tokenizer = tokenizer
        digests.add(other.tokenizer_digest())
    assert len(digests) == 3

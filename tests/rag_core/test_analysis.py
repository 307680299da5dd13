"""Folding, segmentation, stop words, stemming, language."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.analysis import STEMMERS, Analyser, detect_language, fold
from rag_core.errors import InvalidArgumentError, MissingExtraError
from rag_core.stopwords import STOP_WORDS

THREE = Analyser.for_languages(("en", "es", "pt"))
ENGLISH = Analyser.for_languages(("en",))
ACCENTED = ["café", "niño", "ação", "über", "crème", "žlutý", "Ångström", "naïve", "São", "pingüino"]


@pytest.mark.parametrize("word", ACCENTED)
def test_composed_and_decomposed_accents_agree(word: str) -> None:
    """O25: ten words, both ways."""
    composed, decomposed = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert THREE.analyse(composed) == THREE.analyse(decomposed)


@pytest.mark.parametrize(
    ("document", "query"),
    [("İstanbul", "istanbul"), ("ＡＢＣ", "abc"), ("Işık", "ışık"), ("Straße", "STRASSE"), ("ﬁne", "fine")],
)
def test_forms_of_one_word_agree(document: str, query: str) -> None:
    """O25: no stray dot, full width is plain, and dotless i folds to i (the stated rule)."""
    raw = Analyser.raw()
    assert raw.analyse(document) == raw.analyse(query)
    assert "\u0307" not in fold(document)


def test_scripts_without_blanks_become_pairs() -> None:
    """O24."""
    assert THREE.analyse("图书馆", as_query=True) == ["图书", "书馆"]
    assert THREE.analyse("猫", as_query=True) == ["猫"]
    assert set(THREE.analyse("猫喜欢")) == {"猫", "喜", "欢", "猫喜", "喜欢"}
    assert THREE.analyse("GPU 显存不足", as_query=True) == ["gpu", "显存", "存不", "不足"]
    assert THREE.analyse("USB接口", as_query=True) == ["usb", "接口"]
    assert THREE.analyse("東京タワー", as_query=True) == ["東京", "京タ", "タワ", "ワー"]


def test_combining_marks_stay_in_the_word() -> None:
    assert Analyser.raw().analyse("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


def test_russian_words_are_stemmed_where_asked() -> None:
    russian = Analyser.for_languages(("ru",))
    assert russian.analyse("библиотеки") == russian.analyse("библиотека")


def test_each_text_is_stemmed_by_its_own_language() -> None:
    assert THREE.analyse("running libraries") == ["run", "librari"]
    assert THREE.analyse("los impuestos municipales") == ["impuest", "municipal"]
    assert THREE.analyse("as bibliotecas não estão") == THREE.analyse("a biblioteca", "pt")
    assert THREE.analyse("the tax", "es") != THREE.analyse("the tax", "en")


def test_raw_keeps_every_word() -> None:
    assert Analyser.raw().analyse("The Running, of 3-D models_x!") == [
        "the",
        "running",
        "of",
        "3",
        "d",
        "models",
        "x",
    ]


def test_a_language_without_rules_is_only_folded() -> None:
    other = Analyser.for_languages(("xx",))
    assert other.analyse("The Houses") == ["the", "houses"]


@given(st.lists(st.text(max_size=40), max_size=6))
def test_many_at_once_equals_one_by_one(texts: list[str]) -> None:
    many = THREE.analyse_many(texts)
    ends = many.lengths.cumsum()
    parts = [[many.terms[i] for i in many.ids[end - n : end]] for end, n in zip(ends, many.lengths)]
    assert parts == [THREE.analyse(text) for text in texts]
    seen = list(dict.fromkeys(term for part in parts for term in part))
    assert many.terms == seen


def test_languages_given_are_used() -> None:
    many = THREE.analyse_many(["casas", "casas"], ["es", "en"])
    assert many.terms == ["cas", "casa"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where do I pay the fine?", "en"),
        ("¿Dónde pago la multa?", "es"),
        ("Onde é que pago a multa?", "pt"),
        ("mañana", "es"),
        ("ação", "pt"),
        ("xyz 123", "en"),
        ("no as a", "en"),
        ("", "en"),
    ],
)
def test_language_is_told_from_function_words_and_letters(text: str, language: str) -> None:
    assert detect_language(text, ("en", "es", "pt"), "en") == language


def test_a_language_that_is_given_wins_over_one_that_is_told() -> None:
    assert THREE.language_of("Where is the library?", "pt") == "pt"
    assert THREE.language_of("¿Dónde está la biblioteca?", "xx") == "es"
    assert THREE.language_of("¿Dónde está la biblioteca?") == "es"
    assert ENGLISH.language_of("¿Dónde está la biblioteca?") == "en"
    assert Analyser.raw().language_of("anything", "es") == ""


def test_scripts_and_letters_tell_other_languages() -> None:
    assert detect_language("Городская библиотека", ("en", "ru", "el"), "en") == "ru"
    assert detect_language("Δημοτική βιβλιοθήκη", ("en", "ru", "el"), "en") == "el"
    assert detect_language("müde", ("en", "de"), "en") == "de"
    assert detect_language("ça", ("en", "fr", "pt"), "en") == "en"  # two languages have it: no evidence


@given(st.text(max_size=60))
def test_detection_does_not_depend_on_the_order_of_languages(text: str) -> None:
    assert detect_language(text, ("en", "es", "pt"), "en") == detect_language(text, ("pt", "es", "en"), "en")


def test_detection_needs_languages() -> None:
    with pytest.raises(InvalidArgumentError, match="languages is empty"):
        detect_language("x", (), "en")


def test_the_name_tells_every_setting() -> None:
    made = [THREE, ENGLISH, Analyser.raw(), Analyser(("en",), stem=False), Analyser(("en",), stop=False)]
    assert len({analyser.name for analyser in made}) == len(made)
    for analyser in made:
        assert Analyser.from_config(analyser.config()).name == analyser.name
    assert repr(ENGLISH) == "Analyser(nfkc-casefold+script-segments+stop-words(en)+snowball(en))"


def test_content_words_leave_function_words_out() -> None:
    assert ENGLISH.content_words("What are the opening hours of the library?") == {"open", "hour", "librari"}


def test_a_missing_stemmer_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(MissingExtraError, match="'snowballstemmer' is not installed"):
        Analyser(("da",)).analyse("huse")
    assert Analyser.raw().analyse("huse") == ["huse"]


def test_stop_words_are_folded_words() -> None:
    assert set(STOP_WORDS) <= set(STEMMERS)
    for words in STOP_WORDS.values():
        assert all(fold(word) == word and word.isalpha() for word in words)


@given(st.text("aB1 -_é図", max_size=12))
def test_words_that_are_their_own_terms_are_taken_as_they_are(text: str) -> None:
    """Which is faster, and nothing else."""
    longer_way = Analyser.raw()
    longer_way._as_they_are = False
    for as_query in (False, True):
        assert Analyser.raw().analyse(text, as_query=as_query) == longer_way.analyse(text, as_query=as_query)

"""The golden set keeps the promises it was built on. Nothing here runs a search."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from harness.datasets import Dataset, load_dataset
from harness.lint import check
from rag_core.analysis import Analyser
from rag_core.types import Query

ANALYSER = Analyser.for_languages(("en", "es", "pt"))


@pytest.fixture(scope="module")
def civic() -> Dataset:
    return load_dataset("civic")


def shared_words(civic: Dataset, query: Query) -> set[str]:
    """Content words that the query shares with any passage judged relevant to it.

    The query is analysed in its own language and in the passage's: a search engine that stems both by
    the passage's rules must not find a bridge either.
    """
    texts = {document.doc_id: document for document in civic.documents}
    found: set[str] = set()
    for doc_id, grade in civic.relevance.get(query.query_id, {}).items():
        if grade >= 1:
            document = texts[doc_id]
            language = document.metadata["lang"]
            words = ANALYSER.content_words(document.indexed_text, language)
            for side in (query.metadata["lang"], language):
                found |= words & ANALYSER.content_words(query.text, side)
    return found


def test_it_is_unchanged_since_it_was_judged(civic: Dataset) -> None:
    assert not [note for note in civic.notes if "changed" in note]


def test_no_mistakes(civic: Dataset) -> None:
    assert [f.message for f in check(civic) if f.severity == "error"] == []


def test_topics_languages_and_lengths(civic: Dataset) -> None:
    languages = defaultdict(set)
    for document in civic.documents:
        languages[document.metadata["domain"], document.metadata["topic"]].add(document.metadata["lang"])
        assert 60 <= len(document.text.split()) <= 140, document.doc_id
        assert document.title
    assert sum(found == {"en", "es", "pt"} for found in languages.values()) >= 120
    assert {tuple(found) for found in languages.values() if len(found) == 1} == {("en",), ("es",), ("pt",)}


def test_queries_by_language_and_kind(civic: Dataset) -> None:
    kinds = Counter((q.metadata["lang"], q.metadata["kind"]) for q in civic.queries)
    for language in ("en", "es", "pt"):
        assert sum(n for (lang, _), n in kinds.items() if lang == language) >= 50
        for kind in ("keyword", "paraphrase", "cross-lingual"):
            assert kinds[language, kind] >= 12
    assert sum(n for (_, kind), n in kinds.items() if kind == "no-answer") >= 12


def test_grades_follow_the_languages(civic: Dataset) -> None:
    languages = {document.doc_id: document.metadata["lang"] for document in civic.documents}
    for query in civic.queries:
        grades = civic.relevance[query.query_id]
        kind, lang = query.metadata["kind"], query.metadata["lang"]
        for doc_id, grade in grades.items():
            assert grade in (0, 1, 2, 3)
            if grade >= 2:
                assert (grade == 3) == (languages[doc_id] == lang), (query.query_id, doc_id)
        best = max(grades.values())
        assert best == {"no-answer": 0, "cross-lingual": 2}.get(kind, 3), query.query_id


def test_a_third_share_no_word_with_any_relevant_passage(civic: Dataset) -> None:
    answerable = [q for q in civic.queries if q.metadata["kind"] != "no-answer"]
    apart = [q.query_id for q in answerable if not shared_words(civic, q)]
    assert len(apart) >= len(answerable) / 3


def test_headline_queries_share_no_word_and_cover_the_languages(civic: Dataset) -> None:
    chosen = [q for q in civic.queries if q.query_id in civic.headline]
    assert len(chosen) == 5
    assert {q.metadata["lang"] for q in chosen} == {"en", "es", "pt"}
    assert {q.query_id: shared_words(civic, q) for q in chosen} == {q: set() for q in civic.headline}

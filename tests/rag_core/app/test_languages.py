"""Which languages an index holds."""

from __future__ import annotations

from rag_core.app.languages import languages_of
from rag_core.types import Document


def test_metadata_tell_and_words_where_there_are_none() -> None:
    portuguese = Document("p", "O barco não sai da ilha quando há vento, e os passageiros ficam à espera.")
    documents = [Document(f"e{i}", "x", metadata={"lang": "en-GB"}) for i in range(3)]
    assert languages_of([*documents, portuguese]) == ["en", "pt"]


def test_a_rare_language_and_a_text_that_tells_nothing_do_not_count() -> None:
    documents = [Document(f"e{i}", "", metadata={"lang": "en"}) for i in range(50)]
    rare = Document("d", "", metadata={"lang": "de"})
    nothing = [Document(f"n{i}", "1234 5678") for i in range(50)]
    assert languages_of([*documents, rare, *nothing]) == ["en"]
    assert languages_of([]) == []


def test_a_large_index_is_sampled() -> None:
    documents = {i: Document(str(i), "", metadata={"lang": "en" if i % 2 else "es"}) for i in range(2001)}
    assert sorted(languages_of(documents.values())) == ["es"]  # every tenth document

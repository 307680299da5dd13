from __future__ import annotations

import pytest

from harness.datasets import load_dataset
from harness.lint import check


@pytest.fixture(scope="module")
def mini():
    return load_dataset("mini")


def test_mini_is_complete_and_free(mini):
    assert (mini.name, mini.licence, mini.languages) == ("mini", "CC0-1.0", ("en", "es", "pt"))
    assert len(mini.documents) == 12
    assert len(mini.queries) == 8
    assert len(mini.headline) == 2
    assert {d.metadata["lang"] for d in mini.documents} == set(mini.languages)
    assert all(d.title and d.text for d in mini.documents)


def test_mini_has_no_fault_but_the_question_without_an_answer(mini):
    findings = check(mini)
    assert [(f.code, f.examples) for f in findings if f.code != "reading"] == [
        ("query-without-relevant", ("q8",))
    ]


def test_grades_of_mini_follow_the_languages(mini):
    documents = {d.doc_id: d.metadata["lang"] for d in mini.documents}
    queries = {q.query_id: q.metadata["lang"] for q in mini.queries}
    for qrel in mini.qrels:
        if qrel.relevance >= 2:
            same = documents[qrel.doc_id] == queries[qrel.query_id]
            assert qrel.relevance == (3 if same else 2), qrel

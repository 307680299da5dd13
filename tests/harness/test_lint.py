from __future__ import annotations

import pytest

from harness.datasets import Dataset
from harness.lint import check
from rag_core.types import Document, Qrel, Query

DOCUMENTS = (Document("d1", "Red door"), Document("d2", "Blue door"))
QUERIES = (Query("q1", "which door?"), Query("q2", "what colour?"))
QRELS = (Qrel("q1", "d1", 1), Qrel("q2", "d2", 1))


def dataset(documents=DOCUMENTS, queries=QUERIES, qrels=QRELS, **more):
    return Dataset("set", documents, queries, qrels, **more)


def test_a_sound_set_has_no_findings():
    assert check(dataset()) == []


@pytest.mark.parametrize(
    ("data", "severity", "code", "examples"),
    [
        (dataset(qrels=(*QRELS, Qrel("x", "d1", 1), Qrel("x", "d2", 1))), "error", "dangling-query", ("x",)),
        (dataset(qrels=(*QRELS, Qrel("q1", "x", 0))), "error", "dangling-document", ("q1 → x",)),
        (dataset(headline=("q1", "q7")), "error", "unknown-headline", ("q7",)),
        (dataset(queries=(*QUERIES, Query("q3", " \n"))), "error", "blank-query", ("q3",)),
        (dataset(queries=(*QUERIES, Query("q3", "x"))), "warning", "query-without-relevant", ("q3",)),
        (dataset(qrels=(*QRELS[:1], Qrel("q2", "d2", -1))), "warning", "query-without-relevant", ("q2",)),
        (dataset(documents=(*DOCUMENTS, Document("d3", "  "))), "warning", "empty-document", ("d3",)),
        (
            dataset(documents=(*DOCUMENTS, Document("d3", "red\n DOOR"))),
            "warning",
            "duplicate-document",
            ("'d1' = 'd3'",),
        ),
        (
            dataset(queries=(*QUERIES, Query("q3", "Which  door?"))),
            "warning",
            "duplicate-query",
            ("'q1' = 'q3'",),
        ),
        (
            dataset(documents=(*DOCUMENTS, Document("d3", "Which door?", "A title"))),
            "warning",
            "leaked-query",
            ("q1 = d3",),
        ),
    ],
)
def test_each_fault_is_found_with_its_example(data, severity, code, examples):
    finding = next(finding for finding in check(data) if finding.code == code)
    assert (finding.severity, finding.examples, finding.count) == (severity, examples, len(examples))
    assert f"({finding.count})" in finding.message


@pytest.mark.parametrize(
    ("a", "b"),
    [("D1", "d1"), ("d 1", "d1"), ("d01", "d1"), ("007", "7"), ("caf\u00e9", "cafe\u0301"), ("Ａ", "a")],
)
def test_ids_that_differ_only_in_form(a, b):
    documents = (Document(a, "one"), Document(b, "two"))
    queries = (Query(a, "first?"), Query(b, "second?"))
    found = {f.code: f.examples for f in check(dataset(documents, queries, (Qrel(a, a, 1), Qrel(b, b, 1))))}
    assert found == {"similar-document-id": (f"{a!r} = {b!r}",), "similar-query-id": (f"{a!r} = {b!r}",)}


@pytest.mark.parametrize(("a", "b"), [("10", "1"), ("1.05", "1.5"), ("d0", "d"), ("a-b", "ab")])
def test_ids_that_differ_in_more_are_left_alone(a, b):
    documents = (Document(a, "one"), Document(b, "two"))
    assert check(dataset(documents, QUERIES, (Qrel("q1", a, 1), Qrel("q2", b, 1)))) == []


def test_nothing_relevant_and_relevant_but_empty_are_errors():
    codes = [f.code for f in check(dataset(qrels=(Qrel("q1", "d1", 0),)))]
    assert codes == ["no-relevant", "query-without-relevant"]
    documents = (Document("d1", ""), DOCUMENTS[1])
    assert [f.code for f in check(dataset(documents))] == ["relevant-empty", "empty-document"]


def test_equal_texts_of_different_scopes_are_no_duplicates():
    documents = tuple(Document(f"d{s}", "same words", metadata={"c": s}) for s in "ab")
    queries = tuple(Query(f"q{s}", "same?", {"c": s}) for s in "ab")
    qrels = tuple(Qrel(f"q{s}", f"d{s}", 1) for s in "ab")
    assert check(dataset(documents, queries, qrels, scope="c")) == []
    assert {f.code for f in check(dataset(documents, queries, qrels))} == {
        "duplicate-document",
        "duplicate-query",
    }


def test_examples_are_few_and_the_count_is_whole():
    many = tuple(Document(f"e{i}", "") for i in range(9))
    finding = check(dataset(documents=(*DOCUMENTS, *many)))[0]
    assert (len(finding.examples), finding.count) == (5, 9)


def test_notes_of_the_readers_are_findings_unless_they_have_one_of_their_own():
    data = dataset(
        documents=(*DOCUMENTS, Document("d3", "")),
        notes=("qrels.tsv: 2 judgements repeated with an equal grade, counted once",
               "empty documents, known ids that are never hits: 1"),
    )  # fmt: skip
    assert [(f.severity, f.code) for f in check(data)] == [
        ("warning", "empty-document"),
        ("warning", "reading"),
    ]
    assert "repeated" in check(data)[1].message

from __future__ import annotations

import json

import pytest

from harness.datasets import load_dataset
from harness.formats import recognise, squad
from harness.formats.reading import DataError
from harness.lint import check


def article(*paragraphs, title="A_place"):
    return {"title": title, "paragraphs": [{"context": c, "qas": qas} for c, qas in paragraphs]}


def qa(query_id, text="Where is it?", **more):
    return {"id": query_id, "question": text, "answers": [], **more}


@pytest.fixture
def put(tmp_path):
    def write(*articles, name="set.json"):
        (tmp_path / name).write_text(json.dumps({"version": "1.1", "data": list(articles)}))
        return tmp_path / name

    return write


def test_paragraphs_are_documents_and_questions_queries(put):
    parts = squad.load(put(article(("\ufeffThe  city.\n", [qa("a", " Where? ")]), ("The sea.", [qa(5)]))))
    assert [(d.doc_id, d.title, d.text) for d in parts.documents] == [
        ("0-0", "A place", "The city."),
        ("0-1", "A place", "The sea."),
    ]
    assert [(q.query_id, q.text) for q in parts.queries] == [("a", "Where?"), ("5", "Where is it?")]
    assert [(q.query_id, q.doc_id) for q in parts.qrels] == [("a", "0-0"), ("5", "0-1")]


def test_a_question_without_answer_is_kept_without_judgement(put):
    data = load_dataset(put(article(("The city.", [qa("a"), qa("b", "Who?", is_impossible=True)]))))
    assert data.queries[1].metadata == {"kind": "no-answer"}
    assert [qrel.query_id for qrel in data.qrels] == ["a"]
    assert "without-relevant" in {f.code for f in check(data)} or any("judgement" in n for n in data.notes)


def test_a_question_under_two_paragraphs_has_both(put):
    parts = squad.load(put(article(("One.", [qa("a")]), ("Two.", [qa("a")]))))
    assert len(parts.queries) == 1
    assert [qrel.doc_id for qrel in parts.qrels] == ["0-0", "0-1"]
    assert "questions that stand under several paragraphs: 1" in parts.notes


def test_xquads_english_titles_are_left_out(put):
    parts = squad.load(put(article(("La ciudad.", [qa("a")])), name="xquad.es.json"))
    assert parts.documents[0].title == ""
    assert parts.notes[0].startswith("titles left out")


def test_the_languages_are_told_from_the_texts(put):
    text = "La ciudad que está en el norte del país es la más grande de todas."
    data = load_dataset(put(article((text, [qa("a", "Where is the city that they are in?")]))))
    assert (data.languages, data.query_languages) == (("es", "en"), ("en",))


def test_it_is_recognised(put):
    path = put(article(("One.", [qa("a")])))
    (path.parent / "dataset.json").write_text("{}")
    assert recognise(path).name == recognise(path.parent).name == "squad"
    assert load_dataset(f"squad:{path}").name == "set"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no list called data"),
        ({"data": [3]}, "article 0 is 3"),
        ({"data": [{"title": "x"}]}, "article 0: paragraphs is None"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "paragraph 0-0: context is None"),
        ({"data": [{"paragraphs": [{"context": "x", "qas": 1}]}]}, "paragraph 0-0: qas is 1"),
        ({"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "a"}]}]}]}, "id 'a', question None"),
        ({"data": [article(("x", [qa("a"), qa("a", "Other?")]))]}, "question id 'a' has two texts"),
    ],
)
def test_another_shape_is_named(tmp_path, content, says):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=says):
        squad.load(tmp_path / "x.json")

from __future__ import annotations

import json

import pytest

from harness.datasets import load_dataset
from harness.formats import locomo, recognise
from harness.formats.reading import DataError


def turn(number, text="words", **more):
    return {"speaker": "Ana", "dia_id": number, "text": text, **more}


def sample(qa, sample_id="c1", turns=("D1:1", "D1:2", "D11:26", "D30:5")):
    conversation = {"speaker_a": "Ana", "session_1_date_time": "noon", "session_1": [turn(t) for t in turns]}
    return {"sample_id": sample_id, "conversation": conversation, "qa": qa}


def question(evidence, category=4, **more):
    return {"question": "Who is it?", "answer": 7, "evidence": evidence, "category": category, **more}


@pytest.fixture
def put(tmp_path):
    def write(*samples):
        path = tmp_path / "talks.json"
        path.write_text(json.dumps(list(samples)))
        return path

    return write


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (["D1:2"], ["D1:2"]),
        (["D1:1; D1:2"], ["D1:1", "D1:2"]),
        (["D1:2 D1:1 D11:26"], ["D1:2", "D1:1", "D11:26"]),
        (["D:11:26"], ["D11:26"]),
        (["D30:05"], ["D30:5"]),
        (["D1:1", "D1:1"], ["D1:1"]),
        (["D1:1", "D"], ["D1:1"]),
        (["D1:1", "D9:99"], ["D1:1"]),
    ],
)
def test_slips_in_evidence(put, evidence, found):
    parts = locomo.load(put(sample([question(evidence)])))
    assert [(q.query_id, q.doc_id, q.relevance) for q in parts.qrels] == [
        ("c1/q0", f"c1/{d}", 1) for d in found
    ]


def test_what_is_left_out_is_counted_and_ids_keep_the_place_of_the_question(put):
    qa = [question(["D1:1"], 5), question([]), question(["D9:9"]), question(["D"]), question(["D1:1"], 2)]
    parts = locomo.load(put(sample(qa)))
    assert [query.query_id for query in parts.queries] == ["c1/q4"]
    assert parts.queries[0].metadata == {"scope": "c1", "category": "temporal", "answer": "7"}
    assert list(parts.notes)[:4] == [
        "pieces of evidence that cannot be read: 1",
        "pieces of evidence that name an unknown turn: 1",
        "questions of category 5, without an answer, left out: 1",
        "questions whose evidence names no turn, left out: 3",
    ]


def test_turns_are_documents_and_a_photo_is_its_caption(put):
    talk = sample([question(["D1:1"])], turns=())
    talk["conversation"]["session_2"] = [
        turn("D2:1", "Look  at this.", blip_caption="a dog"),
        turn("D2:2", ""),
    ]
    parts = locomo.load(put(talk))
    assert parts.documents[0].text == "Ana: Look at this. [shares a photo: a dog]"
    assert parts.documents[0].metadata == {
        "scope": "c1",
        "session": "session_2",
        "date": "",
        "speaker": "Ana",
    }
    assert parts.documents[1].text == "Ana:"


def test_each_question_searches_its_own_conversation(put):
    data = load_dataset(put(sample([question(["D1:1"])]), sample([question(["D1:1"])], "c2")))
    assert (data.scope, data.name) == ("scope", "talks")
    assert [(q.query_id, q.doc_id) for q in data.qrels] == [("c1/q0", "c1/D1:1"), ("c2/q0", "c2/D1:1")]


def test_it_is_recognised_as_a_file_and_as_a_folder_with_one(put):
    path = put(sample([question(["D1:1"])]))
    assert recognise(path).name == recognise(path.parent).name == "locomo"
    assert load_dataset(path.parent).queries == load_dataset(path).queries


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1]", "is no list of conversations"),
        ('[{"qa": []}]', "conversation-0: conversation is None"),
        ('[{"conversation": {"session_1": 3}}]', "session_1: 3 is no list of turns"),
        ('[{"conversation": {"session_1": [{"text": "x"}]}}]', "turn 0: no dia_id"),
        ('[{"conversation": {}, "qa": 3}]', "qa is 3"),
        ('[{"conversation": {}, "qa": [{"question": "x", "category": 9}]}]', "question 0: category 9"),
        (json.dumps([sample([], turns=("D1:1", "D1:1"))]), "document id 'c1/D1:1' stands already;"),
        ("[{", "column 3: not JSON"),
    ],
)
def test_another_shape_is_named(tmp_path, content, says):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=says):
        locomo.load(tmp_path / "x.json")

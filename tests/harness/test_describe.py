from __future__ import annotations

import json

import pytest

from harness.datasets import Dataset, load_dataset
from harness.describe import describe, description_lines, near_duplicate_record
from rag_core.types import Document, Qrel, Query

from .test_cli import bench

LONG = "the city opened a new library near the old harbour in spring"


@pytest.fixture
def data():
    documents = [
        Document("a", LONG, metadata={"at": 1}),
        Document("b", LONG + "!", metadata={"at": 1}),
        Document("c", LONG, metadata={"at": 2}),
        Document("d", "", metadata={"at": 2}),
    ]
    queries = [
        Query("q1", "library harbour"),
        Query("q2", "volcano"),
        Query("q3", "nothing here"),
        Query("q4", "of the"),
    ]
    qrels = [
        Qrel("q1", "a", 2),
        Qrel("q1", "c", 0),
        Qrel("q2", "a", 1),
        Qrel("q2", "b", 1),
        Qrel("q4", "c", 1),
    ]
    return Dataset("small", tuple(documents), tuple(queries), tuple(qrels), languages=("en",), scope="at")


def test_the_figures(data):
    facts = describe(data)
    assert facts["counts"] == {
        "documents": 4, "documents_empty": 1, "queries": 4, "queries_judged": 3, "queries_with_relevant": 3,
        "judgements": 5, "relevant": 4, "scopes": 2,
    }  # fmt: skip
    assert facts["grades"] == {"0": 1, "1": 3, "2": 1}
    assert facts["lengths"]["documents"]["words"] == {
        "mean": 12.0, "min": 12, "p5": 12.0, "p50": 12.0, "p90": 12.0, "p99": 12.0, "max": 12
    }  # fmt: skip
    assert facts["relevant_per_query"]["mean"] == pytest.approx(4 / 3)
    assert facts["judged_per_query"]["max"] == 2
    assert facts["languages"]["documents"] == {"en": 1.0}


def test_how_far_the_judgements_reach(data):
    facts = describe(data)
    assert facts["labels"] == {
        "queries_unjudged": 1,
        "queries_judged_without_answer": 0,
        "judgements_not_relevant": 1,
        "documents_judged": 3,
        "documents_relevant": 3,
    }
    lines = description_lines(facts)
    assert "judged documents        3 (75.0%), relevant to some query 3" in lines
    assert "queries without answer  0 judged so, 1 without a judgement" in lines
    assert not any("only relevant documents are judged" in line for line in lines)


def test_judgements_of_relevant_documents_alone_are_said_and_unknown_ones_not_counted():
    qrels = (Qrel("q1", "a", 1), Qrel("q1", "lost", 1))
    one = Dataset("one", (Document("a", "x"), Document("b", "y")), (Query("q1", "x"),), qrels)
    facts = describe(one)
    assert (facts["labels"]["documents_judged"], facts["labels"]["documents_relevant"]) == (1, 1)
    told = "  only relevant documents are judged: an unjudged answer may be right or wrong"
    assert told in description_lines(facts)
    unanswered = Dataset("two", one.documents, one.queries, (Qrel("q1", "a", 0),))
    assert describe(unanswered)["labels"]["queries_judged_without_answer"] == 1


def test_a_result_keeps_the_counts_of_near_duplicates(data, monkeypatch: pytest.MonkeyPatch):
    found = describe(data)["near_duplicates"]
    names = {"pairs", "documents", "relevant_documents", "relevant_without_their_double", "queries_concerned"}
    assert near_duplicate_record(data) == {name: found[name] for name in names}
    monkeypatch.setattr("harness.describe.MOST_DOCUMENTS", 3)
    assert near_duplicate_record(data) is None


def test_overlap_counts_every_query_once(data):
    overlap = describe(data)["overlap"]
    assert {row["share"]: row["queries"] for row in overlap["histogram"] if row["queries"]} == {
        "none": 1,
        "all": 1,
    }
    assert (overlap["queries"], overlap["without_content_words"], overlap["mean"]) == (2, 1, 0.5)


def test_a_double_that_is_not_judged_is_shown_within_its_scope_only(data):
    found = describe(data)["near_duplicates"]
    assert (found["pairs"], found["documents"], found["queries_concerned"]) == (1, 2, 1)
    assert found["examples"] == [{"query": "q1", "relevant": "a", "double": "b", "alike": 1.0}]


@pytest.mark.parametrize("name", ["mini", "small", "empty"])
def test_the_lines_fit_80_columns_and_the_figures_are_json(data, name):
    sets = {"small": data, "empty": Dataset("empty", (), (), ())}
    facts = describe(sets.get(name) or load_dataset(name))
    lines = description_lines(facts)
    assert max(map(len, lines)) <= 80
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert sum(line.startswith("near-duplicates") for line in lines) == 1


def test_bins_hold_their_upper_ends():
    texts = ["one two three four five"]
    queries = [
        Query(str(n), " ".join(["one", "two", "three", "four", "five"][:n] + ["x", "y", "z", "v", "w"][n:]))
        for n in range(6)
    ]
    made = Dataset(
        "x", (Document("d", texts[0]),), tuple(queries), tuple(Qrel(str(n), "d", 1) for n in range(6))
    )
    assert [row["queries"] for row in describe(made)["overlap"]["histogram"]] == [1, 1, 1, 1, 1, 0, 1]


def test_the_command(tmp_path):
    done = bench("data", "describe", "mini")
    assert done.returncode == 0, done.stderr
    assert "words shared with any relevant document" in done.stdout
    done = bench("data", "describe", "mini", "--json")
    assert json.loads(done.stdout)["name"] == "mini"
    assert bench("data", "describe", str(tmp_path)).returncode == 2

from __future__ import annotations

import math

from harness.datasets import Dataset
from harness.overlap import overlap_record, query_overlap
from rag_core.types import Document, Qrel, Query


def data(*texts, queries, qrels):
    documents = tuple(Document(f"d{n}", text) for n, text in enumerate(texts))
    asked = tuple(Query(f"q{n}", text) for n, text in enumerate(queries))
    return Dataset("x", documents, asked, tuple(Qrel(*q) for q in qrels), languages=("en",))


def test_shares_are_of_stemmed_content_words_in_any_relevant_document():
    texts = "dogs were running", "a cat in Lisbon", "runners"
    found = query_overlap(
        data(*texts, queries=["the dog of Lisbon runs home"], qrels=[("q0", "d0", 1), ("q0", "d1", 1)])
    )["q0"]
    assert (found.words, found.shared, found.share) == (4, 3, 0.75)  # dog, run, lisbon; not home


def test_a_word_that_every_document_has_weighs_little():
    texts = "Ana said lisbon", "Ana said porto", "Ana said rain", "Ana said sun"
    found = query_overlap(data(*texts, queries=["Ana snow"], qrels=[("q0", "d0", 1)]))["q0"]
    ana, snow = math.log(1 + 0.5 / 4.5), math.log(1 + 4.5 / 0.5)
    assert found.share == 0.5
    assert math.isclose(found.idf_share, ana / (ana + snow))


def test_queries_without_words_or_without_a_relevant_document():
    made = query_overlap(
        data("words", queries=["of the", "words", "words"], qrels=[("q0", "d0", 1), ("q1", "d0", 0)])
    )
    assert list(made) == ["q0"]
    assert (made["q0"].share, made["q0"].idf_share) == (None, None)


def test_a_relevant_document_that_is_not_there_shares_nothing():
    assert query_overlap(data("words", queries=["words"], qrels=[("q0", "zz", 1)]))["q0"].share == 0


def test_a_result_keeps_plain_values_by_query_sorted():
    texts = "Ana said lisbon", "Ana said porto", "rain"
    queries = ["Ana snow in porto", "of the"]
    made = overlap_record(data(*texts, queries=queries, qrels=[("q1", "d0", 1), ("q0", "d0", 1)]))
    assert list(made) == ["q0", "q1"]
    assert made["q1"] == {"words": 0, "shared": 0, "share": None, "idf_share": None}
    assert (made["q0"]["words"], made["q0"]["shared"], made["q0"]["share"]) == (3, 1, 0.333333)

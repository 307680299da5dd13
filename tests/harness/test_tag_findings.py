"""Sentences by tag: who is weak where, and where BM25 falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from harness.results import CellResult, MetricResult, ResultDocument
from harness.rows import make_rows
from harness.summary import verdict
from harness.tag_findings import MOST_SENTENCES, tag_sentences

METRIC = "ndcg@10"


@pytest.fixture
def large(factory: Callable[..., ResultDocument]) -> ResultDocument:
    return factory(120)


def said(document: ResultDocument) -> list[str]:
    return tag_sentences(document, make_rows(document), METRIC)


def set_values(cell: CellResult, values: list[float]) -> None:
    cell.metrics[METRIC] = MetricResult(float(np.mean(values)), 0.0, 1.0, values)


def cell_of(document: ResultDocument, provider: str, pipeline: str) -> CellResult:
    return next(c for c in document.cells if (c.key.provider, c.key.pipeline) == (provider, pipeline))


def test_a_system_that_is_weak_in_one_language(large: ResultDocument) -> None:
    """An English model that loses where the queries are Spanish or Portuguese, and the baseline unnamed."""
    found = said(large)
    assert len(found) == 1
    assert found[0].startswith("minilm · hybrid is weak on the 40 queries of lang pt: 0.3")
    assert "against BM25's 0.5" in found[0]
    assert "corrected p < 0.001" in found[0]
    assert "; on the 40 queries of lang en +0.1" in found[0]
    assert found[0] in verdict(large).sentences


def test_what_is_lost_everywhere_is_no_matter_of_the_tag(large: ResultDocument) -> None:
    words = cell_of(large, "bm25", "bm25").metrics[METRIC].per_query
    for pipeline in ("vector", "hybrid"):
        set_values(cell_of(large, "minilm", pipeline), [value * 0.5 for value in words])
    assert said(large) == []


def test_bm25_falls_on_one_kind(large: ResultDocument) -> None:
    tags = large.dataset["query_tags"]
    kinds = [tags[query_id]["kind"] for query_id in large.dataset["query_ids"]]
    cell = cell_of(large, "bm25", "bm25")
    values = cell.metrics[METRIC].per_query
    set_values(
        cell, [value * 0.1 if kind == "cross-lingual" else value for value, kind in zip(values, kinds)]
    )
    first = said(large)[0]
    assert first.startswith("On the 39 queries of kind cross-lingual BM25 falls to 0.05")
    assert "on the other 81) and e5-small · " in first


def test_marked_systems_few_queries_and_files_without_bm25_say_nothing(large: ResultDocument) -> None:
    marked = {"kind": "embedder", "provider": "minilm", "target": "cpu", "verdict": "differs", "reason": "x"}
    large.parity = [marked]
    assert said(large) == []
    large.parity = []
    large.cells = [cell for cell in large.cells if cell.key.pipeline != "bm25"]
    assert said(large) == []


def test_few_queries_say_nothing(document: ResultDocument) -> None:
    assert said(document) == []


def test_the_scope_is_not_spoken_of_and_sentences_are_few(large: ResultDocument) -> None:
    tags = large.dataset["query_tags"]
    for values in tags.values():
        values["conversation"] = values["lang"]
    large.spec["scope"] = "conversation"
    assert len(said(large)) == 1
    weak = cell_of(large, "minilm", "vector")
    for number in range(5):
        large.cells.append(replace(weak, key=replace(weak.key, provider=f"other-{number}")))
    assert len(said(large)) == MOST_SENTENCES

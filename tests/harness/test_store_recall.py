"""The share of the exact top 10, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from harness.store_recall import store_recall
from rag_core.types import Document, Query, Ranking

N = 30
#: Row i has cosine 1 - i/100 with the query.
ANGLES = np.arccos(1 - np.arange(N) / 100)
VECTORS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1).astype(np.float32)
DOCUMENTS = [Document(f"d{i}", "x", metadata={"odd": i % 2}) for i in range(N)]
QUERIES = [Query("q1", "x"), Query("q2", "y")]
ASKED = {q.query_id: np.array([1, 0], np.float32) for q in QUERIES}


def ranking(*rows: int) -> Ranking:
    return Ranking.from_scores((f"d{row}", 1 - row / 100) for row in rows)


def recall(found: dict[str, Ranking], where=lambda query: None, asked=ASKED) -> float | None:
    return store_recall(DOCUMENTS, VECTORS, QUERIES, asked, found, where)


def test_all_found_and_a_tenth_missed() -> None:
    whole = ranking(*range(20))
    assert recall({"q1": whole}) == 1.0
    assert recall({"q1": whole, "q2": ranking(*range(9), 15)}) == pytest.approx(0.95)
    assert recall({"q1": ranking()}) == 0.0


def test_a_filter_limits_what_could_be_found() -> None:
    odd = ranking(*range(1, 20, 2))
    assert recall({"q1": odd}, where=lambda query: {"odd": 1}) == 1.0
    assert recall({"q1": odd}) == pytest.approx(0.5)
    assert recall({"q1": odd}, where=lambda query: {"odd": 7}) is None


def test_fewer_documents_than_ten() -> None:
    found = store_recall(
        DOCUMENTS[:3], VECTORS[:3], QUERIES, ASKED, {"q1": ranking(0, 1)}, lambda query: None
    )
    assert found == pytest.approx(2 / 3)
    assert store_recall([], VECTORS[:0], QUERIES, ASKED, {"q1": ranking()}, lambda query: None) is None


def test_equal_rows_count_for_each_other() -> None:
    rows = np.tile(VECTORS[:1], (N, 1))
    found = store_recall(DOCUMENTS, rows, QUERIES, ASKED, {"q1": ranking(*range(20, 30))}, lambda query: None)
    assert found == 1.0


def test_blank_and_failed_queries_have_no_part() -> None:
    asked = {"q1": ASKED["q1"], "q2": np.zeros(2, np.float32)}
    assert recall({"q1": ranking(*range(10)), "q2": ranking()}, asked=asked) == 1.0
    assert recall({}) is None

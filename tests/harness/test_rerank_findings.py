"""Helps, hurts, cannot be told: against the same candidates without reranking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.rerank_findings import findings, rerank_sentences
from harness.results import CellResult, ResultDocument
from harness.rows import make_rows
from harness.summary import verdict

Add = Callable[..., CellResult]


def sentences(document: ResultDocument) -> list[str]:
    return [one.sentence() for one in findings(make_rows(document), "ndcg@10")]


def test_hurts_and_says_so(document: ResultDocument, reranked: Add) -> None:
    reranked(document, -0.1)
    (one,) = findings(make_rows(document), "ndcg@10")
    assert one.outcome == "hurts"
    assert one.plain is not None
    assert one.plain.label == "e5-small · hybrid"
    assert one.versus.high < 0
    (text,) = sentences(document)
    assert text.startswith("e5-small · hybrid+rerank · fine: reranking hurts here: nDCG@10 0.796 → 0.69")
    assert text.endswith("(corrected p < 0.001); it adds 100 ms a query.")
    assert text in verdict(document).sentences


def test_helps_and_says_so(document: ResultDocument, reranked: Add) -> None:
    reranked(document, 0.1, provider="minilm")
    (text,) = sentences(document)
    assert "reranking helps here: nDCG@10 0.441 → 0.538, +0.085 to +0.112" in text
    assert text in verdict(document).sentences


def test_cannot_be_told(document: ResultDocument, reranked: Add) -> None:
    reranked(document, 0.003, provider="minilm")
    (one,) = findings(make_rows(document), "ndcg@10")
    assert one.outcome == "unknown"
    assert (
        "reranking cannot be told from no reranking: nDCG@10 0.441 → 0.444, −0.008 to +0.016"
        in one.sentence()
    )


def test_nothing_changed(document: ResultDocument, reranked: Add) -> None:
    made = reranked(document, 0.0)
    made.rerank = {**(made.rerank or {}), "added_s": None}
    (text,) = sentences(document)
    assert text.endswith("no reranking: nDCG@10 0.796 → 0.796, the same for every query.")


def test_p_values_are_corrected_over_the_rerank_comparisons(document: ResultDocument, reranked: Add) -> None:
    reranked(document, 0.012, "one")
    (alone,) = findings(make_rows(document), "ndcg@10")
    assert alone.versus.adjusted == alone.versus.p_value
    for name in ("two", "three", "four"):
        reranked(document, 0.0, name)
    among = findings(make_rows(document), "ndcg@10")
    assert among[0].versus.p_value == alone.versus.p_value
    assert among[0].versus.adjusted == pytest.approx(4 * alone.versus.p_value)


def test_a_winner_that_cannot_be_told_from_its_plain_row_is_named_so(
    document: ResultDocument, reranked: Add
) -> None:
    reranked(document, 0.004)
    said = verdict(document)
    assert str(said.winner).endswith("hybrid+rerank/fine")
    (text,) = [s for s in said.sentences if s.startswith("The winner reranks")]
    assert "and cannot be told apart from e5-small · hybrid: nDCG@10 0.796 → 0." in text
    assert "without reranking p95 is 52.3 ms, with it 152 ms" in text
    assert not [s for s in said.sentences if s.startswith("e5-small · hybrid+rerank · fine: reranking")]


def test_a_sure_winner_gets_the_plain_sentence(document: ResultDocument, reranked: Add) -> None:
    reranked(document, 0.1)
    said = verdict(document).sentences
    assert not [s for s in said if s.startswith("The winner reranks")]
    assert [s for s in said if "fine: reranking helps here" in s]


def test_without_a_kept_pool_the_two_rows_are_compared(document: ResultDocument, reranked: Add) -> None:
    """Results of before pools were kept, and metrics that the pool's figures do not hold."""
    made = reranked(document, -0.1)
    with_pool = findings(make_rows(document), "ndcg@10")[0].versus
    assert findings(make_rows(document), "map@100")[0].outcome == "hurts"
    made.rerank = None
    assert findings(make_rows(document), "ndcg@10")[0].versus == with_pool


def test_without_anything_to_compare_the_winner_says_so(document: ResultDocument, reranked: Add) -> None:
    made = reranked(document, 0.1)
    made.rerank = None
    document.cells = [cell for cell in document.cells if cell.key.pipeline != "hybrid"]
    rows = make_rows(document)
    assert findings(rows, "ndcg@10") == []
    best = next(row for row in rows if row.is_winner)
    (text,) = rerank_sentences(rows, best, "ndcg@10")
    assert text.startswith("Whether e5-small · hybrid+rerank · fine gains by its reranking was not measured")


def test_the_worst_news_first_and_not_endless(document: ResultDocument, reranked: Add) -> None:
    for i in range(4):
        reranked(document, 0.004, f"idle{i}")
    reranked(document, 0.1, "good", provider="minilm")
    for i in range(3):
        reranked(document, -0.2, f"bad{i}")
    rows = make_rows(document)
    best = next(row for row in rows if row.is_winner)
    found = rerank_sentences(rows, best, "ndcg@10")
    assert found[0].startswith("The winner reranks, and cannot be told apart")
    assert ["hurts" in s for s in found[1:5]] == [True, True, True, False]
    assert "helps" in found[4]
    assert found[-1] == "1 further comparisons with no reranking stand in the report."


def test_failed_cells_are_left_out(document: ResultDocument, reranked: Add) -> None:
    made = reranked(document, 0.1)
    document.cells[-1] = replace(made, status="failed", reason="no weights", metrics={}, rerank=None)
    assert findings(make_rows(document), "ndcg@10") == []


def test_a_score_threshold_comes_after_what_is_compared(document: ResultDocument, reranked: Add) -> None:
    cell = reranked(document, -0.1)
    cell.settings = {**cell.settings, "score_threshold": 0.5}
    [one] = findings(make_rows(document), "ndcg@10")
    assert "reranking hurts here, before the score threshold: nDCG@10" in one.sentence()

"""The section on score thresholds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np

from harness.render.thresholds import found_thresholds, score_text, score_thresholds
from harness.results import CellResult, ResultDocument, result_schema
from harness.rows import make_rows


def scores(distance: float, n: int = 40, of: str = "rerank", unanswerable: int = 40) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "of": of,
        "relevant": random.normal(distance, 1, n).tolist(),
        "other": random.normal(0, 1, n).tolist(),
        "unanswerable": random.normal(0, 1, unanswerable).tolist(),
        "n_unjudged": 0,
    }


def test_no_scores_no_section(document: ResultDocument) -> None:
    assert score_thresholds(make_rows(document)) == ""


def test_a_sentence_and_a_line_for_each_model_that_scores(
    document: ResultDocument, reranked: Callable[..., CellResult]
) -> None:
    cell = reranked(document, 0.0)
    cell.thresholds, cell.settings = scores(9), {**cell.settings, "reranker": "fine@cpu?dtype=int8"}
    mixed = reranked(document, 0.0, mix="ranks")
    mixed.thresholds = cell.thresholds
    document.cells[2].thresholds = scores(0.2, of="vector")
    text = score_thresholds(make_rows(document))
    assert "e5-small · hybrid+rerank · fine: score_threshold=" in text
    assert (
        "is suggested: it keeps 100 % of the answers (91 % to 100 %) and lets 0 % of the false ones" in text
    )
    assert (
        "e5-small · vector: no clean separation: where at least 80 % of the answers are surely kept" in text
    )
    lines = [line for line in text.splitlines() if line.startswith("| e5-small")]
    assert len(lines) == 2  # fused with the order before, the scores are the same
    by_vector, by_reranker = sorted(lines, key=lambda line: "rerank" in line)
    assert "| e5-small, q4, cosine | no clean separation | 40 / 40 | (" in by_vector
    assert "| fine@cpu?dtype=int8 | separates | 40 / 40 | " in by_reranker
    assert "queries that no document of the corpus answers" in text
    assert "do not carry over to another model, dtype, engine or window" in text
    assert "`Index.hybrid_search`" in text
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_what_stands_in_for_a_false_answer_is_said(document: ResultDocument) -> None:
    document.cells[2].thresholds = scores(5, unanswerable=3, of="vector")
    text = score_thresholds(make_rows(document))
    assert "the best candidate of every query that is not judged relevant stands in" in text
    assert "queries that no document of the corpus answers" not in text


def test_too_few_queries_leave_the_figures_out(document: ResultDocument) -> None:
    document.cells[2].thresholds = scores(5, n=8, of="vector")
    text = score_thresholds(make_rows(document))
    assert "too few queries: 8 queries on a side, 20 needed." in text
    assert "| too few queries | 8 / 40 | – | – | – | – | – |" in text


def test_failed_rows_have_none(document: ResultDocument) -> None:
    document.cells[-1].thresholds = scores(5)
    assert found_thresholds(make_rows(document)) == []


def test_scores_keep_four_digits() -> None:
    assert [score_text(value) for value in (-1.23456, 0.81234, 12.0)] == ["−1.235", "0.8123", "12"]

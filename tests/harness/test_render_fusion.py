"""The section "Fusion" of the report."""

from __future__ import annotations

from harness.render.fusion import fusion
from harness.render.markdown import render
from harness.results import ResultDocument
from harness.rows import make_rows


def test_every_hybrid_row_that_has_both_legs(document: ResultDocument) -> None:
    text = fusion(document, make_rows(document), "ndcg@10")
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[0] for line in lines] == ["| e5-small · hybrid", "| minilm · hybrid"]
    assert "| bm25 0.513 | −0.073 (" in lines[1]
    assert lines[0].count(" to ") == 3
    assert text in render(document)


def test_a_row_surely_below_a_leg_names_the_leg(document: ResultDocument) -> None:
    hybrid = next(c for c in document.cells if (c.key.provider, c.key.pipeline) == ("e5-small", "hybrid"))
    found = hybrid.metrics["ndcg@10"]
    found.per_query = [0.1] * 40
    found.mean = 0.1
    text = fusion(document, make_rows(document), "ndcg@10")
    assert "**e5-small · hybrid is worse than its better leg, and surely so: take e5-small" in text
    assert "minilm · hybrid is worse" not in text  # not sure


def test_nothing_without_both_legs(document: ResultDocument) -> None:
    document.cells = [cell for cell in document.cells if cell.key.pipeline != "vector"]
    assert fusion(document, make_rows(document), "ndcg@10") == ""

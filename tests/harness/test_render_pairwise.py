"""The section "How sure" of the report."""

from __future__ import annotations

from dataclasses import replace

from harness.render.pairwise import how_sure
from harness.results import ResultDocument
from harness.rows import make_rows


def test_the_best_against_each_and_the_leaders_among_themselves(document: ResultDocument) -> None:
    vector = document.cells[2]
    document.cells.append(replace(vector, key=replace(vector.key, store="chroma")))
    text = how_sure(document, make_rows(document), "ndcg@10")
    table = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(table) == 7  # six others, and the two that are not told apart from it
    assert "cannot be told apart" in table[0]
    assert "| told apart |" in table[2]
    assert table[-1].startswith("| e5-small · vector (flat) | e5-small · vector (chroma) | cannot be told")
    assert "| 0 / 40 / 0 | – | – | 0.000 |" in table[-1]
    assert "all 21 pairs of systems are corrected together (Holm)" in text
    assert "margin" not in text.lower()


def test_a_margin_gets_its_column(document: ResultDocument) -> None:
    document.spec["margins"] = ["ndcg@10=0.05"]
    text = how_sure(document, make_rows(document), "ndcg@10")
    assert "| verdict | margin 0.05 | Δ |" in text
    assert "| worse |" in text
    assert "by the one-sided 95 % bound" in text


def test_marked_cells_take_no_part_and_one_system_has_no_section(marked: ResultDocument) -> None:
    assert "e5-small" not in how_sure(marked, make_rows(marked), "ndcg@10")
    marked.cells = marked.cells[:1]
    assert how_sure(marked, make_rows(marked), "ndcg@10") == ""


def test_few_queries_are_told_to_have_narrow_intervals(document: ResultDocument) -> None:
    assert "covers about 93 %" in how_sure(document, make_rows(document), "ndcg@10")

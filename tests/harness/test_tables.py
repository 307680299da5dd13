"""`bench show` and the table in the terminal."""

from __future__ import annotations

import json
import math

import pytest
from rich.cells import cell_len

from harness.results import ResultDocument
from harness.tables import pipe_table, records, show, terminal_table
from rag_core.errors import InvalidArgumentError

HEADER = [
    *("data", "provider", "target", "dtype", "store", "pipeline", "reranker", "fusion", "status"),
    *("ndcg@10", "precision@5", "recall@10", "mrr@10", "map@100", "success@5"),
    *("p50_s", "p95_s", "docs_per_s", "peak_rss_bytes"),
]


def test_tsv_has_one_row_per_cell_at_full_precision(document: ResultDocument) -> None:
    lines = [line.split("\t") for line in show(document, "tsv").splitlines()]
    assert lines[0] == HEADER
    assert len(lines) == 1 + len(document.cells)
    assert {len(line) for line in lines} == {len(HEADER)}
    assert lines[3][:9] == ["civic", "e5-small", "cpu", "q4", "flat", "vector", "-", "-", "ok"]
    assert float(lines[3][9]) == document.cells[2].mean("ndcg@10")
    assert lines[3][-1] == "410000000"
    assert lines[-1] == ["civic", "broken", "cpu", "-", "flat", "hybrid", "-", "rrf", "failed", *[""] * 10]


def test_tsv_fields_hold_no_tab_and_no_nan(document: ResultDocument) -> None:
    cell = document.cells[0]
    cell.metrics["ndcg@10"].mean = math.nan
    cell.speed["p50_s"] = math.inf
    document.cells[1].model = "a\tb"
    document.cells[1].status = "o\tk\n"
    lines = show(document, "tsv").splitlines()
    assert len(lines) == 9
    assert lines[1].split("\t")[9] == ""
    assert lines[1].split("\t")[15] == ""
    assert lines[2].split("\t")[8] == "o k"


def test_json_is_a_strict_list_of_objects(document: ResultDocument) -> None:
    document.cells[0].metrics["ndcg@10"].mean = math.nan
    values = json.loads(show(document, "json"), parse_constant=pytest.fail)
    assert [list(value) for value in values] == [HEADER] * 8
    assert values[0]["ndcg@10"] is None
    assert values[1]["ndcg@10"] == document.cells[1].mean("ndcg@10")
    assert values[1]["peak_rss_bytes"] == 64_000_000


def test_md_has_three_significant_digits(document: ResultDocument) -> None:
    lines = show(document, "md").splitlines()
    assert lines[0] == "| " + " | ".join(HEADER) + " |"
    assert lines[1].count("---:") == 10
    assert "| 0.781 |" in lines[4]
    assert "| 0.0456 | 0.0538 | 10.0 | 410,000,000 |" in lines[4]
    assert lines[-1].endswith("| failed |" + " – |" * 10)


def test_an_unknown_format_is_refused(document: ResultDocument) -> None:
    with pytest.raises(InvalidArgumentError, match="'xml'; accepted: tsv, json, md"):
        show(document, "xml")


def test_pipes_in_a_field_do_not_break_the_table() -> None:
    assert pipe_table(["a|b", "c"], [["x\ny", "1"]], numeric=1) == (
        "| a\\|b | c |\n| --- | ---: |\n| x y | 1 |\n"
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_terminal_table_fits(document: ResultDocument, width: int) -> None:
    table = terminal_table(document, width)
    assert max(cell_len(line) for line in table.splitlines()) <= width
    assert "…" not in table
    assert "\x1b" not in table
    assert "\r" not in table


def test_the_terminal_table_says_what_matters(document: ResultDocument) -> None:
    lines = terminal_table(document, 100).splitlines()
    for name in ("system", "nDCG@10", "95 %", "Δ base", "p50 ms", "p95 ms", "docs/s", "memory"):
        assert name in lines[0]
    row = next(line for line in lines if "e5-small · hybrid" in line)
    assert row.startswith("*")
    assert row.split()[-8:] == ["0.796", "0.740–0.839", "+0.370", "45.8", "52.3", "10.0", "410", "MB"]
    assert sum(line.startswith("*  ") for line in lines) == 1
    assert "base" in next(line for line in lines if "fake · hybrid" in line)
    assert any(line.startswith("failed: broken · vector, broken · hybrid: RuntimeError") for line in lines)
    assert "failed" in next(line for line in lines if line.strip().startswith("broken · vector"))


def test_what_is_not_recommended_is_marked(marked: ResultDocument) -> None:
    assert [r["mark"] for r in records(marked)] == [None, None, "!", "!", None, None, None, None]
    tsv = [line.split("\t") for line in show(marked).splitlines()]
    assert tsv[0] == [*HEADER, "mark"]
    assert [line[-1] for line in tsv[1:]] == ["", "", "!", "!", "", "", "", ""]
    lines = terminal_table(marked, 100).splitlines()
    assert [line[0] for line in lines if "e5-small · " in line][:2] == ["!", "!"]
    assert next(line for line in lines if line.startswith("*  ")).split()[1] == "bm25"
    said = next(line for line in lines if line.startswith("! not recommended: "))
    assert said.startswith("! not recommended: e5-small · vector, e5-small · hybrid: top-10 overlap 0.31")
    assert all(cell_len(line) <= 80 for line in terminal_table(marked, 80).splitlines())


def test_long_names_are_folded_not_cut(document: ResultDocument) -> None:
    from dataclasses import replace

    name = "a-provider-with-a-very-long-name?option=1234567890"
    document.cells[0].key = replace(document.cells[0].key, provider=name)
    table = terminal_table(document, 80)
    assert max(cell_len(line) for line in table.splitlines()) <= 80
    start = table.splitlines()[0].index("system")
    folded = [line[start:].split(" ")[0] for line in table.splitlines()[2:8]]
    assert name in "".join(folded)


def test_markup_in_names_is_text(document: ResultDocument) -> None:
    from dataclasses import replace

    document.cells[0].key = replace(document.cells[0].key, provider="[red]x")
    assert "[red]x" in terminal_table(document, 120)


def test_an_empty_document_and_missing_values(document: ResultDocument) -> None:
    document.cells[0].metrics["ndcg@10"].mean = math.nan
    document.cells[0].speed = {}
    assert "–" in terminal_table(document, 80).splitlines()[2]
    document.cells = []
    assert "nDCG@10" in terminal_table(document, 80)
    assert len(show(document, "tsv").splitlines()) == 1

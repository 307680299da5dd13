"""Parts of the queries in report.md and strata.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.render.csvfile import write
from harness.render.markdown import render
from harness.render.strata import by_tags, strata_csv
from harness.results import ResultDocument
from harness.rows import make_rows
from harness.tag_strata import tag_strata

METRIC = "ndcg@10"


@pytest.fixture
def large(factory: Callable[..., ResultDocument]) -> ResultDocument:
    document = factory(120)
    for i, tags in enumerate(document.dataset["query_tags"].values()):
        tags |= {"category": ("first", "second")[i % 2], "many": f"v{i // 10}", "page": i}
    return document


def test_differences_from_bm25_stand_beside_the_means(large: ResultDocument) -> None:
    text = by_tags(large, make_rows(large), METRIC)
    lines = text.split("## nDCG@10 by language of the query\n\n")[1].split("##")[0].splitlines()
    assert lines[0] == "| system | en (n = 40) | Δ BM25 | es (n = 40) | Δ BM25 | pt (n = 40) | Δ BM25 |"
    assert lines[2].startswith("| bm25 | 0.5")
    assert lines[2].count("| BM25 |") == 3
    gap = tag_strata(large, "lang", METRIC).parts[1].versus["minilm/cpu/int8/flat/vector/-"]
    (row,) = (line for line in lines if line.startswith("| minilm · vector |"))
    assert f"−{-gap.mean:.3f} (−{-gap.low:.3f} to −{-gap.high:.3f})" in row
    assert "Δ BM25 where a part has 20 queries" in text
    assert text in render(large)


def test_other_tags_have_a_section_where_their_parts_are_large(large: ResultDocument) -> None:
    text = by_tags(large, make_rows(large), METRIC)
    assert (
        "## nDCG@10 by category of the query\n\n| system | first (n = 60) | Δ BM25 | second (n = 60)" in text
    )
    assert "many" not in text
    assert "page" not in text
    large.spec["scope"] = "category"
    assert "category" not in by_tags(large, make_rows(large), METRIC)


def test_small_parts_have_means_alone(document: ResultDocument) -> None:
    text = by_tags(document, make_rows(document), METRIC)
    assert "| system | en (n = 14) | es (n = 13) | pt (n = 13) |" in text
    assert "Δ" not in text


def test_the_table_for_spreadsheets(large: ResultDocument, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(strata_csv(large, make_rows(large), METRIC))))
    assert list(dict.fromkeys(row["split"] for row in rows)) == ["lang", "kind", "category"]
    (found,) = (r for r in rows if (r["part"], r["system"]) == ("es", "minilm · vector"))
    gap = tag_strata(large, "lang", METRIC).parts[1].versus[found["cell"]]
    assert (int(found["n"]), float(found["delta_bm25"])) == (40, gap.mean)
    assert float(found["p_corrected"]) == gap.adjusted
    assert next(r for r in rows if r["system"] == "bm25")["delta_bm25"] == ""
    assert [path.name for path in write(large, tmp_path)] == ["cells.csv", "strata.csv"]
    assert (tmp_path / "strata.csv").read_text().splitlines()[0].startswith("split,part,n,cell,system,metric")


def test_both_splits_by_words_stand_in_it(large: ResultDocument) -> None:
    large.dataset["query_overlap"] = {
        query_id: {"words": 4, "shared": i % 4, "share": i % 4 / 4, "idf_share": i / 120}
        for i, query_id in enumerate(large.dataset["query_ids"])
    }
    found = csv.DictReader(io.StringIO(strata_csv(large, make_rows(large), METRIC)))
    parts = list(dict.fromkeys((row["split"], row["part"], row["n"]) for row in found))
    assert parts[:5] == [
        ("words", "no word shared", "30"),
        ("words", "some shared", "90"),
        ("share", "share up to 0.33", "40"),
        ("share", "0.33 to 0.66", "40"),
        ("share", "above 0.66", "40"),
    ]


def test_no_file_without_parts(document: ResultDocument, tmp_path: Path) -> None:
    assert strata_csv(document, make_rows(document), METRIC) == ""
    assert [path.name for path in write(document, tmp_path)] == ["cells.csv"]

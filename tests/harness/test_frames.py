"""Tables to go on with: columns, order, what is missing; data frames where pandas is."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from harness.frames import cell_table, is_text, query_table, table, unit
from harness.render.csvfile import as_csv
from harness.results import ResultDocument
from harness.tables import header
from rag_core.errors import InvalidArgumentError, MissingExtraError

OVERLAP = {"words": 4, "shared": 1, "share": 0.25, "idf_share": None}


@pytest.fixture
def tagged(document: ResultDocument) -> ResultDocument:
    document.dataset["query_overlap"] = {"q01": OVERLAP}
    document.dataset["query_tags"]["q02"] = {"lang": "pt"}
    document.cells[2].metrics["ndcg@10"].per_query[3] = None
    del document.cells[2].metrics["map@100"]
    return document


def test_a_row_per_cell_begins_with_the_columns_of_show(document: ResultDocument) -> None:
    made = cell_table(document)
    assert list(made.columns)[: len(header(document))] == header(document)
    assert made.n_rows == len(made.lines) == len(document.cells)
    assert made.columns["ndcg@10_low"][2] == document.cells[2].metrics["ndcg@10"].low
    assert made.columns["delta"][1] is None  # the baseline itself


def test_a_row_per_measured_cell_and_query(tagged: ResultDocument) -> None:
    made = query_table(tagged)
    assert made.n_rows == 6 * 40
    assert made.columns["system"][:41:40] == ["bm25", "fake · hybrid"]
    assert made.columns["query_id"][:40] == tagged.dataset["query_ids"]
    assert made.columns["ndcg@10"][:40] == tagged.cells[0].metrics["ndcg@10"].per_query
    third = slice(80, 120)
    assert made.columns["ndcg@10"][third][3] is None
    assert made.columns["map@100"][third] == [None] * 40
    assert made.columns["tag_lang"][:3] == ["en", "es", "pt"]
    assert made.columns["tag_kind"][2] is None
    assert made.columns["overlap_shared"][:2] == [None, 1]
    assert made.columns["overlap_idf_share"] == [None] * 240
    assert table(tagged, "queries") == made


def test_units_are_told_by_the_names(tagged: ResultDocument) -> None:
    shown = {name: unit(name) for name in (*query_table(tagged).columns, *cell_table(tagged).columns)}
    assert (shown["p95_s"], shown["docs_per_s"], shown["peak_rss_bytes"]) == ("s", "1/s", "byte")
    assert (shown["ndcg@10"], shown["delta_low"], shown["overlap_share"]) == ("fraction",) * 3
    assert (shown["overlap_words"], shown["overlap_shared"]) == ("1", "1")
    assert [name for name, what in shown.items() if not what] == [name for name in shown if is_text(name)]


def test_no_cells_and_other_rows(document: ResultDocument) -> None:
    document.cells = []
    assert query_table(document).n_rows == cell_table(document).n_rows == 0
    assert as_csv(query_table(document)).count("\n") == 1
    with pytest.raises(InvalidArgumentError, match="rows 'metrics'; accepted: cells, queries"):
        table(document, "metrics")


def test_texts_survive_csv(tagged: ResultDocument) -> None:
    tagged.dataset["query_tags"]["q00"]["lang"] = 'a "quoted", b\nsecond line'
    lines = list(csv.DictReader(io.StringIO(as_csv(query_table(tagged)))))
    assert lines[0]["tag_lang"] == 'a "quoted", b\nsecond line'
    assert float(lines[0]["ndcg@10"]) == tagged.cells[0].metrics["ndcg@10"].per_query[0]


def test_without_pandas_the_extra_is_named(document: ResultDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[frames\]'"):
        document.to_frame()


@pytest.mark.stores_external
def test_the_frames_hold_the_tables(tagged: ResultDocument) -> None:
    pandas = pytest.importorskip("pandas", reason="needs the extra frames")
    for rows in ("cells", "queries"):
        frame = tagged.to_frame(rows)
        made = table(tagged, rows)
        assert list(frame.columns) == list(made.columns)
        assert len(frame) == made.n_rows
        for name, values in made.columns.items():
            assert (frame[name].dtype == "float64") is not is_text(name)
            assert frame[name].isna().tolist() == [value is None for value in values]
            known = [value for value in values if value is not None]
            assert frame[name].dropna().tolist() == known
    means = tagged.to_frame("queries").groupby("system")["ndcg@10"].mean()
    assert means["bm25"] == pytest.approx(tagged.cells[0].mean("ndcg@10"))
    tagged.cells = []
    assert isinstance(tagged.to_frame(), pandas.DataFrame)
    assert len(tagged.to_frame("queries")) == 0

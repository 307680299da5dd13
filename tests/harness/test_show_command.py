"""`bench show` onto the screen and into files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from harness.frames import query_table, table
from harness.render import csvfile
from harness.results import ResultDocument, load_result
from harness.show_command import FORMATS, show_text
from rag_core.errors import InvalidArgumentError, MissingExtraError


@pytest.fixture
def result(document: ResultDocument, tmp_path: Path) -> Path:
    document.write(tmp_path / "result.json")
    return tmp_path / "result.json"


def test_csv_is_that_of_the_report(result: Path, document: ResultDocument) -> None:
    assert show_text(result, "csv") == csvfile.render(document)
    assert show_text(result, "csv", "queries") == csvfile.as_csv(query_table(document))


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "parquet"])
def test_what_is_printed_may_be_written(result: Path, format: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "cells.out"
    said = show_text(result, format, out=file)
    assert said.startswith(f"{file}: 8 rows")
    assert file.read_text(encoding="utf-8") == show_text(result, format)
    assert [path.name for path in file.parent.iterdir()] == ["cells.out"]


@pytest.mark.parametrize(
    ("format", "rows", "words"),
    [
        ("xml", "cells", "format 'xml'; accepted: table, tsv, json, md, csv, parquet"),
        ("csv", "metrics", "rows 'metrics' as csv"),
        (
            "tsv",
            "queries",
            "rows 'queries' as tsv; accepted: cells, and queries with --format csv or parquet",
        ),
        ("parquet", "cells", "name a file: --format parquet --out FILE"),
    ],
)
def test_what_cannot_be_shown_is_named(result: Path, format: str, rows: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        show_text(result, format, rows)


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stands(
    result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        show_text(result, "csv", out=tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"result\.json/x cannot be written: "):
        show_text(result, "csv", out=result / "x")
    old = tmp_path / "old.parquet"
    old.write_bytes(b"old")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"rag-core-bench\[frames\]"):
        show_text(result, "parquet", out=old)
    assert old.read_bytes() == b"old"


@pytest.mark.stores_external
@pytest.mark.parametrize("rows", ["cells", "queries"])
def test_parquet_holds_the_table_with_its_units(result: Path, rows: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra frames")
    file = tmp_path / "table.parquet"
    made = table(load_result(result), rows)
    assert show_text(result, "parquet", rows, file) == (
        f"{file}: {made.n_rows} rows of {len(made.columns)} columns\n"
    )
    read = parquet.read_table(io.BytesIO(file.read_bytes()))
    assert read.to_pydict() == made.columns
    assert read.schema.field("ndcg@10").metadata == {b"unit": b"fraction"}
    assert str(read.schema.field("provider").type) == "string"

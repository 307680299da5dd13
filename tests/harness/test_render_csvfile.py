"""cells.csv."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from harness.render.csvfile import write
from harness.results import ResultDocument


def test_one_line_per_cell_at_full_precision(document: ResultDocument, tmp_path: Path) -> None:
    document.cells[0].metrics["map@100"].mean = math.nan
    document.cells[-1].reason = 'two\nlines, "quoted"'
    (path,) = write(document, tmp_path)
    assert path == tmp_path / "cells.csv"
    with path.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 8
    assert lines[0]["map@100"] == ""
    assert float(lines[2]["ndcg@10"]) == document.cells[2].mean("ndcg@10")
    assert float(lines[2]["ndcg@10_low"]) == document.cells[2].metrics["ndcg@10"].low
    assert float(lines[3]["delta"]) > 0.3
    assert float(lines[3]["delta_low"]) < float(lines[3]["delta"]) < float(lines[3]["delta_high"])
    assert float(lines[3]["p_corrected"]) < 0.001
    assert lines[1]["delta"] == ""
    assert lines[-1]["reason"] == 'two\nlines, "quoted"'
    assert lines[-1]["peak_rss_bytes"] == ""

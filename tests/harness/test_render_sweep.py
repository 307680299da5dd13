"""`sweep.md` and `sweep.csv`."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.render.sweep import COLUMNS, render_csv, render_markdown, write_sweep
from harness.sweep_result import SweepDocument

Make = Callable[..., SweepDocument]


@pytest.fixture
def document(make_sweep: Make) -> SweepDocument:
    return make_sweep(
        {"e5@cpu?dtype=fp32": {1: 20, 8: 60}, "e5@mlx?dtype=int8": {1: 400}, "absent@cpu": {}},
        differs={("e5@mlx?dtype=int8", 1)},
        pools={"cross@cpu": {10: (0.72, (0.02, 0.01, 0.03)), 20: (0.75, (0.05, 0.02, 0.08))}},
    )


def test_the_verdict_comes_first_and_every_point_has_a_line(document: SweepDocument) -> None:
    text = render_markdown(document, ["sweep_batch.svg"])
    lines = text.splitlines()
    assert lines[0] == "# Sweep of civic"
    assert lines[2].startswith("**Batch size 8 is fastest for e5 · cpu · fp32: 60.0 passages/s")
    assert "![Passages per second of each variant against batch size](sweep_batch.svg)" in text
    assert (
        "| e5 · cpu · fp32 | same | 8 | 60.0 | 57.0–63.0 | 6.00 k | 133 | – | 500 MB | 1.00000 | 1.000 "
        "| 0.000 |" in lines
    )
    assert (
        "| e5 · mlx · int8 | DIFFERS | 1 | 400 | 380–420 | 40.0 k | 2.50 | – | 500 MB | 0.71000 | 0.500 "
        "| −0.200 |" in lines
    )
    assert "| e5 · cpu · fp32 | ok | 8 | 60.0 | 10.5 | 1.00 s | – |" in lines
    assert "| e5 · mlx · int8 | ok | – | – | 10.5 | 1.00 s | – |" in lines  # never recommended
    pool = next(line for line in lines if line.startswith("| cross | 20 "))
    assert pool.endswith("| 0.700 → 0.750 | 0.700 → 0.750 | 0.900 | +0.020 to +0.080 | 20.0 | 0.250 |")
    assert "3 rounds in which the batch sizes take turns" in text


def test_a_table_that_is_not_there_has_no_heading(make_sweep: Make) -> None:
    text = render_markdown(make_sweep({"e5@cpu": {8: 60}}))
    assert "Candidate pool" not in text
    only_pool = render_markdown(make_sweep({}, pools={"noop": {10: (0.7, (0.0, 0.0, 0.0))}}))
    assert "## Variants" not in only_pool
    assert "## Candidate pool" in only_pool


def test_an_interrupted_sweep_says_so(document: SweepDocument) -> None:
    from dataclasses import replace

    assert "The sweep is interrupted" in render_markdown(replace(document, status="interrupted"))
    assert "interrupted" not in render_markdown(document)


def test_the_csv_has_a_line_per_point_depth_and_empty_variant(document: SweepDocument) -> None:
    lines = list(csv.DictReader(io.StringIO(render_csv(document))))
    assert [(line["kind"], line["name"], line["size"]) for line in lines] == [
        ("batch", "e5 · cpu · fp32", "1"),
        ("batch", "e5 · cpu · fp32", "8"),
        ("batch", "e5 · mlx · int8", "1"),
        ("batch", "absent · cpu · fp32", ""),
        ("pool", "cross", "10"),
        ("pool", "cross", "20"),
    ]
    assert list(lines[0]) == list(COLUMNS)
    assert (lines[1]["passages_per_s"], lines[1]["verdict"], lines[1]["peak_rss_bytes"]) == (
        "60.0",
        "same",
        "500000000",
    )
    assert (lines[2]["verdict"], lines[2]["reason"]) == ("differs", "cosine 0.7100 to the reference")
    assert (lines[5]["ndcg@10_before"], lines[5]["ndcg@10"], lines[5]["p50_s"]) == ("0.7", "0.75", "0.02")


def test_plots_are_left_out_with_one_note_where_matplotlib_is_missing(
    document: SweepDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    written, notes = write_sweep(document, tmp_path)
    assert [path.name for path in written] == ["sweep.md", "sweep.csv"]
    (note,) = notes
    assert note.startswith("plots skipped: ")
    assert "matplotlib" in note
    assert "![" not in (tmp_path / "sweep.md").read_text()


def test_rendering_loads_neither_a_provider_nor_the_runner() -> None:
    code = (
        "import sys, harness.render.sweep, harness.render.sweep_plots\n"
        "print([m for m in sys.modules if m in ('providers', 'harness.runner', 'matplotlib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

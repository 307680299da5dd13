"""The whole report, with and without matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.render import FORMATS, write_report, writer
from harness.results import ResultDocument


def test_every_format_is_written(document: ResultDocument, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_report(document, tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == [
        "cells.csv",
        "latency_stages.png",
        "latency_stages.svg",
        "quality.png",
        "quality.svg",
        "quality_latency.png",
        "quality_latency.svg",
        "report.html",
        "report.md",
    ]
    assert written.notes == []
    report = (tmp_path / "new" / "folder" / "report.md").read_text()
    for name in ("quality", "quality_latency", "latency_stages"):
        assert f"]({name}.svg)" in report


def test_without_matplotlib_one_note_and_everything_else(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O39: also where plots of an earlier run still lie in the folder."""
    (tmp_path / "quality.svg").write_text("<svg/>")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    written = write_report(document, tmp_path)
    assert [path.name for path in written] == ["report.md", "cells.csv", "report.html"]
    (note,) = written.notes
    assert note.startswith("plots skipped: ")
    assert "pip install 'rag-core-bench[plots]'" in note
    report = (tmp_path / "report.md").read_text()
    assert "quality.svg" not in report
    assert "Not drawn: plots is not available: package 'matplotlib' is not installed" in report


def test_every_entry_can_be_loaded() -> None:
    assert next(iter(FORMATS)) == "plots"
    assert all(callable(writer(name)) for name in FORMATS)


def test_rendering_needs_neither_runner_nor_provider_nor_matplotlib() -> None:
    root = Path(__file__).resolve().parents[2]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import harness.render.markdown, harness.render.plots, harness.render.diff, harness.render.csvfile\n"
        "import harness.compare, harness.gates, harness.tables, harness.render.html\n"
        "bad = ('harness.runner', 'harness.measure', 'harness.datasets', 'providers', 'matplotlib', 'rich')\n"
        "print([name for name in bad if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.strip() == "[]"

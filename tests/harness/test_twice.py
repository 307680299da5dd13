"""O27, O40: the same input twice gives the same files, apart from times and dates."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.reproduce import without_times
from harness.runner import now_utc
from rag_core.errors import InvalidArgumentError

#: 2026-11-01 00:00:00 UTC.
EPOCH = "1793491200"
BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]
RUN = ["run", "--data", "mini", "--provider", "fake-e5-small", "--reranker", "noop", "--pipeline", "vector",
       "--pipeline", "bm25", "--pipeline", "hybrid", "--pipeline", "hybrid+rerank"]  # fmt: skip


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("twice")
    env = {**os.environ, "CI": "true", "SOURCE_DATE_EPOCH": EPOCH}
    for name in ("a", "b"):
        done = subprocess.run(
            [*BENCH, *RUN, "--out", str(folder / name)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "a", folder / "b"


def loaded(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_the_result_is_the_same_apart_from_times(twice: tuple[Path, Path]) -> None:
    a, b = (without_times(loaded(folder)) for folder in twice)
    assert a == b
    kept = a["cells"][0]
    assert {"key", "metrics", "counts", "settings", "fingerprint", "runtime"} <= set(kept)
    assert {"hash", "query_ids"} <= set(a["dataset"])


def test_dates_are_those_of_the_epoch(twice: tuple[Path, Path]) -> None:
    assert {loaded(folder)["created"] for folder in twice} == {"2026-11-01T00:00:00Z"}


def test_rankings_are_the_same_bytes(twice: tuple[Path, Path]) -> None:
    a, b = twice
    files = sorted(file.name for file in (a / "runs").iterdir())
    assert any(name.endswith(".run") for name in files)
    assert files == sorted(file.name for file in (b / "runs").iterdir())
    for name in files:
        assert (a / "runs" / name).read_bytes() == (b / "runs" / name).read_bytes(), name


def test_the_quality_columns_of_the_table_are_the_same(twice: tuple[Path, Path]) -> None:
    tables = []
    for folder in twice:
        with (folder / "cells.csv").open(encoding="utf-8", newline="") as stream:
            tables.append(list(csv.DictReader(stream)))
    names = [name for name in tables[0][0] if "@" in name]
    assert names
    assert [[row[name] for name in names] for row in tables[0]] == [
        [row[name] for name in names] for row in tables[1]
    ]


def test_nothing_of_a_date_stands_in_a_plot(twice: tuple[Path, Path]) -> None:
    pytest.importorskip("matplotlib")
    text = (twice[0] / "quality.svg").read_text(encoding="utf-8")
    assert "dc:date" not in text
    # the quality plot shows no time, so two runs draw the same bytes, ids included
    assert text == (twice[1] / "quality.svg").read_text(encoding="utf-8")


def test_without_times_keeps_what_is_no_time() -> None:
    values = {"p50_s": 1, "docs_per_s": 2, "created": "x", "n": [{"wall_s": 3, "mean": 4.0}], "status": "ok"}
    assert without_times(values) == {"n": [{"mean": 4.0}], "status": "ok"}


@pytest.mark.parametrize("bad", ["yesterday", "1e9", "9" * 30])
def test_an_epoch_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", bad)
    with pytest.raises(InvalidArgumentError, match="accepted: whole seconds since 1970"):
        now_utc()


def test_the_default_folder_bears_the_date_of_the_epoch(tmp_path: Path) -> None:
    env = {**os.environ, "CI": "true", "SOURCE_DATE_EPOCH": EPOCH}
    words = ["run", "--data", "mini", "--provider", "fake", "--no-baseline", "--pipeline", "bm25"]
    done = subprocess.run([*BENCH, *words], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 0
    assert (tmp_path / "reports" / "2026-11-01-mini" / "result.json").exists()

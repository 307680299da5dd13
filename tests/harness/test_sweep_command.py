"""`bench sweep` as a user types it, and what its table looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.sweep_command import sweep_table
from harness.sweep_result import SweepDocument, load_sweep

BENCH = [sys.executable, "-c", "from harness.cli import main; main()", "sweep"]
Make = Callable[..., SweepDocument]


def bench(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CI": "true", "TERM": "dumb"}
    return subprocess.run([*BENCH, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_a_sweep_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["--data", "mini", "--provider", "fake?call_s=0.01", "--batch-size", "1,6", "--texts", "12"]
    given += ["--candidate-pool", "3,6", "--reranker", "fake-overlap", "--out", str(out)]
    done = bench(*given)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("ok      fake@cpu?call_s=0.01: batch size") for line in lines) == 2
    assert sum(line.startswith("ok      fake-overlap: pool ") for line in lines) == 2
    assert max(len(line) for line in lines if str(out) not in line) <= 80
    text = " ".join(done.stdout.split())
    assert "Batch size 6 is fastest for fake call_s=0.01 · cpu · fp32" in text
    assert "times slower" in text
    assert "Holds for 12 texts of mini" in text
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} >= {
        "sweep.json", "sweep.md", "sweep.csv", "sweep_batch.svg", "sweep_batch.png", "sweep_pool.svg",
    }  # fmt: skip
    again = bench(*given)
    assert "kept    fake@cpu?call_s=0.01" in again.stdout
    assert "kept    fake-overlap" in again.stdout
    assert load_sweep(out).variants[0].resumed


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            ["--provider", "fake", "--batch-size", "0,1"],
            "--batch-size holds '0'; accepted: whole numbers from 1",
        ),
        (["--provider", "fakee"], "unknown embedding provider 'fakee'; did you mean 'fake'"),
        (["--provider", "fake", "--candidate-pool", "10"], "needs both --candidate-pool and --reranker"),
        ([], "nothing to sweep: name a provider"),
        (["--provider", "fake", "--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_readable_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = bench("--data", "mini", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "reports").exists()


def test_something_that_cannot_run_ends_with_3_and_its_reason(tmp_path: Path) -> None:
    given = ["--data", "mini", "--provider", "fake", "--target", "cpu,mlx", "--texts", "4", "--rounds", "1"]
    done = bench(*given, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "skipped fake@mlx: embedding provider 'fake' has no target 'mlx'" in done.stdout
    (folder,) = (tmp_path / "reports").iterdir()
    assert folder.name.endswith("-mini-sweep")
    # other settings go into a folder of their own
    assert bench(*given[:-2], "--rounds", "2", cwd=tmp_path).returncode == 3
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == [folder.name, f"{folder.name}-2"]


def test_the_table_stays_whole_at_80_columns(make_sweep: Make) -> None:
    document = make_sweep(
        {
            "a-provider-with-a-long-name:and-a-long-model@nvidia?dtype=fp32": {1: 20.25, 64: 123456},
            "b@cpu?dtype=int8": {8: 60},
        },
        differs={("b@cpu?dtype=int8", 8)},
        pools={"a-reranker-of-many-words-too": {10: (0.72, (0.02, 0.01, 0.03))}},
    )
    text = sweep_table(document, 80)
    assert max(map(len, text.splitlines())) <= 80
    starred = [line for line in text.splitlines() if line.startswith("*")]
    assert "123 k" in starred[0]
    assert "117 k–130 k" in starred[0]
    assert "DIFFERS" in text
    assert starred[1] == "* fastest that agrees with its reference"
    assert max(map(len, sweep_table(document, 120).splitlines())) <= 120
    words = " ".join(text.split())
    assert "nvidia" in words
    assert "+0.020" in words


def test_nothing_is_starred_where_nothing_agrees(make_sweep: Make) -> None:
    assert "*" not in sweep_table(make_sweep({"b@cpu": {8: 60}}, differs={("b@cpu", 8)}), 80)

"""The benchmark of stores at size: its vectors, its exact answers, a run of it and what it resumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RUN = [
    sys.executable,
    str(BENCHMARKS / "store_scale.py"),
    "--stores",
    "flat",
    "--width",
    "16",
    "--queries",
    "20",
]


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import scale_vectors
        import store_scale
        import store_scale_plot

        yield {"vectors": scale_vectors, "scale": store_scale, "plot": store_scale_plot}


def test_fewer_rows_are_the_first_of_more(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    mixture = modules["vectors"].Mixture(16)
    more = np.concatenate(list(mixture.rows(40_000)))
    assert np.array_equal(np.concatenate(list(mixture.rows(20_000))), more[:20_000])
    assert np.allclose(np.linalg.norm(more, axis=1), 1, atol=1e-5)
    assert not (mixture.queries(5)[:, None] == more[None, :50]).all(axis=2).any()
    modules["vectors"].write_rows(tmp_path / "rows.npy", mixture, 20_000)
    assert np.array_equal(modules["vectors"].read_rows(tmp_path / "rows.npy"), more[:20_000])


def test_bars_are_the_tenth_best(modules: dict[str, ModuleType]) -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.standard_normal((70_000, 4), np.float32), rng.standard_normal((3, 4), np.float32)
    assert modules["scale"].exact_bars(rows, queries) == pytest.approx(
        np.sort(queries @ rows.T, axis=1)[:, -10], rel=1e-5
    )


def test_the_median_lies_inside_its_interval(modules: dict[str, ModuleType]) -> None:
    low, high = modules["scale"].median_interval([float(n) for n in range(101)])
    assert 35 < low < 50 < high < 65


@pytest.mark.slow
def test_a_run_is_resumed_and_says_what_failed(
    modules: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*given: str) -> dict[str, Any]:
        command = ["--out", str(tmp_path), "--queries", "20", *given]
        monkeypatch.setattr(sys, "argv", ["store_scale.py", *command])
        modules["scale"].main()
        return dict(json.loads((tmp_path / "store_scale.json").read_text(encoding="utf-8")))

    first = run("--width", "16", "--sizes", "300", "--stores", "flat")["cells"]
    assert [(cell["rows"], cell["recall"], cell["queries"]) for cell in first] == [(300, 1.0, 20)]
    assert (tmp_path / "store_scale.png").exists()
    result = run("--width", "16", "--sizes", "300", "--stores", "flat,nonsense")
    assert result["cells"] == first, "kept, not measured again"
    assert "not measured: nonsense, 0.3k: build:" in capsys.readouterr().out
    assert max(map(len, modules["plot"].table({**result, "not_measured": []}).splitlines())) <= 80
    with pytest.raises(SystemExit, match="choose another --out"):
        run("--width", "8", "--sizes", "300", "--stores", "flat")

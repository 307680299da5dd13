"""The plots: what they say, and that nothing outside the document decides how."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.parity import DIFFERS
from harness.render.front import pareto
from harness.render.placing import place_labels
from harness.render.plots import FIGURES, write
from harness.results import ResultDocument, StageTimes
from harness.rows import make_rows

Factory = Callable[..., ResultDocument]
pytest.importorskip("matplotlib")


def words(path: Path) -> str:
    """All text of an SVG, one piece a line."""
    pieces = [e for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]
    return "\n".join("".join(e.itertext()).strip() for e in pieces)


@pytest.fixture(scope="module")
def drawn(factory: Factory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("plots")
    write(factory(), folder)
    return {path.stem: words(path) for path in folder.glob("*.svg")}


def test_plots_in_two_formats_without_that_of_rerank_depth(document: ResultDocument, tmp_path: Path) -> None:
    paths = write(document, tmp_path)
    assert [path.name for path in paths] == [
        f"{figure.stem}.{suffix}"
        for figure in FIGURES
        if figure.stem not in ("rerank_depth", "thresholds", "load")  # what these show was not measured
        for suffix in ("svg", "png")
    ]
    for path in paths:
        if path.suffix == ".png":
            head = path.read_bytes()[:24]
            assert head[:8] == b"\x89PNG\r\n\x1a\n"
            assert int.from_bytes(head[16:20], "big") == 900  # pixels wide


def test_quality_names_axes_baseline_and_finding(drawn: dict[str, str]) -> None:
    text = drawn["quality"]
    assert "nDCG@10 (0 to 1, higher is better)" in text
    assert "system" in text
    assert "baseline: fake · hybrid 0.425" in text
    assert "e5-small · hybrid scores highest (0.796), 0.370 above the baseline" in text
    assert "civic: mean over 40 judged queries with its 95 % interval" in text


def test_quality_against_latency_names_every_point(drawn: dict[str, str]) -> None:
    text = drawn["quality_latency"]
    assert "latency of a query at p95, ms (logarithmic, lower is better)" in text
    assert "nDCG@10 (higher is better)" in text
    for name in ("bm25", "fake · hybrid (baseline)", "e5-small · vector", "minilm · hybrid"):
        assert name in text.splitlines()
    assert "e5-small · hybrid gains 0.283 nDCG@10 over bm25 for 218 times its p95" in text


def test_stages_name_axes_and_the_slowest(drawn: dict[str, str]) -> None:
    text = drawn["latency_stages"]
    assert "median latency of a query, ms (lower is better)" in text
    assert "e5-small · hybrid takes longest, 45.8 ms; 99 % of it in stage “embed”" in text
    assert {"embed", "vector", "bm25", "fusion"} <= set(text.splitlines())


def test_the_same_document_gives_the_same_bytes(factory: Factory, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(factory(), tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    assert b"<dc:date>" not in (tmp_path / "a" / "quality.svg").read_bytes()


def test_other_findings(factory: Factory) -> None:
    def title(document: ResultDocument, stem: str) -> str:
        (plot,) = [figure for figure in FIGURES if figure.stem == stem]
        figure = plot.draw(document, make_rows(document))
        return " ".join(figure.get_suptitle().split())

    alone = factory()
    alone.baseline = None
    assert "no baseline was measured" in title(alone, "quality")
    alone.cells = alone.cells[:1]
    assert "bm25 is both the best and the fastest" in title(alone, "quality_latency")
    weak = factory()
    weak.cells = [c for c in weak.cells if c.key.provider in ("fake", "minilm")]
    assert "not told apart from the baseline" in title(weak, "quality")
    weak.cells = [c for c in weak.cells if c.key.provider == "fake"]
    assert "Nothing scores above the baseline, fake · hybrid (0.425)" in title(weak, "quality")


def test_a_result_of_marked_systems_alone_is_drawn_without_a_winner(
    document: ResultDocument, tmp_path: Path
) -> None:
    document.baseline = None
    document.cells = [cell for cell in document.cells if cell.key.provider == "e5-small"]
    key = document.cells[0].key
    document.parity = [
        {
            "kind": "embedder",
            "provider": key.provider,
            "target": key.target,
            "dtype": key.dtype,
            "model": "e5-small",
            "reference": None,
            "verdict": DIFFERS,
            "reason": "its vectors change with their neighbours",
        }
    ]
    assert all(row.doubt for row in make_rows(document))
    assert write(document, tmp_path)
    assert "None of these systems can be recommended" in (tmp_path / "quality.svg").read_text("utf-8")


def test_an_unknown_stage_and_a_reranker_are_drawn(document: ResultDocument, tmp_path: Path) -> None:
    cell = document.cells[3]
    cell.key = replace(cell.key, pipeline="hybrid+rerank", reranker="a-reranker-with-a-long-name-v2")
    cell.stages["rerank"] = StageTimes([0.2] * 40, [])
    cell.stages["polish"] = StageTimes([0.3] * 40, [])
    cell.metrics["ndcg@10"].high = cell.metrics["ndcg@10"].low = None
    write(document, tmp_path)
    text = words(tmp_path / "latency_stages.svg")
    assert {"rerank", "polish"} <= set(text.splitlines())
    assert "in stage “polish”" in text
    assert "hybrid+rerank" in words(tmp_path / "quality_latency.svg").splitlines()


def test_without_anything_to_draw_old_plots_go(document: ResultDocument, tmp_path: Path) -> None:
    write(document, tmp_path)
    document.cells = document.cells[-2:]
    assert write(document, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_cells_without_p95_are_no_points(document: ResultDocument, tmp_path: Path) -> None:
    for cell in document.cells:
        cell.speed["p95_s"] = None
    assert [path.stem for path in write(document, tmp_path)][::2] == ["quality", "latency_stages"]


def test_the_front_is_what_nothing_beats_in_both() -> None:
    points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (3.0, 0.9), (0.5, 0.5), (4.0, 0.95)]
    assert pareto(points) == [4, 2, 5]
    assert pareto([]) == []


def test_names_never_overlap_and_those_without_room_are_counted() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    points = [(0.5 + 0.01 * i, 0.5 + 0.005 * i) for i in range(8)]
    assert place_labels(axes, points, [f"name {i}" for i in range(8)], [(0.1, 0.5), (0.9, 0.5)]) == 0
    figure.draw_without_rendering()
    from matplotlib.text import Text

    boxes = [Text.get_window_extent(note) for note in axes.texts]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert not a.overlaps(b)
    before = len(axes.texts)
    assert place_labels(axes, [(0.5, 0.5)], ["w" * 200]) == 1
    assert len(axes.texts) == before


def test_a_display_backend_and_no_display_do_not_matter(document: ResultDocument, tmp_path: Path) -> None:
    """O39: MPLBACKEND=TkAgg without DISPLAY, and a matplotlibrc of somebody else."""
    document.write(tmp_path / "result.json")
    (tmp_path / "matplotlibrc").write_text("font.size: 40\nsvg.fonttype: path\n")
    root = Path(__file__).resolve().parents[2]
    variables = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from harness.render import write_report;"
            "from harness.results import load_result; f = Path(sys.argv[1]);"
            "print(len(write_report(load_result(f), f))); print('matplotlib.pyplot' in sys.modules)",
            str(tmp_path),
        ],
        env={**variables, "MPLBACKEND": "TkAgg", "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["9", "False"]
    here = tmp_path / "here"
    here.mkdir()
    write(document, here)
    assert (here / "quality.svg").read_bytes() == (tmp_path / "quality.svg").read_bytes()


def test_quality_and_time_against_depth(
    document: ResultDocument, reranked: Callable[..., object], tmp_path: Path
) -> None:
    reranked(document, -0.1)
    reranked(document, -0.02, mix="ranks")
    write(document, tmp_path)
    text = words(tmp_path / "rerank_depth.svg")
    assert "nDCG@10 (higher is better)" in text
    assert "median, ms (lower is better)" in text
    assert {"0", "10", "20", "50", "depth: documents given to the reranker"} <= set(text.splitlines())
    assert "e5-small · hybrid+rerank+rrf · fine: highest without reranking (0.796)" in text
    assert "e5-small · hybrid+rerank · fine" in text.splitlines()
    head = (tmp_path / "rerank_depth.png").read_bytes()[:24]
    assert int.from_bytes(head[16:20], "big") == 900
    points = words(tmp_path / "quality_latency.svg").splitlines()
    assert {"hybrid+rerank", "hybrid+rerank+rrf"} <= set(points)


def test_a_finding_with_a_best_depth_and_a_wide_range_of_times(
    document: ResultDocument, reranked: Callable[..., Any], tmp_path: Path
) -> None:
    made = reranked(document, 0.1)
    made.rerank["depths"][2]["per_query"] = made.rerank["before"]["ndcg@10"]
    made.rerank["depths"][2]["means"] = {"ndcg@10": 0.796}
    made.rerank["depths"][0]["median_s"] = 0.0001
    made.rerank["depths"][1]["median_s"] = None
    write(document, tmp_path)
    text = " ".join(words(tmp_path / "rerank_depth.svg").splitlines())
    assert "highest at depth 10 (0.8" in text
    assert "0.796 without, 0.796 at depth 50" in text
    document.cells.remove(made)
    write(document, tmp_path)
    assert not (tmp_path / "rerank_depth.svg").exists()

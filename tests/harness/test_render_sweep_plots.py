"""The plots of a sweep: files that are what they say, and the words in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.render.sweep_plots import FIGURES, write
from harness.sweep_result import SweepDocument

Make = Callable[..., SweepDocument]
pytest.importorskip("matplotlib")


def text_of(path: Path) -> str:
    pieces = [e for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]
    return "\n".join("".join(e.itertext()).strip() for e in pieces)


@pytest.fixture(scope="module")
def folder(make_sweep: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("plots")
    document = make_sweep(
        {
            "e5@cpu?dtype=fp32": {1: 20, 8: 60, 32: 100},
            "e5@cpu?dtype=int8": {1: 40, 8: 120, 32: 200},
            "e5@mlx?dtype=int8": {1: 400, 8: 500},
        },
        differs={("e5@mlx?dtype=int8", 1), ("e5@mlx?dtype=int8", 8)},
        pools={
            "cross": {10: (0.72, (0.02, 0.01, 0.03)), 20: (0.75, (0.05, 0.02, 0.08))},
            "noop": {10: (0.7, (0.0, 0.0, 0.0)), 20: (0.7, (0.0, 0.0, 0.0))},
        },
    )
    write(document, made)
    return made


def test_three_plots_in_two_formats(folder: Path) -> None:
    names = {f"{figure.stem}.{suffix}" for figure in FIGURES for suffix in ("svg", "png")}
    assert {path.name for path in folder.iterdir()} == names
    for path in folder.glob("*.png"):
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(head[16:20], "big") == 900


def test_speed_against_batch_size(folder: Path) -> None:
    text = text_of(folder / "sweep_batch.svg")
    for words in (
        "e5 · cpu · int8 is fastest at batch size 32: 200",
        "civic: 128 texts of mixed length, median of 3 rounds; bars: slowest to fastest round",
        "batch size, texts a call (logarithmic)",
        "passages per second (higher is better)",
        "e5 · mlx · int8",
        "hollow: vectors differ from the reference, not recommended",
    ):
        assert words in text
    assert {"1", "8", "32"} <= set(text.splitlines())


def test_agreement_against_speed(folder: Path) -> None:
    text = text_of(folder / "sweep_agreement.svg")
    assert "e5 · cpu · int8 is the fastest that agrees with its reference" in text
    assert "1 − least cosine to the reference (logarithmic, left is closer; 10⁻⁷ stands for less)" in text
    assert "e5 · mlx · int8, batch 8" in text
    assert "hollow" in text


def test_quality_against_the_candidate_pool(folder: Path) -> None:
    text = text_of(folder / "sweep_pool.svg")
    for words in (
        "cross gains +0.050 nDCG@10 to 0.750 at 20 candidates (20.0 ms)",
        "one frozen pool of fake fused with bm25, 180 queries",
        "perfect order of the pool",
        "fused order, no reranking",
        "ms a query (lower is better)",
    ):
        assert words in text


def test_nothing_to_draw_removes_what_was_there(make_sweep: Make, folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert write(make_sweep({"e5@cpu": {8: 60}}), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_findings_do_not_claim_what_was_not_found(make_sweep: Make, tmp_path: Path) -> None:
    flat = {"noop": {10: (0.7, (0.0, -0.01, 0.01)), 20: (0.7, (0.0, -0.01, 0.01))}}
    document = make_sweep({"a@cpu": {1: 99, 8: 100}, "b@cpu": {1: 9}}, pools=flat)
    write(document, tmp_path)
    assert "No batch size of a · cpu · fp32 can be told from another" in text_of(tmp_path / "sweep_batch.svg")
    assert "No reranker can be told from the fused order" in text_of(tmp_path / "sweep_pool.svg")
    wrong = make_sweep(
        {"a@cpu": {1: 99, 8: 100}, "b@cpu": {1: 9}}, differs={("a@cpu", 1), ("a@cpu", 8), ("b@cpu", 1)}
    )
    write(wrong, tmp_path)
    assert "No setting agrees with its reference" in text_of(tmp_path / "sweep_batch.svg")
    assert "No variant agrees with its reference" in text_of(tmp_path / "sweep_agreement.svg")


def test_the_same_document_gives_the_same_bytes(make_sweep: Make, tmp_path: Path) -> None:
    document = make_sweep({"e5@cpu": {1: 20, 8: 60}})
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(document, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()

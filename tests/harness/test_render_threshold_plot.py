"""The plot of score thresholds: a panel a model, what it says, and none without scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.render.plots import FIGURES, require, save, styled
from harness.render.threshold_plot import MOST_PANELS, draw_thresholds
from harness.results import CellResult, ResultDocument
from harness.rows import make_rows

pytest.importorskip("matplotlib")


def scores(distance: float, of: str, n: int = 40) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "of": of,
        "relevant": random.normal(distance, 1, n).tolist(),
        "other": [0.0] * n,
        "unanswerable": random.normal(0, 1, 40).tolist(),
        "n_unjudged": 0,
    }


def drawn(document: ResultDocument, folder: Path) -> str | None:
    require()
    with styled():
        figure = draw_thresholds(document, make_rows(document))
        if figure is None:
            return None
        svg, png = save(figure, folder, "thresholds", "alt")
    assert png.read_bytes()[:4] == b"\x89PNG"
    pieces = [e for e in ElementTree.parse(svg).iter() if e.tag.endswith("}text")]
    return "\n".join("".join(e.itertext()).strip() for e in pieces)


def test_the_finding_axes_and_panels(
    document: ResultDocument, reranked: Callable[..., CellResult], tmp_path: Path
) -> None:
    document.cells[2].thresholds = scores(0.1, "vector")
    reranked(document, 0.0).thresholds = scores(9, "rerank")
    text = drawn(document, tmp_path)
    assert text is not None
    words = " ".join(text.split())
    assert "e5-small · hybrid+rerank · fine: a threshold of" in words
    assert "keeps 100 % of the answers and lets 0 % of the false ones through" in words
    for said in ("answers kept", "false answers let through", "share of queries", "no clean separation"):
        assert said in text
    assert "score threshold t, in the units of each model" in text
    assert "n = 40 and 40" in text


def test_nothing_separates(document: ResultDocument, tmp_path: Path) -> None:
    document.cells[2].thresholds = scores(0.1, "vector")
    assert "No score threshold separates answers from the rest cleanly" in (drawn(document, tmp_path) or "")


def test_more_models_than_panels_are_counted(
    document: ResultDocument, reranked: Callable[..., CellResult], tmp_path: Path
) -> None:
    for place in range(MOST_PANELS + 2):
        reranked(document, 0.0, f"r{place}").thresholds = scores(9, "rerank")
    assert "2 further systems stand in the table" in (drawn(document, tmp_path) or "")


def test_none_without_scores_or_with_too_few_queries(document: ResultDocument, tmp_path: Path) -> None:
    assert drawn(document, tmp_path) is None
    document.cells[2].thresholds = scores(5, "vector", n=5)
    assert drawn(document, tmp_path) is None
    assert "thresholds" in [figure.stem for figure in FIGURES]

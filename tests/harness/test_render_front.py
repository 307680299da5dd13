"""Quality against latency and money, with the front and the choice."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from harness.recommend import recommend
from harness.render.front import LATENCY, draw_front, money, write_fronts
from harness.render.plots import styled
from harness.results import ResultDocument
from harness.rows import make_rows

E5_HYBRID = "e5-small/cpu/q4/flat/hybrid/-"


def test_the_chosen_one_has_a_ring(document: ResultDocument) -> None:
    rows = make_rows(document)
    with styled():
        figure = draw_front(document, rows, LATENCY, E5_HYBRID)
        plain = draw_front(document, rows, LATENCY)
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert "recommended" in names
    assert "recommended" not in [text.get_text() for text in plain.axes[0].get_legend().get_texts()]
    (ring,) = [found for found in figure.axes[0].collections if found.get_label() == "recommended"]
    row = next(row for row in rows if row.cell.key.cell_id == E5_HYBRID)
    p95 = row.speed("p95_s")
    assert p95 is not None
    assert ring.get_offsets().tolist() == [[p95 * 1000, row.cell.mean("ndcg@10")]]


def test_money_is_drawn_where_something_costs(document: ResultDocument, tmp_path: Path) -> None:
    assert [p.name for p in write_fronts(recommend(document), tmp_path)] == [
        "pareto_p95.svg",
        "pareto_p95.png",
    ]
    found = write_fronts(recommend(document, usd_per_hour=1.0), tmp_path)
    assert [p.name for p in found][2:] == ["pareto_cost.svg", "pareto_cost.png"]
    svg = (tmp_path / "pareto_cost.svg").read_text()
    assert "US dollars for 1,000 queries" in svg
    assert "recommended" in svg
    write_fronts(recommend(document), tmp_path)  # and goes with what it showed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pareto_p95.png", "pareto_p95.svg"]


def test_what_costs_nothing_stands_beside_what_does(document: ResultDocument) -> None:
    from dataclasses import asdict

    from harness.cost import Usage

    best = document.cell(E5_HYBRID)
    assert best is not None
    best.cost = {"embed": asdict(Usage("s", "m", "embed", True, True, 0.1, query_units=20, queries=1))}
    with styled():
        figure = draw_front(document, make_rows(document), money(None), E5_HYBRID)
    assert figure.axes[0].get_xscale() == "symlog"
    assert "0.00200 USD more per 1,000 queries" in figure.get_suptitle().replace("\n", " ")


def test_nothing_to_draw(document: ResultDocument) -> None:
    assert draw_front(document, [], LATENCY) is None
    assert draw_front(document, make_rows(document), money(None)) is None

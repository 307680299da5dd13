"""A trend as text, markdown, JSON and as a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from harness.history import History
from harness.render.trend import sentences, trend_json, trend_lines, trend_markdown
from harness.results import ResultDocument
from harness.trend import trend
from harness.trend_tracks import Trend

Factory = Callable[..., ResultDocument]


@pytest.fixture(scope="module")
def changed(factory: Factory, nights: Any) -> Trend:
    def move(night: int, document: ResultDocument) -> None:
        if night >= 6:
            nights.worsen(document, 0.031)
            nights.slow(document, 1.25)
        if night >= 7:
            document.environment |= {"cpu_model": "Other CPU", "machine_fingerprint": "0" * 12}

    return trend(nights.history(factory, 8, move, drift=0.01))


def test_sentences_say_what_moved_when_and_where_it_was_first_seen(changed: Trend) -> None:
    said = sentences(changed)
    assert said[0] == (
        "nDCG@10 of e5-small · hybrid fell by 0.0310 on 2026-11-07, first seen in night-06: regressed"
    )
    assert said[1].startswith("latency p95 of e5-small · hybrid rose by 2")
    assert said[1].endswith(" % on 2026-11-07, first seen in night-06: regressed")
    assert "broken · vector, broken · hybrid: failed in the newest run" in said
    assert "2026-11-08 (night-07): times are not comparable with the run before: cpu_model" in said


def test_the_table_is_whole_at_eighty_columns(changed: Trend) -> None:
    history = History(changed.nights, (("x/result.json", "not a JSON document: line 1"),))
    lines = trend_lines(history, [changed])
    assert lines[0] == "civic, 8 runs, 2026-11-01 to 2026-11-08: regressed"
    assert max(cell_len(line) for line in lines) <= 80
    row = next(line for line in lines if line.startswith("e5-small · hybrid") and "nDCG" in line)
    assert row.split()[-2:] == ["−0.031", "regressed"]
    assert lines[-1] == "not read: x/result.json: not a JSON document: line 1"


def test_a_long_name_wraps_inside_its_column(factory: Factory, nights: Any) -> None:
    from dataclasses import replace

    def move(night: int, document: ResultDocument) -> None:
        document.cells[0].key = replace(document.cells[0].key, provider="a-rather " * 9)

    made = trend(nights.history(factory, 2, move))
    assert max(cell_len(line) for line in trend_lines(History(made.nights), [made])) <= 80


def test_markdown_holds_verdict_sentences_table_and_plot(changed: Trend) -> None:
    text = trend_markdown(History(changed.nights), [changed], {"civic": "trend.svg"})
    assert text.startswith("# civic, 8 runs, 2026-11-01 to 2026-11-08: regressed\n\n- nDCG@10 of e5-small")
    assert "| system | figure | newest | change | first | verdict |" in text
    assert "(trend.svg)" in text
    assert "](" not in trend_markdown(History(changed.nights), [changed])


def test_json_is_strict_and_has_every_point(changed: Trend) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    values = json.loads(trend_json(History(changed.nights), [changed]), parse_constant=refuse)
    (made,) = values["trends"]
    assert made["verdict"] == "regressed"
    assert [run["where"] for run in made["runs"]][:2] == ["night-00", "night-01"]
    assert all(len(system["points"]) == 8 for system in made["systems"])
    assert sum(len(system["change_points"]) for system in made["systems"]) == 2


def test_the_plot_names_axes_units_and_finding_and_is_the_same_twice(changed: Trend, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from harness.render.trend_plot import write

    files = write(changed, tmp_path / "a", "trend") + write(changed, tmp_path / "b", "trend")
    assert [file.name for file in files] == ["trend.svg", "trend.png"] * 2
    assert files[0].read_bytes() == files[2].read_bytes()
    assert files[1].read_bytes() == files[3].read_bytes()
    pieces = [e for e in ElementTree.parse(files[0]).iter() if e.tag.endswith("}text")]
    text = " ".join("".join(e.itertext()).strip() for e in pieces)
    for words in ("latency p95, ms", "nDCG@10", "date of the run", "e5-small · hybrid", "fell by 0.0310"):
        assert words in text


def test_lines_break_where_runs_do_not_compare(changed: Trend) -> None:
    pytest.importorskip("matplotlib")
    from harness.render.trend_plot import draw

    made = draw(changed)
    quality, speed = made.axes
    assert {len(line.get_xdata()) for line in quality.lines} == {8}
    assert {len(line.get_xdata()) for line in speed.lines} == {7, 1}


def test_nothing_measured_draws_nothing(factory: Factory, nights: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from harness.render.trend_plot import write

    def move(night: int, document: ResultDocument) -> None:
        document.cells = document.cells[-2:]

    assert write(trend(nights.history(factory, 2, move)), tmp_path, "trend") == []


def test_what_all_systems_share_of_the_newest_night_is_said(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        for cell in document.cells:
            if night == 7 and cell.total_s:
                nights.slow(document, 1.5, cell.key.cell_id)

    (said,) = (text for text in sentences(trend(nights.history(factory, 8, move))) if "together" in text)
    assert said.startswith("latency p95 of all systems together moved by +")

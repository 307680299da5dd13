"""`bench trend` and `bench diff` between parsing and printing: files, gates, exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.diff_command import diff_text
from harness.results import ResultDocument
from harness.trend_command import trend_text
from rag_core.errors import InvalidArgumentError, UnknownNameError

Factory = Callable[..., ResultDocument]


@pytest.fixture
def reports(factory: Factory, nights: Any, tmp_path: Path) -> Path:
    """Three nights; the last one's quality of one system is lower by 0.02."""

    def move(night: int, document: ResultDocument) -> None:
        if night == 2:
            nights.worsen(document, 0.02)

    for night in nights.history(factory, 3, move):
        night.document.write(tmp_path / "reports" / night.where / "result.json")
    return tmp_path / "reports"


def test_the_table_is_printed_and_the_files_are_written(reports: Path) -> None:
    (reports / "torn").mkdir()
    (reports / "torn" / "result.json").write_text("{")
    text, status = trend_text(reports)
    assert status == 0
    assert text.startswith("civic, 3 runs, 2026-11-01 to 2026-11-03: regressed\n")
    assert f"not read: {reports}/torn/result.json" in text.replace("\n  ", "")
    assert "torn/result.json" in (reports / "trend.md").read_text(encoding="utf-8")
    assert (reports / "trend.svg").exists()


def test_gates_hold_the_newest_run_against_the_one_before(reports: Path, tmp_path: Path) -> None:
    text, status = trend_text(reports, fail_on=["ndcg@10:-0.01"], out=tmp_path / "o")
    assert status == 1
    assert "gate ndcg@10:-0.01 FAILED: regressed" in text
    assert trend_text(reports, fail_on=["ndcg@10:-0.03"], out=tmp_path / "o")[1] == 0
    assert (tmp_path / "o" / "trend.md").exists()
    assert not (reports / "trend.md").exists()


def test_against_a_baseline_and_only_the_last_runs(reports: Path, factory: Factory, tmp_path: Path) -> None:
    base = tmp_path / "baseline.json"
    factory().write(base)
    text, status = trend_text(reports, against=base, last=1, fail_on=["ndcg@10:-0.01"])
    assert status == 1
    assert text.startswith("civic, 1 run: regressed")
    document = factory()
    document.name = "another"
    document.write(base)
    with pytest.raises(InvalidArgumentError, match=r"is of 'another'; .* holds runs on civic"):
        trend_text(reports, against=base)


def test_a_gate_on_a_single_run_is_not_passed_over(reports: Path) -> None:
    text, status = trend_text(reports, last=1, fail_on=["ndcg@10:-0.01"])
    assert (status, "no gate was checked" in text) == (2, True)


def test_markdown_and_json_for_other_programs(reports: Path) -> None:
    text, status = trend_text(reports, format="md", fail_on=["ndcg@10:-0.01"])
    assert status == 1
    assert text.startswith("# civic, 3 runs")
    assert "- gate ndcg@10:-0.01 FAILED" in text
    text, status = trend_text(reports, format="json", figures=["map@100", "latency_p50"])
    figures = {system["figure"] for system in json.loads(text)["trends"][0]["systems"]}
    assert figures == {"map@100", "p50_s"}


def test_two_data_sets_have_a_plot_each(reports: Path, factory: Factory) -> None:
    document = factory(20)
    document.name = "mini set"
    document.write(reports / "mini" / "result.json")
    text, _ = trend_text(reports, fail_on=["ndcg@10:-0.01"])
    assert "civic:\n" in text
    assert sorted(file.name for file in reports.glob("*.svg")) == ["trend-civic.svg", "trend-mini_set.svg"]


def test_without_matplotlib_one_note_and_everything_else(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O39."""
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text, _ = trend_text(reports)
    assert text.count("plots skipped: ") == 1
    assert "](" not in (reports / "trend.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"format": "xml"}, InvalidArgumentError, "accepted: table, md, json"),
        ({"last": -1}, InvalidArgumentError, "accepted: 0 for all runs"),
        ({"figures": ["ndgc@10"]}, UnknownNameError, "--metric 'ndgc@10': no metric and no figure"),
        ({"fail_on": ["ndcg@10"]}, InvalidArgumentError, "has no limit"),
    ],
)
def test_bad_options_say_what_is_accepted(
    reports: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        trend_text(reports, **options)


def test_a_latency_gate_across_machines_is_not_comparable_unless_asked_for(
    factory: Factory, tmp_path: Path
) -> None:
    """O40."""
    old, new = factory(), factory()
    new.environment |= {"cpu_model": "Other CPU", "machine_fingerprint": "0" * 12}
    for name, document in (("old", old), ("new", new)):
        document.write(tmp_path / name / "result.json")
    asked = (tmp_path / "old", tmp_path / "new", ["latency_p95:+10%"])
    text, status = diff_text(*asked, False, "text")
    assert status == 2
    assert "not comparable" in text
    assert "cpu_model" in text
    text, status = diff_text(*asked, True, "text")
    assert status == 0
    assert "note: times and memory are compared although cpu_model differs: Some CPU / Other CPU" in (
        text.replace("\n  ", " ")
    )


def test_diff_as_markdown_holds_the_gates(reports: Path) -> None:
    text, status = diff_text(reports / "night-00", reports / "night-02", ["ndcg@10:-0.01"], False, "md")
    assert status == 1
    assert text.startswith("# civic of ")
    assert "\n- gate ndcg@10:-0.01 FAILED: regressed" in text
    with pytest.raises(InvalidArgumentError, match="accepted: text, md"):
        diff_text(reports / "night-00", reports / "night-02", [], False, "html")

"""What is shown while a command measures."""

from __future__ import annotations

import io
import sys

import pytest

from harness.progress import LiveReporter, LogReporter, is_interactive, reporter, terminal_width, wrapped
from harness.results import CellKey, CellResult
from harness.runner import Event

FAILED = CellResult(CellKey("d", "fake", "cpu", "-", "flat", "vector", "-"), "failed", "no room")
DONE = Event("cell", "fake", cell=FAILED)


def test_a_log_has_a_line_per_finished_piece_and_none_for_progress() -> None:
    lines: list[str] = []

    def say(text: str, flush: bool) -> None:
        lines.append(text)

    with LogReporter(say) as shown:
        shown(Event("progress", "fake", "documents", 1, 2))
        shown(DONE)
    assert lines == ["failed  fake cpu vector: no room"]


def test_a_log_of_other_events_says_what_it_is_told() -> None:
    lines: list[str] = []
    with LogReporter(lambda text, flush: lines.append(text), lambda event: str(event or "")) as shown:
        shown("one")
        shown(None)
    assert lines == ["one"]


def test_a_terminal_shows_finished_pieces_above_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    with LiveReporter() as shown:
        shown(Event("start", "fake"))
        shown(Event("progress", "fake", "documents", 1, 2))
        shown(DONE)
    assert "failed  fake cpu vector: no room" in screen.getvalue()


@pytest.mark.parametrize(
    "terminal, variables, expected",
    [(True, {}, True), (False, {}, False), (True, {"TERM": "dumb"}, False), (True, {"CI": "1"}, False)],
)
def test_only_a_terminal_gets_bars(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, variables: dict[str, str], expected: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    for name in ("TERM", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_interactive() is expected
    assert isinstance(reporter(print), LiveReporter if expected else LogReporter)


def test_a_log_is_80_columns_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert terminal_width() == 80
    assert max(map(len, wrapped("word " * 40).splitlines())) <= 80

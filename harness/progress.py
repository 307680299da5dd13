"""What a person sees while a command measures: bars on a terminal, one line per finished piece in a log."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from harness.naming import provider_name
from harness.results import CellResult
from harness.runner import Event

__all__ = [
    "LiveReporter",
    "LogReporter",
    "cell_line",
    "is_interactive",
    "reporter",
    "terminal_width",
    "wrapped",
]

Print = Callable[..., None]
NARROW = 80


def is_interactive() -> bool:
    """Whether progress may redraw lines: a terminal, and neither a CI job nor a dumb one."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def terminal_width() -> int:
    """Columns to print in: the terminal's, 80 in a log."""
    return shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else NARROW


def wrapped(text: str) -> str:
    """``text`` broken at the terminal's width."""
    return textwrap.fill(text, terminal_width(), break_long_words=False, break_on_hyphens=False)


def cell_line(cell: CellResult) -> str:
    """One line about a finished cell."""
    key = cell.key
    names = (provider_name(key.provider), key.target, key.pipeline, provider_name(key.reranker), key.fusion)
    name = " ".join(part for part in names if part not in ("-", "rrf"))
    if cell.status != "ok":
        return f"{cell.status:<7} {name}: {cell.reason}"
    first = next(iter(cell.metrics.items()), None)
    shown = f" {first[0]} {first[1].mean:.3f}" if first and first[1].mean is not None else ""
    p50 = cell.speed.get("p50_s")
    took = f" p50 {p50 * 1000:.3g} ms" if p50 is not None else ""
    return f"{'kept' if cell.resumed else 'ok':<7} {name}:{shown}{took}"


def event_line(event: Event) -> str:
    """The line of a cell that the event finished, or of a note; empty for other events."""
    if event.kind == "note":
        return event.stage
    return cell_line(event.cell) if event.cell is not None else ""


class LogReporter:
    """One line per finished piece, for a log; ``line_of`` gives the line of an event, or ""."""

    def __init__(self, say: Print, line_of: Callable[[Any], str] = event_line) -> None:
        self._say, self._line_of = say, line_of

    def __enter__(self) -> LogReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        return

    def __call__(self, event: Any) -> None:
        """Print the line of what ``event`` finished."""
        line = self._line_of(event)
        if line:
            self._say(line, flush=True)


class LiveReporter:
    """A progress bar per stage, and the finished pieces above it, for a terminal."""

    def __init__(self, line_of: Callable[[Any], str] = event_line) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, transient=True)
        self._line_of = line_of
        self._task: Any = None

    def __enter__(self) -> LiveReporter:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def __call__(self, event: Any) -> None:
        """Show ``event``: anything with ``label``, ``stage``, ``done`` and ``total``."""
        line = self._line_of(event)
        if line:
            self._progress.console.print(line, markup=False, highlight=False)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        label = f"{event.label} {event.stage or 'starting'}"
        self._task = self._progress.add_task(label, completed=event.done, total=event.total or None)


def reporter(say: Print, line_of: Callable[[Any], str] = event_line) -> LogReporter | LiveReporter:
    """The reporter for where standard output goes."""
    return LiveReporter(line_of) if is_interactive() else LogReporter(say, line_of)

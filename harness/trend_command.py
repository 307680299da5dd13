"""What `bench trend` does between parsing and printing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.gates import Gate, evaluate, exit_code, figure_name, gate_lines
from harness.history import History, read_history
from harness.render import trend_plot
from harness.render.blocks import escape
from harness.render.trend import trend_json, trend_lines, trend_markdown
from harness.results import load_result, write_atomic
from harness.rows import clean
from harness.trend import default_figures, trend
from harness.trend_tracks import Trend
from rag_core.errors import InvalidArgumentError, MissingExtraError

__all__ = ["FILE", "trend_text"]

FILE = "trend.md"
FORMATS: dict[str, Callable[[History, Sequence[Trend]], str]] = {
    "table": lambda history, trends: "\n".join(trend_lines(history, trends)) + "\n",
    "md": trend_markdown,
    "json": trend_json,
}


def trend_text(
    folder: Path,
    *,
    figures: Sequence[str] = (),
    against: Path | None = None,
    last: int = 0,
    fail_on: Sequence[str] = (),
    format: str = "table",
    out: Path | None = None,
    allow_other_machine: bool = False,
) -> tuple[str, int]:
    """The trends of all data sets below ``folder`` as text, and the exit status. Writes the files.

    Args:
        folder: with results in folders below it.
        figures: metrics and figures of speed.
        against: the result that the newest run is held against; it must be of one of the data sets.
        last: only so many of the newest runs on each data set; 0 for all.
        fail_on: gates on the newest run, against ``against`` or else the run before.
        format: ``table``, ``md`` or ``json``.
        out: folder for ``trend.md`` and the plots; ``folder`` where it is None.
        allow_other_machine: compare times although the machines differ.

    Raises:
        InvalidArgumentError: another format, or no run on the data set of ``against``.
        UnknownNameError: a figure that does not exist.
        ResultError: nothing to read.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"format {format!r}; accepted: {', '.join(FORMATS)}")
    if last < 0:
        raise InvalidArgumentError(f"--last is {last}; accepted: 0 for all runs, or a number above it")
    names = [figure_name(name, f"--metric {name!r}") for name in figures]
    gates = [Gate.parse(text) for text in fail_on]
    reference = clean(load_result(against)) if against else None
    history = read_history(folder)
    if reference and reference.name not in history.names:
        known = ", ".join(history.names)
        raise InvalidArgumentError(f"{against} is of {reference.name!r}; {folder} holds runs on {known}")
    trends = []
    for name in history.names:
        nights = history.of(name)[-last:]
        chosen = names or default_figures(nights[-1].document)
        trends.append(
            trend(
                nights,
                list(dict.fromkeys([*chosen, *(gate.name for gate in gates)])),
                against=reference if reference and reference.name == name else None,
                allow_other_machine=allow_other_machine,
            )
        )
    lines, status = _gated(trends, gates)
    notes = _write(history, trends, out or folder)
    text = FORMATS[format](history, trends)
    if format == "md" and lines:
        text += "\n" + "".join(f"- {escape(line.strip())}\n" for line in lines)
    elif format == "table":
        text += "".join(f"{line}\n" for line in [*lines, *notes])
    return text, status


def _gated(trends: Sequence[Trend], gates: Sequence[Gate]) -> tuple[list[str], int]:
    """The outcome of the gates on every data set, and the exit status that follows."""
    lines: list[str] = []
    found: set[int] = set()
    for made in trends if gates else ():
        if len(trends) > 1:
            lines.append(f"{made.name}:")
        if made.latest is None:
            lines.append("no gate was checked: a single run, and no --against")
            found.add(2)
            continue
        outcomes = evaluate(made.latest, gates)
        lines += gate_lines(outcomes)
        found.add(exit_code(made.latest, outcomes))
    return lines, next((status for status in (1, 2) if status in found), 0)


def _write(history: History, trends: Sequence[Trend], folder: Path) -> list[str]:
    """Write ``trend.md`` and a plot per data set; returns what to say about them."""
    plots: dict[str, str] = {}
    notes: list[str] = []
    for made in trends:
        stem = "trend" if len(trends) == 1 else f"trend-{slug(made.name)}"
        try:
            if trend_plot.write(made, folder, stem):
                plots[made.name] = f"{stem}.svg"
        except MissingExtraError as error:
            notes = [f"plots skipped: {error}"]
    write_atomic(folder / FILE, trend_markdown(history, trends, plots))
    return [*notes, f"written: {folder / FILE}"]


def slug(name: str) -> str:
    """``name`` as a part of a file name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)

"""A trend as lines for the terminal, as markdown and as JSON: changes in sentences, then every system."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.compare import NOT_COMPARABLE, Change
from harness.history import History
from harness.render.blocks import escape
from harness.render.diff import title
from harness.render.format import MISSING, figure, number, percent, signed
from harness.results import strict
from harness.tables import pipe_table
from harness.trend_tracks import ABSENT, ChangePoint, Track, Trend

__all__ = ["sentences", "trend_json", "trend_lines", "trend_markdown"]

WIDTH = 80
COLUMNS = ("system", "figure", "newest", "change", "first", "verdict")
#: A move of all systems that is told, and what it may mean.
WORTH_SAYING = 0.1
CAUSE = "the machine, or what all share; a change if it stays for three runs"
#: Widths of the columns of figures and of the verdict in the terminal.
NUMBERS, VERDICT = (8, 8, 8), 14
CHANGE_NOTE = (
    "change: against the run before, of speed against up to 14 runs before; first: against {reference}. "
    "A change counts below a corrected p of 0.01; of speed, only beyond the drift from run to run and of "
    "what all systems share."
)


def sentences(trend: Trend) -> list[str]:
    """Where which figure changed, the newest first; then what was lost, and where runs do not compare."""
    points = [(track, point) for track in trend.tracks for point in track.change_points]
    points.sort(key=lambda item: -item[1].night)
    return [_changed(trend, track, point) for track, point in points] + list(_other(trend))


def _changed(trend: Trend, track: Track, point: ChangePoint) -> str:
    night = trend.nights[point.night]
    change = point.change
    size = (
        percent(abs(change.relative or 0.0)).lstrip("+")
        if track.is_speed
        else number(abs(change.delta or 0.0))
    )
    word = "rose" if (change.delta or 0.0) > 0 else "fell"
    how = f" in small steps since {trend.nights[point.since].date}, told" if point.is_creep else ""
    return (
        f"{title(track.figure)} of {track.label} {word} by {size}{how} on {night.date}, first seen in "
        f"{night.where}: {change.verdict}"
    )


def _other(trend: Trend) -> Iterator[str]:
    lost: dict[str, list[str]] = {}
    for track in trend.tracks:
        status = track.newest.status
        if status != "ok":
            text = "is not in the newest run" if status == ABSENT else f"{status} in the newest run"
            lost.setdefault(text, []).append(track.label)
    for text, names in lost.items():
        yield f"{', '.join(dict.fromkeys(names))}: {text}"
    if len(trend.nights) == 1 and trend.latest is None:
        yield "a single run: nothing to compare it with; name a result with --against"
    yield from _together(trend)
    yield from _breaks(trend)
    for track in trend.tracks:
        if track.first_obstacle:
            what = f"{title(track.figure)} of {track.label}"
            yield f"{what}: {NOT_COMPARABLE} with {trend.reference}: {track.first_obstacle}"


def _together(trend: Trend) -> Iterator[str]:
    """By how much all systems together were slower in the newest run, where that is worth a sentence."""
    for name in dict.fromkeys(track.figure for track in trend.tracks):
        shared = [t.newest.shared for t in trend.tracks if t.figure == name and t.newest.shared]
        moved = math.expm1(shared[0]) if shared else 0.0
        if abs(moved) >= WORTH_SAYING:
            what = f"{title(name)} of all systems together moved by {percent(moved)}"
            yield f"{what} in the newest run: {CAUSE}"


def _breaks(trend: Trend) -> Iterator[str]:
    """Runs that do not compare with the one before, each difference once, with whom it concerns."""
    for place, night in enumerate(trend.nights):
        found: dict[tuple[str, bool], list[str]] = {}
        for track in trend.tracks:
            obstacle = track.points[place].obstacle
            if obstacle:
                found.setdefault((obstacle, track.is_speed), []).append(track.label)
        for (obstacle, is_speed), names in found.items():
            if is_speed and (obstacle, False) in found:
                continue
            measured = [
                t for t in trend.tracks if t.is_speed == is_speed and t.points[place].value is not None
            ]
            everyone = len(names) == len(measured)
            whom = "" if everyone else f" ({', '.join(names)})"
            what = "times are " if is_speed else ""
            said = f"{what}{NOT_COMPARABLE} with the run before: {obstacle}{whom}"
            yield f"{night.date} ({night.where}): {said}"


def trend_lines(history: History, trends: Sequence[Trend]) -> list[str]:
    """All trends for the terminal, 80 columns at most."""
    lines: list[str] = []
    for trend in trends:
        lines += textwrap.wrap(f"{_heading(trend)}: {trend.verdict}", WIDTH, subsequent_indent="  ")
        for text in sentences(trend):
            lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        lines += _table(trend)
        lines += textwrap.wrap(CHANGE_NOTE.format(reference=trend.reference), WIDTH)
    for text in _unreadable(history):
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _heading(trend: Trend) -> str:
    n = len(trend.nights)
    runs = f"{n} runs, {trend.nights[0].date} to {trend.nights[-1].date}" if n > 1 else "1 run"
    return f"{trend.name}, {runs}"


def _unreadable(history: History) -> list[str]:
    return [f"not read: {file}: {reason}" for file, reason in history.unreadable]


def _row(track: Track) -> list[str]:
    newest = figure(track.figure, track.newest.value)
    return [
        track.label,
        title(track.figure),
        newest,
        _moved(track, track.before),
        _moved(track, track.first),
        track.verdict,
    ]


def _moved(track: Track, change: Change | None) -> str:
    if change is None:
        return MISSING
    return percent(change.relative) if track.is_speed else signed(change.delta)


def _table(trend: Trend) -> list[str]:
    name = max([len(COLUMNS[1]), *(len(title(track.figure)) for track in trend.tracks)])
    first = WIDTH - name - sum(NUMBERS) - VERDICT - len(NUMBERS) - 2
    lines = [_line(COLUMNS, first, name)]
    shown = ""
    for track in trend.tracks:
        label, *rest = _row(track)
        parts = textwrap.wrap(label, first, break_on_hyphens=False) if label != shown else [""]
        lines.append(_line([parts[0], *rest], first, name))
        lines += [f"  {part}" for part in parts[1:]]
        shown = label
    return lines


def _line(fields: Sequence[str], first: int, name: int) -> str:
    label, figure_title, *numbers, verdict = fields
    middle = " ".join(f"{text:>{width}}" for text, width in zip(numbers, NUMBERS))
    return f"{label:<{first}} {figure_title:<{name}} {middle} {verdict}".rstrip()


def trend_markdown(history: History, trends: Sequence[Trend], plots: dict[str, str] | None = None) -> str:
    """All trends as a markdown document; ``plots``: data set → file of its plot beside the document."""
    parts = []
    for trend in trends:
        parts.append(f"# {escape(_heading(trend))}: {trend.verdict}\n")
        told = sentences(trend)
        if told:
            parts.append("".join(f"- {escape(text)}\n" for text in told))
        body = [_row(track) for track in trend.tracks]
        parts.append(pipe_table([*COLUMNS[:2], "newest", "change", "first", "verdict"], body))
        parts.append(CHANGE_NOTE.format(reference=escape(trend.reference)) + "\n")
        if plots and trend.name in plots:
            parts.append(f"![Quality and latency of each system over the runs]({plots[trend.name]})\n")
    unreadable = _unreadable(history)
    if unreadable:
        parts.append("".join(f"- {escape(text)}\n" for text in unreadable))
    return "\n".join(parts)


def trend_json(history: History, trends: Sequence[Trend]) -> str:
    """All trends as one strict JSON object; ends in a newline."""
    values = {
        "trends": [_as_dict(trend) for trend in trends],
        "unreadable": [{"file": file, "reason": reason} for file, reason in history.unreadable],
    }
    return json.dumps(strict(values), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _as_dict(trend: Trend) -> dict[str, Any]:
    return {
        "data": trend.name,
        "verdict": trend.verdict,
        "reference": trend.reference,
        "sentences": sentences(trend),
        "runs": [{"where": n.where, "created": n.document.created} for n in trend.nights],
        "systems": [
            {
                "system": track.label,
                "figure": track.figure,
                "verdict": track.verdict,
                "first": asdict(track.first) if track.first else None,
                "first_run": None if track.first_night is None else trend.nights[track.first_night].where,
                "first_obstacle": track.first_obstacle,
                "points": [asdict(point) for point in track.points],
                "change_points": [asdict(point) for point in track.change_points],
            }
            for track in trend.tracks
        ],
    }

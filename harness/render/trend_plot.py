"""A trend as a plot: the metric with its interval over the dates of the runs, and the latency below it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

from harness.render.diff import title
from harness.render.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, headline, require, save, styled
from harness.render.trend import sentences
from harness.trend_tracks import Track, Trend

__all__ = ["draw", "write"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, GREY)
MARKS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
WIDTH_IN, PANEL_IN, DPI = 9.0, 3.1, 100
MOST_TICKS = 7
#: A metric is a number without a unit; speed is drawn in these.
UNITS = {"_per_s": (1.0, "per s"), "_s": (1e3, "ms"), "_bytes": (1e-6, "MB")}


def write(trend: Trend, folder: Path, stem: str) -> list[Path]:
    """Write the trend as SVG and PNG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require()
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        return save(draw(trend), folder, stem, f"{trend.name}: quality and latency over the runs")


def draw(trend: Trend) -> Any:
    """A panel per figure, a line per system; None where nothing was measured.

    Lines break where a run does not compare with the one before (a ring around the first run after it),
    for times also where the machine changed. A filled triangle marks a change.
    """
    figures = list(dict.fromkeys(track.figure for track in trend.tracks))
    shown = [
        [t for t in trend.tracks if t.figure == f and any(p.value is not None for p in t.points)]
        for f in figures
    ]
    panels = [(f, tracks) for f, tracks in zip(figures, shown) if tracks]
    if not panels:
        return None
    module, dates = import_module("matplotlib.figure"), import_module("matplotlib.dates")
    made = module.Figure(figsize=(WIDTH_IN, 1.6 + PANEL_IN * len(panels)), dpi=DPI, layout="constrained")
    grid = made.subplots(len(panels), 1, sharex=True, squeeze=False)
    names = list(dict.fromkeys(track.label for _, tracks in panels for track in tracks))
    looks = dict(zip(names, zip(cycle(COLOURS), cycle(MARKS))))
    for (name, tracks), axes in zip(panels, grid[:, 0]):
        for track in tracks:
            _draw_track(axes, trend, track, *looks[track.label], factor=_unit(name)[0])
        unit = _unit(name)[1]
        axes.set_ylabel(f"{title(name)}, {unit}" if unit else f"{title(name)}\n(95 % interval)")
        axes.margins(y=0.15)
    bottom = grid[-1, 0]
    moments = [night.moment for night in trend.nights]
    chosen = moments[:: max(1, -(-len(moments) // MOST_TICKS))]
    bottom.set_xticks([dates.date2num(moment) for moment in chosen], [m.date().isoformat() for m in chosen])
    first, last = dates.date2num(moments[0]), dates.date2num(moments[-1])
    margin = 0.04 * (last - first) or 0.5
    bottom.set_xlim(first - margin, last + margin)
    bottom.set_xlabel("date of the run, UTC; ring: not comparable with the run before; triangle: a change")
    handles = [_handle(*looks[name]) for name in names]
    made.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    said = sentences(trend)
    headline(grid[0, 0], said[0] if said else "no change", f"{trend.name}: {len(trend.nights)} runs")
    return made


def _unit(name: str) -> tuple[float, str]:
    return next((found for ending, found in UNITS.items() if name.endswith(ending)), (1.0, ""))


def _handle(colour: str, mark: str) -> Any:
    lines = import_module("matplotlib.lines")
    return lines.Line2D([], [], color=colour, marker=mark, markersize=5, linewidth=1.2)


def _draw_track(axes: Any, trend: Trend, track: Track, colour: str, mark: str, *, factor: float) -> None:
    for nights in _pieces(track):
        x = [trend.nights[night].moment for night in nights]
        y = [(track.points[night].value or 0.0) * factor for night in nights]
        axes.plot(x, y, color=colour, marker=mark, markersize=5, linewidth=1.2)
        low = [track.points[night].low for night in nights]
        high = [track.points[night].high for night in nights]
        bounds = [(v - a, b - v) for v, a, b in zip(y, low, high) if a is not None and b is not None]
        if len(bounds) == len(nights):
            down, up = zip(*((max(0.0, a), max(0.0, b)) for a, b in bounds))
            axes.errorbar(x, y, yerr=(down, up), fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.55)
    for night, point in enumerate(track.points):
        if point.obstacle and point.value is not None:
            _mark(
                axes,
                trend,
                night,
                point.value * factor,
                marker="o",
                s=150,
                facecolors="none",
                edgecolors=GREY,
            )
    for change in track.change_points:
        value = track.points[change.night].value
        if value is not None:
            pointing = "^" if (change.change.delta or 0.0) > 0 else "v"
            _mark(
                axes, trend, change.night, value * factor, marker=pointing, s=110, c=RED, edgecolors="black"
            )


def _mark(axes: Any, trend: Trend, night: int, value: float, **look: Any) -> None:
    axes.scatter([trend.nights[night].moment], [value], zorder=5, **look)


def _pieces(track: Track) -> Sequence[list[int]]:
    """The measured runs, parted where one does not compare with the run before it."""
    pieces: list[list[int]] = []
    for night, point in enumerate(track.points):
        if point.value is None:
            continue
        if not pieces or point.obstacle:
            pieces.append([])
        pieces[-1].append(night)
    return pieces

"""Bars of the page as inline SVG, placed in percent of the width: no script, no style attribute, any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.render.attribution import COLUMNS
from harness.render.blocks import median_s, stage_names
from harness.render.format import number
from harness.render.htmltext import esc
from harness.results import MetricResult
from harness.rows import Row

__all__ = ["Segment", "latency", "losses", "whisker"]

#: Style of each fate, good first; unknown ones take the last.
FATES = ("found", "fusion", "reranker", "low", "no_pool", "failed", "absent")


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a stacked bar: its name, the name of its colour, its size and the size in words."""

    name: str
    colour: str
    size: float
    words: str


def percent(share: float) -> str:
    """``12.35%`` of a share, for an attribute; the same bytes on every machine."""
    return f"{100 * share:.2f}%"


def whisker(found: MetricResult | None, most: float) -> str:
    """A pale bar to the mean and a line over the 95 % interval, on a scale from 0 to ``most``."""
    if found is None or found.mean is None or most <= 0:
        return ""
    parts = [f'<rect class="wb" y="3" height="10" width="{percent(max(0.0, found.mean) / most)}"/>']
    if found.low is not None and found.high is not None:
        low, high = percent(max(0.0, found.low) / most), percent(found.high / most)
        parts.append(f'<line class="wl" x1="{low}" x2="{high}" y1="8" y2="8"/>')
        parts += [f'<line class="wl" x1="{x}" x2="{x}" y1="5" y2="11"/>' for x in (low, high)]
    mean = percent(max(0.0, found.mean) / most)
    parts.append(f'<circle class="wm" cx="{mean}" cy="8" r="3"/>')
    return f'<svg class="wk" height="16" aria-hidden="true">{"".join(parts)}</svg>'


def stacked(segments: Sequence[Segment], most: float) -> str:
    """The segments one after another on a scale from 0 to ``most``; each says on hover what it is."""
    left, parts = 0.0, []
    for one in segments:
        if one.size > 0:
            parts.append(
                f'<rect class="c-{one.colour}" x="{percent(left / most)}" width="{percent(one.size / most)}" '
                f'height="18"><title>{esc(one.name)}: {esc(one.words)}</title></rect>'
            )
            left += one.size
    said = ", ".join(f"{one.name} {one.words}" for one in segments if one.size > 0)
    return f'<svg class="bar" height="18" role="img" aria-label="{esc(said)}">{"".join(parts)}</svg>'


def chart(rows: Sequence[tuple[str, Sequence[Segment], str]], legend: Sequence[tuple[str, str]]) -> str:
    """A legend, then a line each: label, bar, total. A bar stands twice: to scale, and as shares."""
    most = max(sum(one.size for one in segments) for _, segments, _ in rows)
    keys = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true"><rect class="c-{colour}" width="12" height="12" '
        f'rx="2"/></svg>{esc(name)}</li>'
        for name, colour in legend
    )
    lines = []
    for label, segments, total in rows:
        whole = sum(one.size for one in segments)
        lines.append(
            f'<li><span class="bl"><bdi>{esc(label)}</bdi></span><span class="bb"><span class="abs">'
            f'{stacked(segments, most)}</span><span class="share" hidden>{stacked(segments, whole)}</span>'
            f'</span><span class="bt">{esc(total)}</span></li>'
        )
    return f'<ul class="legend">{keys}</ul><ul class="bars">{"".join(lines)}</ul>'


def latency(rows: Sequence[Row]) -> str:
    """Median milliseconds of each stage, stacked, the fastest system first; empty without any."""
    names = stage_names(rows)
    found = []
    for row in rows:
        parts = [(name, m * 1000) for name in names if (m := median_s(row, name)) is not None]
        total = sum(ms for _, ms in parts)
        if row.cell.status == "ok" and total > 0:
            segments = [Segment(name, name, ms, f"{number(ms)} ms") for name, ms in parts]
            found.append((total, (row.label, segments, f"{number(total)} ms")))
    found.sort(key=lambda item: item[0])
    return chart([line for _, line in found], [(name, name) for name in names]) if found else ""


def losses(rows: Sequence[Row]) -> str:
    """Where each system's relevant documents ended, stacked; empty where that was not counted."""
    titles = {name: title for title, name in COLUMNS}
    lines: list[tuple[str, list[Segment], str]] = []
    shown: set[str] = set()
    for row in rows:
        counted = row.cell.attribution if row.ok else None
        if not counted or not sum(counted["fates"].values()):
            continue
        fates = counted["fates"]
        names = [name for name in FATES if fates.get(name)]
        shown.update(names)
        segments = [Segment(titles[name], name, fates[name], str(fates[name])) for name in names]
        whole = sum(one.size for one in segments)
        lines.append((row.label, segments, f"{100 * fates.get('found', 0) / whole:.0f} % found"))
    return chart(lines, [(titles[name], name) for name in FATES if name in shown]) if lines else ""

"""A comparison as lines for the terminal and as markdown: the verdict first, then every change."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from harness.compare import NOT_COMPARABLE, Change, Comparison, Mismatch
from harness.render.blocks import escape
from harness.render.format import MISSING, figure, p_value, percent, signed
from harness.summary import metric_title
from harness.tables import pipe_table

__all__ = ["diff_lines", "diff_markdown"]

WIDTH = 80
LONGEST_VALUE = 150
_DIGEST = re.compile(r"[0-9a-f]{32,}")
TITLES = {
    "p50_s": "latency p50",
    "p95_s": "latency p95",
    "p99_s": "latency p99",
    "docs_per_s": "documents/s",
    "tokens_per_s": "tokens/s",
    "peak_rss_bytes": "peak memory",
}
SPEED_NOTE = "times and memory are not comparable"


def title(name: str) -> str:
    """What a figure is called in a heading."""
    return TITLES.get(name) or metric_title(name)


def diff_lines(comparison: Comparison) -> list[str]:
    """The comparison for the terminal, 80 columns at most."""
    lines = [f"{comparison.old} → {comparison.new}: {comparison.verdict}"]
    lines += [f"  {text}" for text in _obstacles(comparison)]
    for name, changes in _by_figure(comparison):
        lines.append(f"{title(name)}: old → new, change [its 95 % interval]")
        lines += [f"  {label}: {_moved(change)}: {_verdict(change)}" for label, change in changes]
    lines += list(_closing(comparison))
    return [part for line in lines for part in _wrapped(line)]


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def diff_markdown(comparison: Comparison) -> str:
    """The comparison as a markdown document."""
    out = f"# {escape(comparison.old)} → {escape(comparison.new)}: {comparison.verdict}\n"
    obstacles = list(_obstacles(comparison))
    if obstacles:
        out += "\n" + "".join(f"- {escape(text)}\n" for text in obstacles)
    for name, changes in _by_figure(comparison):
        body = [[label, *_fields(change), _verdict(change)] for label, change in changes]
        columns = ["system", "old", "new", "change", "95 % interval", "corrected p", "verdict"]
        out += f"\n## {title(name)}\n\n" + pipe_table(columns, body)
    closing = list(_closing(comparison))
    return out + ("\n" + "".join(f"- {escape(text)}\n" for text in closing) if closing else "")


def _obstacles(comparison: Comparison) -> Iterator[str]:
    """What forbids a comparison, field by field, and what has been lost or gained."""
    for mismatch in comparison.mismatches:
        yield f"{NOT_COMPARABLE}: {_mismatch(mismatch)}"
    for text, names in _cell_obstacles(comparison).items():
        yield f"{NOT_COMPARABLE}: {text} ({', '.join(names)})"
    if not comparison.cells:
        yield f"{NOT_COMPARABLE}: no cell stands in both results"
    for mismatch in comparison.speed_mismatches:
        yield f"{SPEED_NOTE}: {_mismatch(mismatch)}"
    for pair in comparison.cells:
        if pair.old.status != pair.new.status:
            reason = pair.new.reason or pair.old.reason
            yield f"{pair.label}: {pair.old.status} → {pair.new.status}" + (f": {reason}" if reason else "")


def _cell_obstacles(comparison: Comparison) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in comparison.cells:
        for mismatch in pair.mismatches:
            found.setdefault(_mismatch(mismatch), []).append(pair.label)
    return found


def _mismatch(mismatch: Mismatch) -> str:
    return f"{mismatch.field}: {_value(mismatch.old)} / {_value(mismatch.new)}"


def _value(value: Any) -> str:
    text = "absent" if value is None else str(value)
    if _DIGEST.fullmatch(text):
        return text[:16]
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _by_figure(comparison: Comparison) -> Iterator[tuple[str, Sequence[tuple[str, Change]]]]:
    """The reported changes, grouped by figure in the order they were measured."""
    found: dict[str, list[tuple[str, Change]]] = {}
    for pair in comparison.cells:
        for change in pair.changes:
            if change.reported:
                found.setdefault(change.name, []).append((pair.label, change))
    yield from sorted(found.items(), key=lambda item: item[1][0][1].is_speed)


def _fields(change: Change) -> list[str]:
    """Old, new, change, interval, p."""
    old, new = figure(change.name, change.old), figure(change.name, change.new)
    shown = percent if change.is_speed else _fine
    bounds = MISSING
    if change.low is not None and change.high is not None:
        bounds = f"{shown(change.low)} to {shown(change.high)}"
    moved = percent(change.relative) if change.is_speed else _fine(change.delta)
    return [old, new, moved, bounds, p_value(change.p_value)]


def _fine(value: float | None) -> str:
    """A difference of scores; of one too small for three decimals at least the sign and the size."""
    if value is None or value == 0 or abs(value) >= 0.0005:
        return signed(value)
    return f"{'+' if value > 0 else '−'}{abs(value):.0e}"


def _moved(change: Change) -> str:
    old, new, moved, bounds, _ = _fields(change)
    return f"{old} → {new}, {moved}" + (f" [{bounds}]" if bounds != MISSING else "")


def _verdict(change: Change) -> str:
    return f"{change.verdict} (no value in the {change.missing} result)" if change.missing else change.verdict


def _closing(comparison: Comparison) -> Iterator[str]:
    if comparison.cells and not comparison.mismatches:
        reported = [c for pair in comparison.cells for c in pair.changes if c.reported]
        if not any(not c.is_speed for c in reported):
            yield "quality: no mean changed"
        if not comparison.speed_mismatches and not any(c.is_speed for c in reported):
            yield "speed: no change beyond the noise"
    for which, names in (("old", comparison.only_old), ("new", comparison.only_new)):
        if names:
            yield f"only in the {which} result: {', '.join(names)}"
    yield from (f"note: {note}" for note in comparison.notes)

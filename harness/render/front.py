"""Quality against a price, latency or money: the Pareto front, and the system that was chosen on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.limits import usd_per_1k
from harness.recommend import Recommendation
from harness.render.format import number, score
from harness.render.placing import place_labels
from harness.render.plots import (
    GREY,
    INK,
    OTHER_MARK,
    PIPELINE_MARKS,
    headline,
    new_figure,
    require,
    save,
    short,
    styled,
)
from harness.results import ResultDocument
from harness.rows import Row
from harness.summary import metric_title

__all__ = ["LATENCY", "Axis", "draw_front", "money", "pareto", "write_fronts"]


@dataclass(frozen=True, slots=True)
class Axis:
    """What quality is drawn against.

    Attributes:
        label: with the unit and the direction.
        of: the value of a row; None where it was not measured.
        factor: how the finding names a multiple: ``times its p95``.
        best: what the front joins: ``best for its latency``.
        has_zero: whether 0 may stand there, so that the scale is linear up to the least other value.
    """

    label: str
    of: Callable[[Row], float | None]
    factor: str
    best: str
    has_zero: bool = False


def _p95_ms(row: Row) -> float | None:
    p95 = row.speed("p95_s")
    return p95 * 1000 if p95 else None


LATENCY = Axis(
    "latency of a query at p95, ms (logarithmic, lower is better)",
    _p95_ms,
    "times its p95",
    "best for its latency",
)


def money(usd_per_hour: float | None) -> Axis:
    """US dollars for 1,000 queries, with the machine's hours where it has a price."""
    return Axis(
        "US dollars for 1,000 queries (logarithmic, lower is better)",
        lambda row: usd_per_1k(row, usd_per_hour),
        "times its cost",
        "best for its cost",
        has_zero=True,
    )


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points that no other beats in both: lower first coordinate, higher second.

    In order of the first coordinate; of equal points the first.
    """
    best, out = float("-inf"), []
    for place in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if points[place][1] > best:
            best = points[place][1]
            out.append(place)
    return out


def draw_front(document: ResultDocument, rows: Sequence[Row], axis: Axis, chosen_id: str = "") -> Any:
    """The main metric of ``rows`` against ``axis``, with the front of what nothing else beats in both and a
    ring around the cell ``chosen_id``; None where there is nothing to draw, or no row costs anything."""
    metric = rows[0].main if rows else ""
    chosen, points = [], []
    for row in rows:
        x, mean = axis.of(row), row.cell.mean(metric)
        if row.ok and x is not None and mean is not None:
            chosen.append(row)
            points.append((x, mean))
    if not any(x > 0 for x, _ in points):
        return None
    figure, axes = new_figure(5.6)
    front = pareto(points)
    _scatter(axes, points, chosen, front, axis)
    for point, row in zip(points, chosen):
        if row.cell.key.cell_id == chosen_id:
            axes.scatter(
                *point, s=200, facecolors="none", edgecolors=INK, linewidths=1.8, label="recommended"
            )
    axes.set_xlabel(axis.label)
    axes.set_ylabel(f"{metric_title(metric)} (higher is better)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=5, frameon=False, fontsize=11)
    headline(axes, _finding(points, chosen, front, axis, metric), _detail(document, chosen_id))
    _names(axes, points, chosen, front, chosen_id)
    return figure


def _detail(document: ResultDocument, chosen_id: str) -> str:
    ring = "; the ring marks the recommended one" if chosen_id else ""
    return f"{document.name}: the line joins what nothing else beats in both{ring}"


def _scatter(
    axes: Any, points: Sequence[tuple[float, float]], rows: Sequence[Row], front: Sequence[int], axis: Axis
) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    least = min(x for x in xs if x > 0)
    if axis.has_zero and min(xs) <= 0:
        axes.set_xscale("symlog", linthresh=least)
        axes.set_xlim(-least / 4, max(xs) * 4)
    else:
        axes.set_xscale("log")
        # a decade to the right and a little on the left leaves room for the names
        axes.set_xlim(least / 2, max(xs) * 4)
    axes.step(
        [points[i][0] for i in front],
        [points[i][1] for i in front],
        where="post",
        color=GREY,
        linewidth=1.4,
        zorder=1,
        label=axis.best,
    )
    for pipeline, (marker, colour) in {**PIPELINE_MARKS, "hybrid+rerank": OTHER_MARK}.items():
        mine = [p for p, row in zip(points, rows) if row.cell.key.pipeline == pipeline]
        if mine:
            axes.scatter(*zip(*mine), s=75, marker=marker, color=colour, label=pipeline, zorder=3)
    reach = max(max(ys) - min(ys), 0.1)
    axes.set_ylim(max(0.0, min(ys) - 0.15 * reach), min(1.03, max(ys) + 0.2 * reach))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.10f}".rstrip("0").rstrip("."))
    axes.grid(visible=True, which="major")


def _finding(
    points: Sequence[tuple[float, float]], rows: Sequence[Row], front: Sequence[int], axis: Axis, metric: str
) -> str:
    (low, worst), (high, best_value) = points[front[0]], points[front[-1]]
    least, best = rows[front[0]], rows[front[-1]]
    if least is best:
        word = "fastest" if axis is LATENCY else "cheapest"
        return f"{best.label} is both the best and the {word}"
    gained = f"{score(best_value - worst)} {metric_title(metric)} over {least.label}"
    if low <= 0:
        return f"{best.label} gains {gained} for {number(high)} USD more per 1,000 queries"
    return f"{best.label} gains {gained} for {number(high / low, 2)} {axis.factor}"


def _names(
    axes: Any,
    points: Sequence[tuple[float, float]],
    rows: Sequence[Row],
    front: Sequence[int],
    chosen_id: str,
) -> None:
    names = [short(row.label) + (" (baseline)" if row.is_baseline else "") for row in rows]
    marked = [i for i, row in enumerate(rows) if row.cell.key.cell_id == chosen_id]
    # most useful first: where there is no room the last ones stay without a name
    order = list(dict.fromkeys([*marked, *front, *range(len(rows))]))
    corners = [c for i, j in pairwise(front) for c in (points[i], (points[j][0], points[i][1]))]
    corners.append(points[front[-1]])
    left_out = place_labels(axes, [points[i] for i in order], [names[i] for i in order], corners)
    if left_out:
        axes.annotate(
            f"{left_out} points without a name: no room",
            (0.99, 0.02),
            xycoords="axes fraction",
            ha="right",
            fontsize=10,
            color=GREY,
        )


def write_fronts(found: Recommendation, folder: Path) -> list[Path]:
    """Write ``pareto_p95`` and, where a query costs something, ``pareto_cost`` as SVG and PNG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require()
    rows = [one.row for one in found.candidates]
    chosen_id = found.chosen.row.cell.key.cell_id if found.chosen else ""
    written: list[Path] = []
    with styled():
        for stem, axis in (("pareto_p95", LATENCY), ("pareto_cost", money(found.usd_per_hour))):
            figure = draw_front(found.document, rows, axis, chosen_id)
            written += save(figure, folder, stem, f"Quality of each system against {axis.label}")
    return written

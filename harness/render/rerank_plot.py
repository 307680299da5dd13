"""The plot of reranking depth: what each further candidate brings, and what it costs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from harness.economics import MAIN
from harness.render import plots
from harness.render.format import number, score
from harness.results import ResultDocument
from harness.rows import Row
from harness.significance import mean_interval
from harness.summary import metric_title

__all__ = ["draw_rerank_depth"]

MARKS = ("o", "s", "D", "^", "v", "P")
#: More lines than these cannot be told apart: the best ones are drawn.
MOST_LINES = 6


def draw_rerank_depth(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """Quality against depth with its interval, no reranking at depth 0; below it the median milliseconds."""
    chosen = [row for row in rows if row.cell.status == "ok" and row.cell.rerank and len(_points(row)) > 1]
    if not chosen:
        return None
    chosen = sorted(chosen, key=lambda row: -_points(row)[-1][1])[:MOST_LINES]
    figure, quality, cost = _panels(len(chosen))
    seed = document.seed
    colours = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE, plots.RED, plots.SKY)
    timed: list[float] = []
    for row, colour, marker in zip(chosen, colours, MARKS):
        points = _points(row)
        depths = [depth for depth, _, _ in points]
        bounds = [mean_interval(values, binary=False, seed=seed) for _, _, values in points]
        lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
        quality.fill_between(depths, lows, highs, color=colour, alpha=0.15, linewidth=0)
        means = [mean for _, mean, _ in points]
        # of one reranker both pipelines cost the same: the broken line lies over the whole one
        broken = _frozen(row)["mix"] == "ranks"
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "markersize": 5 if broken else 8,
            "linewidth": 2,
        }
        look |= {"linestyle": (0, (4, 3)), "zorder": 3} if broken else {"zorder": 2}
        label = "\n".join(textwrap.wrap(row.label, 2 * plots.LONGEST_LINE, break_on_hyphens=False))
        quality.plot(depths, means, label=label, **look)
        spent = [
            (at["depth"], at["median_s"] * 1000)
            for at in _frozen(row)["depths"]
            if at["median_s"] is not None
        ]
        timed += [ms for _, ms in spent]
        cost.plot([depth for depth, _ in spent], [ms for _, ms in spent], **look)
    _axes(quality, cost, timed)
    cost.set_xticks(sorted({depth for row in chosen for depth, _, _ in _points(row)}))
    figure.legend(
        *quality.get_legend_handles_labels(), loc="outside lower center", frameon=False, fontsize=11
    )
    n = len(document.dataset.get("query_ids", ()))
    plots.headline(
        quality,
        _finding(chosen[0]),
        f"{document.name}: mean over {n} judged queries with its 95 % interval; depth 0 is no reranking",
    )
    return figure


def _panels(lines: int) -> tuple[Any, Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (plots.WIDTH_IN, 7.4 + 0.42 * lines)
    figure = Figure(figsize=size, dpi=plots.DPI, layout="constrained")
    FigureCanvasAgg(figure)
    quality, cost = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    return figure, quality, cost


def _axes(quality: Any, cost: Any, timed: Sequence[float]) -> None:
    quality.set_ylabel(f"{metric_title(MAIN)} (higher is better)")
    cost.set_ylabel("median, ms (lower is better)")
    cost.set_xlabel("depth: documents given to the reranker")
    if timed and max(timed) > 30 * min(timed) > 0:
        cost.set_yscale("log")
    else:
        cost.set_ylim(0, 1.12 * max(timed, default=1.0))


def _frozen(row: Row) -> dict[str, Any]:
    return row.cell.rerank or {}


def _points(row: Row) -> list[tuple[int, float, list[float]]]:
    """Depth, mean and values per query, from depth 0, which is the order before."""
    before = _frozen(row)["before"][MAIN]
    found = [(0, _mean(before), before)]
    found += [(at["depth"], at["means"][MAIN], at["per_query"]) for at in _frozen(row)["depths"]]
    return [point for point in found if point[2]]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _finding(row: Row) -> str:
    points = _points(row)
    before, deepest = points[0], points[-1]
    depth, best, _ = max(points, key=lambda point: point[1])
    where = "without reranking" if depth == 0 else f"at depth {number(depth)}"
    out = f"{row.label}: highest {where} ({score(best)})"
    rest = [] if depth == 0 else [f"{score(before[1])} without"]
    rest += [] if depth == deepest[0] else [f"{score(deepest[1])} at depth {number(deepest[0])}"]
    return f"{out}; {', '.join(rest)}" if rest else out

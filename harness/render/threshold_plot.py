"""The plot of score thresholds: answers kept and false ones let through, one panel a system."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from harness.render import plots
from harness.render.format import share
from harness.render.thresholds import found_thresholds, score_text
from harness.results import ResultDocument
from harness.rows import Row
from harness.thresholds import Thresholds

__all__ = ["draw_thresholds"]

#: More panels than these make the plot longer than a page: rerankers come first, then the order of rows.
MOST_PANELS = 6
PANEL_IN = 2.35


def draw_thresholds(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """Both shares against the threshold with their 95 % intervals, and the threshold that is suggested."""
    chosen = [(row, found) for row, found in found_thresholds(rows, document.seed) if found.points]
    chosen.sort(key=lambda pair: pair[1].scores != "rerank")
    shown = chosen[:MOST_PANELS]
    if not shown:
        return None
    figure, panels = _panels(len(shown))
    for axes, (row, found) in zip(panels, shown):
        _panel(axes, row, found)
    panels[-1].set_xlabel("score threshold t, in the units of each model")
    named = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(
        named.values(),
        named.keys(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=11,
    )
    left_out = len(chosen) - len(shown)
    more = f"; {left_out} further systems stand in the table" if left_out else ""
    plots.headline(panels[0], _finding(shown), f"{document.name}: shares with their 95 % intervals{more}")
    for axes, (row, found) in zip(panels, shown):
        _name(axes, row, found)
    return figure


def _panels(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(plots.WIDTH_IN, 2.2 + PANEL_IN * count), dpi=plots.DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(count, 1, squeeze=False)[:, 0])


def _panel(axes: Any, row: Row, found: Thresholds) -> None:
    at = [point.threshold for point in found.points]
    for which, colour, look, label in (
        ("kept", plots.BLUE, "-", "answers kept"),
        ("leak", plots.RED, (0, (5, 2)), "false answers let through"),
    ):
        middle, low, high = (
            [getattr(point, f"{which}{end}") for point in found.points] for end in ("", "_low", "_high")
        )
        axes.plot(at, middle, color=colour, linewidth=2, linestyle=look, label=label)
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("share of queries")
    if found.separates and found.best and found.low is not None and found.high is not None:
        drawn: dict[str, Any] = {"color": plots.INK, "linewidth": 1.3, "linestyle": (0, (1, 1))}
        axes.axvline(found.best.threshold, label="suggested threshold, its interval grey", **drawn)
        axes.axvspan(found.low, found.high, color=plots.GREY, alpha=0.15, linewidth=0)


def _name(axes: Any, row: Row, found: Thresholds) -> None:
    """The panel's system and verdict, inside it at the lower left, where both curves are high."""
    label = "\n".join(textwrap.wrap(row.label, plots.LONGEST_LINE, break_on_hyphens=False))
    verdict = f"t = {score_text(found.best.threshold)}" if found.separates and found.best else found.verdict
    axes.annotate(
        f"{label}\n{verdict}\nn = {found.n_kept} and {found.n_leak}",
        (0.01, 0.06),
        xycoords="axes fraction",
        fontsize=11,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2},
    )


def _finding(shown: Sequence[tuple[Row, Thresholds]]) -> str:
    good = [(row, found) for row, found in shown if found.separates and found.gain is not None]
    if not good:
        return "No score threshold separates answers from the rest cleanly"
    row, found = max(good, key=lambda pair: pair[1].gain or 0.0)
    assert found.best is not None  # one that separates has a threshold
    return (
        f"{row.label}: a threshold of {score_text(found.best.threshold)} keeps {share(found.best.kept)} of "
        f"the answers and lets {share(found.best.leak)} of the false ones through"
    )

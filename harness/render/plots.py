"""Plots as SVG and PNG: quality with intervals, against latency, latency by stage, quality by rerank depth.

Figures are made through matplotlib's objects and drawn by Agg and the SVG writer directly, never by pyplot:
no display, no MPLBACKEND and no state outside this module matter. The same document gives the same bytes.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.render.blocks import STAGES, median_s, stage_names
from harness.render.format import number, score
from harness.results import ResultDocument
from harness.rows import Row, clean, main_metric, make_rows, winner
from harness.summary import metric_title
from rag_core.errors import MissingExtraError

__all__ = [
    "FIGURES",
    "GREY",
    "INK",
    "OTHER_MARK",
    "PIPELINE_MARKS",
    "Plot",
    "draw_all",
    "headline",
    "new_figure",
    "require",
    "save",
    "short",
    "styled",
    "write",
]

#: Okabe and Ito's palette: told apart with every common kind of colour blindness.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, INK = "#56B4E9", "#CC79A7", "#6B6B6B", "#222222"
STAGE_COLOURS = dict(zip(STAGES, (BLUE, SKY, ORANGE, PURPLE, GREEN)))
PIPELINE_MARKS = {
    "vector": ("o", BLUE),
    "bm25": ("s", ORANGE),
    "hybrid": ("D", GREEN),
    "hybrid+rerank+rrf": ("v", RED),
}
OTHER_MARK = ("^", PURPLE)
#: Inches and dots per inch: 900 pixels wide.
WIDTH_IN, DPI = 9.0, 100
#: Characters of a line of a label; longer ones go on in a second line.
LONGEST_LINE = 34

STYLE: dict[str, Any] = {
    "font.size": 12,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 14,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E2E2E2",
    "svg.hashsalt": "rag-core-bench",
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
}


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot: its file's stem, its alternative text and the function that draws it.

    ``draw`` returns a figure, or None where the document holds nothing to draw.
    """

    stem: str
    alt: str
    draw: Callable[[ResultDocument, Sequence[Row]], Any]


def require(*, load: bool = True) -> None:
    """Raise MissingExtraError where matplotlib cannot be imported; without ``load``, is not installed."""
    if not load:
        if find_spec("matplotlib") is None:
            raise MissingExtraError("plots", "matplotlib", "plots")
        return
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("plots", "matplotlib", "plots") from error


def write(document: ResultDocument, folder: Path) -> list[Path]:
    """Write every plot as SVG and PNG into ``folder``; a plot without data is removed from there.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require()
    document = clean(document)
    return draw_all(document, make_rows(document), folder)


def draw_all(document: ResultDocument, rows: Sequence[Row], folder: Path) -> list[Path]:
    """:func:`write` for a caller that has the rows of a clean document."""
    written = []
    with styled():
        for plot in FIGURES:
            written += save(plot.draw(document, rows), folder, plot.stem, plot.alt)
    return written


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw in the report's style, whatever the user's matplotlibrc says."""
    mpl = import_module("matplotlib")
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def save(figure: Any, folder: Path, stem: str, alt: str) -> list[Path]:
    """Write ``figure`` as SVG and PNG; without one, remove what an earlier document left there."""
    agg, svg = (import_module(f"matplotlib.backends.backend_{name}") for name in ("agg", "svg"))
    paths = [folder / f"{stem}.{suffix}" for suffix in ("svg", "png")]
    if figure is None:
        for path in paths:
            path.unlink(missing_ok=True)
        return []
    # the PNG first: the SVG writer sets the figure to 72 dots per inch
    agg.FigureCanvasAgg(figure).print_png(paths[1], metadata={"Software": None})
    metadata = {"Date": None, "Creator": None, "Title": alt}
    svg.FigureCanvasSVG(figure).print_svg(paths[0], metadata=metadata)
    return paths


def new_figure(height_in: float) -> tuple[Any, Any]:
    """A figure of the report's width and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def short(label: str) -> str:
    """``label`` on at most two lines."""
    return "\n".join(textwrap.wrap(label, LONGEST_LINE, max_lines=2, break_on_hyphens=False))


def headline(axes: Any, finding: str, detail: str) -> None:
    """The finding as title, broken to the figure's width, and below it how it was measured."""
    figure, left = axes.figure, 0.01
    figure.suptitle("\n".join(textwrap.wrap(finding, 76)), x=left, ha="left", fontsize=14, fontweight="bold")
    second = axes.set_title(
        "\n".join(textwrap.wrap(detail, 105)), loc="left", fontsize=11, fontweight="normal", color=GREY
    )
    figure.get_layout_engine().execute(figure)  # where the axes begin is known only then
    pixels = figure.transFigure.transform((left, 0))
    second.set_x(axes.transAxes.inverted().transform(pixels)[0])
    figure.set_layout_engine("none")  # it stays as it is now: a layout takes as long as drawing, each time


def _finding(rows: Sequence[Row], metric: str) -> str:
    best = winner(rows)
    if best is None:
        return "None of these systems can be recommended"
    value, found = score(best.cell.mean(metric)), best.versus
    if best.is_baseline:
        return f"Nothing scores above the baseline, {best.label} ({value})"
    if found is None:
        return f"{best.label} scores highest ({value}); no baseline was measured"
    if found.sure:
        return f"{best.label} scores highest ({value}), {score(found.mean)} above the baseline"
    return f"{best.label} scores highest ({value}), not told apart from the baseline"


def draw_quality(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """The main metric of each cell with its interval, best on top, the baseline as a line."""
    metric = main_metric(document)
    chosen = sorted((row for row in rows if row.ok), key=lambda row: row.cell.mean(metric) or 0.0)
    if not chosen:
        return None
    figure, axes = new_figure(1.9 + 0.42 * len(chosen))
    baseline = next((row for row in chosen if row.is_baseline), None)
    for y, row in enumerate(chosen):
        found = row.cell.metrics[metric]
        mean = found.mean or 0.0
        marker, colour = PIPELINE_MARKS.get(row.cell.key.pipeline, OTHER_MARK)
        if found.low is not None and found.high is not None:
            axes.plot([found.low, found.high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot([mean], [y], marker=marker, color=colour, markersize=9, linestyle="none")
        right = max(mean, found.high or 0.0)
        axes.annotate(score(mean), (right, y), (8, 0), textcoords="offset points", va="center", fontsize=11)
    axes.set_yticks(range(len(chosen)), [short(row.label) for row in chosen])
    axes.set_ylim(-0.6, len(chosen) - 0.4 + (0.5 if baseline else 0.0))
    if baseline is not None:
        value = baseline.cell.mean(metric) or 0.0
        axes.axvline(value, color=INK, linewidth=1.3, linestyle=(0, (5, 3)), zorder=0.5)
        axes.annotate(
            f"baseline: {baseline.label} {score(value)}",
            (value, len(chosen) - 0.15),
            (6 if value < 0.5 else -6, 0),
            textcoords="offset points",
            ha="left" if value < 0.5 else "right",
            va="center",
            fontsize=11,
        )
    lows = [row.score.low for row in chosen if row.score and row.score.low is not None]
    left = 0.0 if not lows or min(lows) < 0.4 else min(lows) - 0.05
    axes.set_xlim(left, 1.06)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    n = len(document.dataset.get("query_ids", ()))
    axes.set_xlabel(f"{metric_title(metric)} (0 to 1, higher is better)")
    axes.set_ylabel("system")
    headline(
        axes,
        _finding(rows, metric),
        f"{document.name}: mean over {n} judged queries with its 95 % interval",
    )
    return figure


def draw_quality_latency(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """See :func:`harness.render.front.draw_front`; the system that a report recommends is marked."""
    from harness.recommend import recommend
    from harness.render.front import LATENCY, draw_front

    chosen = recommend(document).chosen
    return draw_front(document, rows, LATENCY, chosen.row.cell.key.cell_id if chosen else "")


def draw_stages(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """Median milliseconds of each stage, stacked, the slowest system on top."""
    found: list[tuple[Row, list[tuple[str, float]]]] = []
    order = stage_names(rows)
    for row in rows:
        parts = [(name, m * 1000) for name in order if (m := median_s(row, name)) is not None]
        if row.cell.status == "ok" and sum(ms for _, ms in parts) > 0:
            found.append((row, parts))
    if not found:
        return None
    found.sort(key=lambda item: sum(ms for _, ms in item[1]))
    figure, axes = new_figure(2.3 + 0.42 * len(found))
    shown: set[str] = set()
    for y, (_, parts) in enumerate(found):
        left = 0.0
        for name, ms in parts:
            label = {} if name in shown else {"label": name}
            shown.add(name)
            colour = STAGE_COLOURS.get(name, GREY)
            axes.barh(y, ms, left=left, height=0.62, color=colour, edgecolor="white", linewidth=0.4, **label)
            left += ms
        axes.annotate(
            f"{number(left)} ms", (left, y), (6, 0), textcoords="offset points", va="center", fontsize=11
        )
    axes.set_yticks(range(len(found)), [short(row.label) for row, _ in found])
    axes.margins(x=0.14)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("median latency of a query, ms (lower is better)")
    axes.set_ylabel("system")
    handles, names = axes.get_legend_handles_labels()
    ordered = sorted(zip(names, handles), key=lambda pair: order.index(pair[0]))
    figure.legend(
        [handle for _, handle in ordered],
        [name for name, _ in ordered],
        loc="outside lower center",
        ncols=len(ordered),
        frameon=False,
        fontsize=11,
    )
    slowest, parts = found[-1]
    total = sum(ms for _, ms in parts)
    name, ms = max(parts, key=lambda part: part[1])
    share = "over 99 %" if 0.995 <= ms / total < 1 else f"{100 * ms / total:.0f} %"
    headline(
        axes,
        f"{slowest.label} takes longest, {number(total)} ms; {share} of it in stage “{name}”",
        f"{document.name}: medians of the warm, timed queries; cold start not included",
    )
    return figure


def draw_rerank_depth(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """See :func:`harness.render.rerank_plot.draw_rerank_depth`, which builds on this module."""
    from harness.render import rerank_plot

    return rerank_plot.draw_rerank_depth(document, rows)


def draw_load(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """See :func:`harness.render.load_plot.draw_load`, which builds on this module."""
    from harness.render import load_plot

    return load_plot.draw_load(document, rows)


def draw_thresholds(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """See :func:`harness.render.threshold_plot.draw_thresholds`, which builds on this module."""
    from harness.render import threshold_plot

    return threshold_plot.draw_thresholds(document, rows)


FIGURES = (
    Plot("quality", "Quality of each system with its 95 % interval, against the baseline", draw_quality),
    Plot("quality_latency", "Quality of each system against its latency at p95", draw_quality_latency),
    Plot("latency_stages", "Median latency of each system by stage, stacked", draw_stages),
    Plot("rerank_depth", "Quality and latency against the depth of reranking", draw_rerank_depth),
    Plot("load", "Latency at p95 and its waiting against the number of clients", draw_load),
    Plot(
        "thresholds", "Answers kept and false ones let through against the score threshold", draw_thresholds
    ),
)

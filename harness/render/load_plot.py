"""The plot of many clients at once: latency and waiting above, throughput below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.render import plots
from harness.render.load import levels_of, load_lines
from harness.results import ResultDocument
from harness.rows import Row

__all__ = ["draw_load"]

#: Highest over lowest value from which a scale is logarithmic.
FAR = 30
MARKS = ("o", "s", "D", "^", "v", "P")


def draw_load(document: ResultDocument, rows: Sequence[Row]) -> Any:
    """Milliseconds at p95 (whole line) and of waiting (broken) against the clients; None without any."""
    chosen = [row for row in rows if levels_of(row)][: len(MARKS)]
    if not chosen:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(plots.WIDTH_IN, 6.8 + 0.3 * len(chosen)), dpi=plots.DPI, layout="constrained")
    FigureCanvasAgg(figure)
    latency, throughput = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    colours = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE, plots.RED, plots.SKY)
    for row, colour, marker in zip(chosen, colours, MARKS):
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 7, "linewidth": 2}
        latency.plot(*_points(row, "p95_s", 1000), label=f"{row.label}, p95", **look)
        waits = {**look, "linestyle": (0, (4, 3)), "markersize": 5}
        latency.plot(*_points(row, "waited_p95_s", 1000), label=f"{row.label}, waiting at p95", **waits)
        throughput.plot(*_points(row, "queries_per_s", 1), **look)
    clients = sorted({level["clients"] for row in chosen for level in levels_of(row)})
    throughput.set_xscale("log", base=2)
    throughput.set_xticks(clients, [str(n) for n in clients])
    throughput.minorticks_off()
    throughput.set_xlabel("clients at once (logarithmic)")
    throughput.set_ylabel("queries/s (higher is better)")
    latency.set_ylabel("ms (lower is better)")
    for axes in (latency, throughput):
        _scale(axes)
    figure.legend(
        *latency.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=11
    )
    workers = sorted({(row.cell.load or {})["workers"] for row in chosen})
    counted = " or ".join(str(n) for n in workers)
    detail = f"{document.name}: a closed loop, answered by {counted} worker threads; one run"
    plots.headline(latency, load_lines(chosen)[0].rstrip("."), detail)
    return figure


def _scale(axes: Any) -> None:
    """From 0; logarithmic where the systems are too far apart for that."""
    values = [
        float(value) for line in axes.lines if line.get_linestyle() == "-" for value in line.get_ydata()
    ]
    if values and max(values) > FAR * min(values) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)


def _points(row: Row, name: str, factor: float) -> tuple[list[int], list[float]]:
    found = [(level["clients"], level[name] * factor) for level in levels_of(row) if level[name] is not None]
    return [clients for clients, _ in found], [value for _, value in found]

"""Table and plot of a result of ``store_scale.py``, from the result alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from harness.render.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, save, styled

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
MARKS = ("o", "s", "^", "D", "v")
NAMES = {
    "flat": "flat (exact, numpy)",
    "lancedb?index=flat": "LanceDB, no index (exact)",
    "lancedb?index=ivf_pq": "LanceDB IVF-PQ",
    "lancedb?index=hnsw_sq": "LanceDB IVF-HNSW-SQ",
}
Cell = dict[str, Any]


def three(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def short(rows: int) -> str:
    return f"{rows / 1e6:g}M" if rows >= 1_000_000 else f"{rows / 1e3:g}k"


def table(result: dict[str, Any]) -> str:
    """One line per store and size, 80 columns at most; what was not measured, with the reason, below."""
    head = "rows  build s   cpu s  recall@10       95 %  p50 ms  p95 ms cpu ms   B/row"
    stores = list(dict.fromkeys(cell["store"] for cell in result["cells"]))
    lines: list[str] = []
    for store in stores:
        lines += ["", f"{NAMES.get(store, store)}", f" {head}"]
        ordered = sorted(_of(result, store), key=lambda cell: int(cell["rows"]))
        for cell in ordered:
            low, high = cell["recall_interval"]
            lines.append(
                f"{short(cell['rows']):>5} {three(cell['build_s']):>8} {three(cell['build_cpu_s']):>7}"
                f" {cell['recall']:>10.3f} {f'{low:.3f}–{high:.3f}':>11}"
                f" {three(cell['p50_s'] * 1e3):>7} {three(cell['p95_s'] * 1e3):>7}"
                f" {three(cell['query_cpu_s'] * 1e3):>6} {three(cell['bytes_per_vector']):>7}"
            )
        for what, field in (("building", "build_peak_bytes"), ("asking", "query_peak_bytes")):
            peaks = ", ".join(f"{cell[field] / 1e6:.0f}" for cell in ordered)
            lines.append(f"  peak of own memory while {what}, MB: {peaks}")
    lines += [
        f"not measured: {NAMES.get(lost['store'], lost['store'])}, {short(lost['rows'])}: {lost['reason']}"
        for lost in result["not_measured"]
    ]
    return "\n".join(lines).strip("\n")


def _of(result: dict[str, Any], store: str) -> list[Cell]:
    return [cell for cell in result["cells"] if cell["store"] == store]


def finding(result: dict[str, Any]) -> str:
    """What the largest size that every store has says."""
    stores = list(dict.fromkeys(cell["store"] for cell in result["cells"]))
    sizes = set.intersection(*({c["rows"] for c in _of(result, store)} for store in stores))
    if not sizes:
        return "How vector stores grow"
    largest = max(sizes)
    at = [next(c for c in _of(result, store) if c["rows"] == largest) for store in stores]
    told = ", ".join(
        f"{NAMES.get(c['store'], c['store'])} {three(c['p50_s'] * 1e3)} ms (recall {c['recall']:.3f})"
        for c in sorted(at, key=lambda c: float(c["p50_s"]))
    )
    return f"At {short(largest)} vectors: {told}"


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Four panels against the number of vectors, as ``store_scale.png`` and ``.svg`` in ``folder``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not result["cells"]:
        return []
    stores = list(dict.fromkeys(cell["store"] for cell in result["cells"]))
    with styled():
        figure = Figure(figsize=(10, 8), dpi=80, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(2, 2)
        for store, colour, mark in zip(stores, COLOURS, MARKS):
            cells = sorted(_of(result, store), key=lambda cell: int(cell["rows"]))
            rows = [cell["rows"] for cell in cells]
            style = {"color": colour, "marker": mark, "label": NAMES.get(store, store)}
            build, latency, recall, size = panels.flat
            build.plot(rows, [cell["build_s"] for cell in cells], **style)
            latency.plot(rows, [cell["p50_s"] * 1e3 for cell in cells], **style)
            bounds = [[bound * 1e3 for bound in cell["p50_interval_s"]] for cell in cells]
            latency.fill_between(rows, *zip(*bounds), color=colour, alpha=0.2, linewidth=0)
            latency.plot(rows, [cell["p95_s"] * 1e3 for cell in cells], color=colour, linestyle=":")
            recall.plot(rows, [cell["recall"] for cell in cells], **style)
            recall.fill_between(
                rows, *zip(*(c["recall_interval"] for c in cells)), color=colour, alpha=0.2, linewidth=0
            )
            size.plot(rows, [cell["bytes_per_vector"] for cell in cells], **style)
        titles = (
            ("Time to build", "seconds"),
            ("One query, p50 (band: 95 %) and p95 (dotted)", "milliseconds"),
            ("Share of the exact top 10 found (band: 95 %)", "recall@10"),
            ("On disk: vectors, ids, metadata and index", "bytes per vector"),
        )
        sizes = sorted({cell["rows"] for cell in result["cells"]})
        raw = 4 * result["settings"]["width"]
        size.axhline(raw, color=GREY, linestyle="--", linewidth=1)
        size.annotate(f"float32 alone: {raw:,}", (sizes[0], raw), (0, -14), textcoords="offset points",
                      fontsize=10, color=GREY)  # fmt: skip
        for axes, (title, unit) in zip(panels.flat, titles):
            axes.set_title(title, fontsize=12)
            axes.set_ylabel(unit)
            axes.set_xscale("log")
            axes.set_xticks(sizes, [short(n) for n in sizes])
            axes.minorticks_off()
            axes.set_xlabel("vectors stored (log scale)")
        for axes in (build, latency):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_ylabel(axes.get_ylabel() + " (log scale)")
        size.set_ylim(0)
        recall.set_ylim(min(0.9, min(c["recall_interval"][0] for c in result["cells"]) - 0.01), 1.003)
        handles, labels = build.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(stores), frameon=False)
        width, queries = result["settings"]["width"], result["settings"]["queries"]
        title = "\n".join(textwrap.wrap(finding(result), 100))
        figure.suptitle(
            f"{title}\n{width} columns, {queries} queries, top {result['settings']['depth']}, "
            f"one at a time; {result['machine']['processors']} processors, shared with other programs",
            fontsize=11, x=0.01, ha="left",
        )  # fmt: skip
        alt = f"{finding(result)}. Time to build, latency, recall and bytes against the number of vectors."
        paths = save(figure, folder, "store_scale", alt)
    for path in paths:
        if path.suffix == ".png":
            smaller(path)
    return paths


def smaller(path: Path) -> None:
    """The same picture in 64 colours, a third of the bytes."""
    from PIL import Image

    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(64)
    reduced.save(path, optimize=True)

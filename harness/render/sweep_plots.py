"""The plots of a sweep: speed against batch size, agreement against speed, quality against candidate pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.render.format import milliseconds, number, rate, score, signed
from harness.render.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    headline,
    new_figure,
    require,
    save,
    styled,
)
from harness.sweep_result import Point, SweepDocument, VariantResult
from harness.sweep_summary import best_point, overlapping, piece_names, variant_names

__all__ = ["FIGURES", "Figure", "write"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
MARKS = ("o", "s", "D", "^", "v", "P")
#: 1 - cosine below this is float32's own rounding.
LEAST_DISTANCE = 1e-7
#: Distance between the bars of two variants at one batch size, in doublings.
DODGE = 0.07
MAIN = "ndcg@10"


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot: its file's stem, its alternative text, and what draws it (None: nothing to draw)."""

    stem: str
    alt: str
    draw: Callable[[SweepDocument], Any]


def write(document: SweepDocument, folder: Path) -> list[Path]:
    """Write every plot as SVG and PNG into ``folder``; one without data is removed from there.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require()
    written = []
    with styled():
        for figure in FIGURES:
            written += save(figure.draw(document), folder, figure.stem, figure.alt)
    return written


def _look(number_: int) -> dict[str, Any]:
    return {"color": COLOURS[number_ % len(COLOURS)], "marker": MARKS[number_ % len(MARKS)]}


def _measured(variant: VariantResult) -> list[Point]:
    return [p for p in variant.points if p.status == "ok" and p.passages_per_s]


def _differs(point: Point) -> bool:
    return (point.agreement or {}).get("verdict") == "differs"


def draw_batch(document: SweepDocument) -> Any:
    """Passages a second against batch size, a line per variant, bars from slowest to fastest round."""
    names = variant_names(document)
    lines = [(v, [p for p in _measured(v) if p.batch_size]) for v in document.variants]
    lines = [(v, points) for v, points in lines if points]
    if not lines or max(len(points) for _, points in lines) < 2:
        return None
    figure, axes = new_figure(5.4)
    axes.set_xscale("log", base=2)
    any_failed = False
    for place, (variant, points) in enumerate(lines):
        look = _look(place)
        # side by side, or the bars of variants of one speed would hide each other
        x = [(p.batch_size or 0) * 2 ** (DODGE * (place - (len(lines) - 1) / 2)) for p in points]
        y = [p.passages_per_s or 0.0 for p in points]
        below = [v - (p.passages_per_s_low or v) for v, p in zip(y, points)]
        above = [(p.passages_per_s_high or v) - v for v, p in zip(y, points)]
        axes.errorbar(
            x, y, [below, above], color=look["color"], linewidth=1.8, elinewidth=1.4, capsize=4, zorder=2
        )
        for hollow in (False, True):
            chosen = [(a, b) for a, b, p in zip(x, y, points) if _differs(p) is hollow]
            if chosen:
                face = "white" if hollow else look["color"]
                axes.plot(
                    *zip(*chosen), linestyle="none", markersize=9, markerfacecolor=face, zorder=3, **look
                )
            any_failed |= hollow and bool(chosen)
        axes.plot([], [], linewidth=1.8, markersize=9, label=names[variant.label], **look)
    if any_failed:
        _hollow_key(axes)
    sizes = sorted({p.batch_size for _, points in lines for p in points if p.batch_size})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * max(p.passages_per_s_high or 0.0 for _, points in lines for p in points))
    axes.set_xlabel("batch size, texts a call (logarithmic)")
    axes.set_ylabel("passages per second (higher is better)")
    _legend(figure, axes)
    headline(axes, _batch_finding(document, names), _held(document) + "; bars: slowest to fastest round")
    return figure


def _hollow_key(axes: Any) -> None:
    axes.plot(
        [], [], "o", color=INK, markerfacecolor="white", markersize=9,
        label="hollow: vectors differ from the reference, not recommended",
    )  # fmt: skip


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = max(1, min(len(labels), 96 // (longest + 6)))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=11)


def _held(document: SweepDocument) -> str:
    points = [p for v in document.variants for p in _measured(v)]
    texts = points[0].n_texts if points else 0
    return f"{document.name}: {texts} texts of mixed length, median of {document.spec['rounds']} rounds"


def _fastest(document: SweepDocument) -> tuple[VariantResult, Point] | None:
    able = [(v, best) for v in document.variants if (best := best_point(v.points))]
    return max(able, key=lambda pair: pair[1].passages_per_s or 0.0, default=None)


def _batch_finding(document: SweepDocument, names: dict[str, str]) -> str:
    found = _fastest(document)
    if found is None:
        return "No setting agrees with its reference"
    variant, best = found
    others = [point for point in variant.points if point.agrees and point is not best]
    near = overlapping(best, others)
    name, speed = names[variant.label], f"{rate(best.passages_per_s)} passages/s"
    if others and len(near) == len(others):
        return f"No batch size of {name} can be told from another: {speed}"
    said = f"{name} is fastest at batch size {best.name}: {speed}"
    one = next((point for point in others if point.batch_size == 1 and point not in near), None)
    if one is None:
        return said
    factor = (best.passages_per_s or 0.0) / (one.passages_per_s or 1.0)
    return f"{said}, {number(factor, 2)} times batch size 1"


def draw_agreement(document: SweepDocument) -> Any:
    """Passages a second of each variant's best batch size against the distance of its vectors."""
    names = variant_names(document)
    found = []
    for variant in document.variants:
        points = [p for p in _measured(variant) if (p.agreement or {}).get("min_cosine") is not None]
        point = best_point(points) or max(points, key=lambda p: p.passages_per_s or 0.0, default=None)
        if point is not None:
            found.append((variant, point))
    if len(found) < 2:
        return None
    figure, axes = new_figure(5.2)
    axes.set_xscale("log")
    for place, (variant, point) in enumerate(found):
        distance = max(1 - (point.agreement or {})["min_cosine"], LEAST_DISTANCE)
        face = {"markerfacecolor": "white"} if _differs(point) else {}
        axes.plot(
            [distance], [point.passages_per_s], linestyle="none", markersize=11,
            label=f"{names[variant.label]}, batch {point.name}", **_look(place), **face,
        )  # fmt: skip
    if any(_differs(point) for _, point in found):
        _hollow_key(axes)
    distances = [max(1 - (p.agreement or {})["min_cosine"], LEAST_DISTANCE) for _, p in found]
    axes.set_xlim(LEAST_DISTANCE / 2, max(1e-3, max(distances) * 3))
    axes.set_ylim(0, 1.15 * max(p.passages_per_s or 0.0 for _, p in found))
    axes.set_xlabel("1 − least cosine to the reference (logarithmic, left is closer; 10⁻⁷ stands for less)")
    axes.set_ylabel("passages per second (higher is better)")
    _legend(figure, axes)
    best = _fastest(document)
    finding = "No variant agrees with its reference"
    if best is not None:
        finding = f"{names[best[0].label]} is the fastest that agrees with its reference"
    headline(axes, finding, _held(document) + ", each variant at its best batch size")
    return figure


def draw_pool(document: SweepDocument) -> Any:
    """Quality against the candidate pool, a line per reranker; below it the milliseconds of a query."""
    names = piece_names(document)
    chosen = [r for r in document.rerankers if r.depths and r.depths[0].after.get(MAIN) is not None]
    if not chosen:
        return None
    figure, axes = new_figure(7.2)
    axes.remove()
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 4))
    deepest = max(chosen, key=lambda r: len(r.depths)).depths
    depths = [depth.depth for depth in deepest]
    ceiling = {"color": GREY, "linestyle": (0, (5, 3)), "label": "perfect order of the pool"}
    axes.plot(depths, [d.oracle[MAIN] for d in deepest], **ceiling)
    for place, result in enumerate(chosen):
        x = [d.depth for d in result.depths]
        look = {"linewidth": 1.8, "markersize": 9, **_look(place)}
        axes.plot(x, [d.after[MAIN] for d in result.depths], label=names[result.label], **look)
        below.plot(x, [1000 * (d.p50_s or 0.0) or None for d in result.depths], **look)
    # above the others, for a reranker that changes nothing lies exactly on it
    fused = {
        "color": INK,
        "linestyle": ":",
        "linewidth": 2.2,
        "label": "fused order, no reranking",
        "zorder": 4,
    }
    axes.plot(depths, [d.before[MAIN] for d in deepest], **fused)
    below.set_xscale("log")
    below.set_yscale("log")
    below.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    below.set_xticks(depths, [str(depth) for depth in depths])
    for each in (axes, below):
        each.minorticks_off()
        each.margins(x=0.05, y=0.15)
    below.set_xlabel("candidates given to the reranker (logarithmic)")
    below.set_ylabel("ms a query (lower is better)")
    axes.set_ylabel("nDCG@10 (higher is better)")
    _legend(figure, axes)
    pool = document.pool or {}
    detail = (
        f"{document.name}: one frozen pool of {pool.get('provider')} fused with {pool.get('lexical')}, "
        f"{pool.get('n_queries')} queries; times: median of single calls"
    )
    headline(axes, _pool_finding(document, names), detail)
    return figure


def _pool_finding(document: SweepDocument, names: dict[str, str]) -> str:
    scored: Sequence[Any] = [(r, d) for r in document.rerankers for d in r.depths if d.difference]
    result, best = max(scored, key=lambda pair: pair[1].after[MAIN] or 0.0)
    change = best.difference
    if (change["low"] or 0.0) <= 0:
        return "No reranker can be told from the fused order"
    gain = f"{signed(change['mean'])} nDCG@10 to {score(best.after[MAIN])}"
    return f"{names[result.label]} gains {gain} at {best.depth} candidates ({milliseconds(best.p50_s)} ms)"


FIGURES = (
    Figure("sweep_batch", "Passages per second of each variant against batch size", draw_batch),
    Figure("sweep_agreement", "Speed of each variant against how far its vectors are off", draw_agreement),
    Figure("sweep_pool", "Quality of each reranker against the candidates it is given", draw_pool),
)

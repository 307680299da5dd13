"""Names beside points without overlap: each takes the first free place around its point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

__all__ = ["place_labels"]

#: Distances from the point in points (1/72 inch), nearest first, and directions, right first.
DISTANCES = (9.0, 20.0, 34.0, 50.0, 70.0, 95.0)
ANGLES = (0, 90, 270, 180, 45, 315, 135, 225)
FONT_SIZE = 11
#: Free pixels kept around every name and every point.
GAP = 3.0
POINT_RADIUS = 7.0
#: From this distance on a thin line leads from the name to its point.
LEADER_FROM = 20

Box = tuple[float, float, float, float]


def place_labels(
    axes: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    line: Sequence[tuple[float, float]] = (),
) -> int:
    """Write ``names`` beside ``points`` (data coordinates) of matplotlib ``axes``.

    Args:
        axes: their limits are final.
        points: one per name.
        names: the first is placed first.
        line: corners of a line of horizontal and vertical pieces that no name may cross.

    Returns:
        How many names found no free place within the axes and were left out.
    """
    from matplotlib.layout_engine import PlaceHolderLayoutEngine

    figure = axes.figure
    if (layout := figure.get_layout_engine()) is not None and not isinstance(layout, PlaceHolderLayoutEngine):
        layout.execute(figure)  # where the axes stand is known only then
    renderer = figure.canvas.get_renderer()
    inside = axes.get_window_extent(renderer)
    frame = (inside.x0, inside.y0, inside.x1, inside.y1)
    taken = [_around(axes.transData.transform(point), POINT_RADIUS) for point in points]
    corners = [axes.transData.transform(point) for point in line]
    for (x0, y0), (x1, y1) in pairwise(corners):
        taken.append((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    scale = figure.dpi / 72
    left_out = 0
    for number, (point, name) in enumerate(zip(points, names)):
        x, y = axes.transData.transform(point)
        others = taken[:number] + taken[number + 1 :]
        for distance, dx, dy, ha, va in _places():
            note = axes.annotate(
                name,
                point,
                (dx, dy),
                textcoords="offset points",
                ha=ha,
                va=va,
                fontsize=FONT_SIZE,
                zorder=4,
                arrowprops={"arrowstyle": "-", "color": "#9A9A9A", "linewidth": 0.8, "shrinkB": 4}
                if distance >= LEADER_FROM
                else None,
            )
            width, height = _size(note, renderer)
            box = _box(x + dx * scale, y + dy * scale, width, height, ha, va)
            if _within(box, frame) and not any(_meet(box, other) for other in others):
                taken.append(box)
                break
            note.remove()
        else:
            left_out += 1
    return left_out


def _places() -> list[tuple[float, float, float, str, str]]:
    out = []
    for distance in DISTANCES:
        for angle in ANGLES:
            dx = distance * math.cos(math.radians(angle))
            dy = distance * math.sin(math.radians(angle))
            ha = "left" if dx > 1 else "right" if dx < -1 else "center"
            va = "bottom" if dy > 1 else "top" if dy < -1 else "center"
            out.append((distance, round(dx, 2), round(dy, 2), ha, va))
    return out


def _size(note: Any, renderer: Any) -> tuple[float, float]:
    from matplotlib.text import Text

    extent = Text.get_window_extent(note, renderer)  # the text alone, without its leader
    return extent.width, extent.height


def _box(x: float, y: float, width: float, height: float, ha: str, va: str) -> Box:
    left = {"left": x, "right": x - width, "center": x - width / 2}[ha]
    bottom = {"bottom": y, "top": y - height, "center": y - height / 2}[va]
    return left - GAP, bottom - GAP, left + width + GAP, bottom + height + GAP


def _around(centre: Sequence[float], radius: float) -> Box:
    x, y = centre
    return x - radius, y - radius, x + radius, y + radius


def _within(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

"""Numbers as people read them: three significant digits, a unit, a dash where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "MISSING",
    "corrected_p",
    "count",
    "figure",
    "interval",
    "listed",
    "megabytes",
    "milliseconds",
    "number",
    "p_value",
    "percent",
    "rate",
    "score",
    "seconds",
    "share",
    "signed",
    "with_bounds",
]

#: Stands where a figure was not measured.
MISSING = "–"
DIGITS = 3


def _usable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = DIGITS) -> str:
    """``value`` with ``digits`` significant digits and no exponent; whole numbers are never cut."""
    if value is None or not math.isfinite(value):
        return MISSING
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    # rounding may carry into a further digit: 0.9996 is 1.00, not 1.000
    places = digits - 1 - math.floor(math.log10(abs(round(value, places))))
    if places <= 0:
        return f"{value:,.0f}"
    return f"{value:.{places}f}"


def score(value: float | None) -> str:
    """A fraction in [0, 1] with three decimals, as metrics are printed everywhere."""
    return f"{value:.3f}" if value is not None and math.isfinite(value) else MISSING


def signed(value: float | None) -> str:
    """A difference of two scores with its sign; a true minus, and no sign for nothing."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{abs(value):.3f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "−") + text


def interval(low: float | None, high: float | None) -> str:
    """``0.712–0.801``; ``−0.020 to +0.031`` where a bound is below zero."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return MISSING
    return f"{score(low)}–{score(high)}" if low >= 0 else f"{signed(low)} to {signed(high)}"


def share(value: float) -> str:
    """``83 %`` for 0.83; ``0 %`` and ``100 %`` of nothing and all alone."""
    if 0 < value < 0.005:
        return "under 1 %"
    return "over 99 %" if 0.995 <= value < 1 else f"{100 * value:.0f} %"


def percent(change: float | None) -> str:
    """A relative change: ``0.123`` is ``+12 %``; one decimal below 10 %."""
    if change is None or not math.isfinite(change):
        return MISSING
    size = abs(change) * 100
    text = f"{size:.1f}" if size < 9.95 else f"{size:,.0f}"
    if float(text.replace(",", "")) == 0:
        return "0 %"
    return f"{'+' if change > 0 else '−'}{text} %"


def p_value(value: float | None) -> str:
    """A p value; below what resampling can tell apart, ``< 0.001``."""
    if value is None or not math.isfinite(value):
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def count(n: int, one: str, many: str) -> str:
    """``1 query`` or ``24 queries``."""
    return f"{n:,} {one if n == 1 else many}"


def corrected_p(value: float) -> str:
    """``corrected p = 0.003``, as a sentence says it."""
    text = p_value(value)
    return f"corrected p {text if text.startswith('<') else f'= {text}'}"


def with_bounds(mean: float, low: float, high: float) -> str:
    """A difference with its interval: ``+0.149 (+0.098 to +0.198)``."""
    return f"{signed(mean)} ({signed(low)} to {signed(high)})"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 4 others``: ``most`` names, the last of them standing for all that are left."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"


def milliseconds(value_s: float | None) -> str:
    """Seconds as milliseconds, without the unit, for a column that names it."""
    return number(value_s * 1000) if value_s is not None and _usable(value_s) else MISSING


def seconds(value_s: float | None) -> str:
    """A duration with its unit: µs, ms or s."""
    if value_s is None or not _usable(value_s):
        return MISSING
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value_s) >= size:
            return f"{number(value_s / size)} {unit}"
    return f"{number(value_s / 1e-6)} µs" if value_s else "0 s"


def megabytes(value_bytes: float | None) -> str:
    """Bytes as MB (10⁶) or GB (10⁹)."""
    if value_bytes is None or not _usable(value_bytes):
        return MISSING
    if value_bytes >= 1e9:
        return f"{number(value_bytes / 1e9)} GB"
    return f"{number(value_bytes / 1e6)} MB"


def rate(value_per_s: float | None) -> str:
    """A number per second, thousands as ``k`` and millions as ``M``."""
    if value_per_s is None or not _usable(value_per_s):
        return MISSING
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value_per_s >= size:
            return f"{number(value_per_s / size)} {unit}"
    return number(value_per_s)


def figure(name: str, value: float | None) -> str:
    """A figure in the unit that its name tells (``_s``, ``_bytes``, ``_per_s``); a score without one."""
    if name.endswith("_per_s"):
        return rate(value)
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("_bytes"):
        return megabytes(value)
    return score(value)

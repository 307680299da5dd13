"""What a choice must keep: latency, memory, cold start, money, least quality; read off a row of a result.

A figure that was not measured is None and keeps no limit that asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.cost import Usage
from harness.metrics import Metric
from harness.render.format import count, megabytes, number, score, seconds
from harness.rows import Row
from harness.units import parse_bytes, parse_duration_s, parse_usd
from rag_core.errors import InvalidArgumentError

__all__ = [
    "FIGURES",
    "UNKNOWN",
    "Figure",
    "Limit",
    "at_clients",
    "cold_start_s",
    "limits_of",
    "minimum",
    "show",
    "usd_per_1k",
]

#: Stands in sentences for what has no figure.
UNKNOWN = "not measured"


def show(value: float | None, form: Callable[[float | None], str]) -> str:
    """``value`` in its form; ``not measured`` without one."""
    return UNKNOWN if value is None else form(value)


def cold_start_s(row: Row) -> float | None:
    """Seconds until a new process has answered its first query: import, load and first call of the embedder,
    load and first call of the reranker; of BM25, which loads no model, the first search.

    None where a part was not measured, and of a service that answered from a recording.
    """
    cell = row.cell
    if cell.key.pipeline == "bm25":
        return _first_call_s(row, "bm25")
    parts = [row.speed(name) for name in ("import_s", "load_s", "first_call_s")]
    if cell.key.reranker != "-":
        parts += [row.speed("rerank_load_s"), _first_call_s(row, "rerank")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _first_call_s(row: Row, stage: str) -> float | None:
    found = row.cell.stages.get(stage)
    return found.warmup_s[0] if found and found.warmup_s else None


def usd_per_1k(row: Row, usd_per_hour: float | None = None) -> float | None:
    """US dollars for 1,000 queries: what services charge at list prices and, where a price of the machine is
    given, the time that the local stages take on it. Documents are not counted: they are embedded once.

    None where a service's price is not known, or the machine has a price and a local stage was not timed.
    """
    total, of_services = 0.0, set()
    for kind, values in (row.cell.cost or {}).items():
        used = Usage.from_dict(values)
        if used.is_service:
            of_services.add(kind)
        if used.is_paid:
            charged = used.usd_per_1k_queries
            if charged is None:
                return None
            total += charged
    if row.cell.key.target == "api" and "embed" not in of_services:
        return None  # an older result that counted nothing
    if not usd_per_hour:
        return total
    local = [stage for name, stage in row.cell.stages.items() if name not in of_services]
    medians = [_median(stage.samples_s) for stage in local]
    if not medians or not all(map(math.isfinite, medians)):
        return None
    return total + sum(medians) * 1_000 * usd_per_hour / 3600


def _median(samples: Iterable[float | None]) -> float:
    known = [s for s in samples if s is not None and math.isfinite(s)]
    return median(known) if known else math.nan


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a row that a limit may ask for: its name in sentences, its value, its form, and what
    measures it where a run alone does not."""

    name: str
    of: Callable[[Row], float | None]
    form: Callable[[float | None], str]
    measured_by: str = ""


def _speed(name: str) -> Callable[[Row], float | None]:
    return lambda row: row.speed(name)


def _usd(value: float | None) -> str:
    return f"{number(value)} USD"


def at_clients(name: str, clients: int) -> Figure:
    """A percentile (``p95``) while that many clients ask at once, of what `bench load` measured."""

    def of(row: Row) -> float | None:
        for level in (row.cell.load or {}).get("levels", ()):
            if level["clients"] == clients:
                found: float | None = level[f"{name}_s"]
                return found
        return None

    measured_by = f"bench load RESULT --system NAME --concurrency {clients} measures it"
    return Figure(f"{name} with {count(clients, 'client', 'clients')}", of, seconds, measured_by)


FIGURES: Mapping[str, Figure] = {
    "p50": Figure("p50", _speed("p50_s"), seconds),
    "p95": Figure("p95", _speed("p95_s"), seconds),
    "p99": Figure("p99", _speed("p99_s"), seconds),
    "rss": Figure("peak memory", _speed("peak_rss_bytes"), megabytes),
    "cold-start": Figure("cold start", cold_start_s, seconds),
    "usd-per-1k": Figure("cost of 1,000 queries", usd_per_1k, _usd),
}
TIMED = ("p50", "p95", "p99")
PARSERS: Mapping[str, Callable[[str, str], float]] = {
    **dict.fromkeys((*TIMED, "cold-start"), parse_duration_s),
    "rss": parse_bytes,
    "usd-per-1k": parse_usd,
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: what asks for it (as typed), its figure, and the value that must not be passed."""

    option: str
    figure: Figure
    value: float
    is_most: bool = True

    def keeps(self, found: float | None) -> bool:
        """Whether ``found`` is within the limit; None never is."""
        if found is None or not math.isfinite(found):
            return False
        return found <= self.value if self.is_most else found >= self.value

    def excess(self, found: float | None) -> float:
        """By how much of the limit ``found`` is beyond it; infinite where it was not measured."""
        if found is None or not math.isfinite(found):
            return math.inf
        gap = found - self.value if self.is_most else self.value - found
        return max(0.0, gap) / self.value if self.value else (math.inf if gap > 0 else 0.0)


def limits_of(given: Mapping[str, str], usd_per_hour: float | None = None) -> list[Limit]:
    """Limits by the names of :data:`FIGURES`, empty ones left out; ``{"p95": "500ms"}``, or ``500ms@16`` for
    16 clients at once.

    Raises:
        InvalidArgumentError: a value without a unit, or not a number; the option is named.
    """
    out = []
    for name, text in given.items():
        if not text:
            continue
        figure, option = FIGURES[name], f"--max-{name}"
        value, at, clients = text.partition("@")
        if at:
            if name not in TIMED or not clients.isdecimal() or int(clients) < 1:
                raise InvalidArgumentError(
                    f"{option} {text!r}; accepted: clients at once behind a latency alone, as in "
                    "--max-p95 500ms@16"
                )
            figure = at_clients(name, int(clients))
        if name == "usd-per-1k" and usd_per_hour:
            figure = Figure(figure.name, lambda row: usd_per_1k(row, usd_per_hour), figure.form)
        out.append(Limit(f"{option} {text}", figure, PARSERS[name](value, option)))
    return out


def minimum(text: str, measured: Iterable[str]) -> Limit:
    """The limit of ``precision@5=0.88``: a mean from below.

    Raises:
        InvalidArgumentError: not ``metric=number`` with a number from 0 to 1, or a metric that was not
            measured.
        UnknownNameError: no such metric.
    """
    name, sign, given = text.partition("=")
    try:
        value = float(given) if sign else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InvalidArgumentError(
            f"--min {text!r}; accepted: metric=number with a number from 0 to 1, for example precision@5=0.88"
        )
    metric = Metric.parse(name.strip())
    known = list(measured)
    if str(metric) not in known:
        raise InvalidArgumentError(f"--min {text!r}: the result holds {', '.join(known) or 'no metric'}")

    def of(row: Row) -> Any:
        return row.cell.mean(str(metric))

    return Limit(f"--min {metric}={given.strip()}", Figure(metric.title, of, score), value, is_most=False)

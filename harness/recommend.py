"""Which system to take: the fastest or cheapest that is not worse than the best and keeps every limit.

"Not worse" is non-inferiority: the one-sided 95 % bound of the paired difference from the best system lies
within the margin (:mod:`harness.pairwise`). The best is the highest mean of what may be recommended at all;
the baseline, stand-ins and systems that do not agree with their model's reference never are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.differences import Difference
from harness.limits import Limit, usd_per_1k
from harness.margins import parse_margins
from harness.pairwise import OPEN, all_pairs, difference_verdict
from harness.provenance import on_one_machine
from harness.results import ResultDocument
from harness.rows import Row, differences, main_metric, make_rows, metric_names
from rag_core.errors import InvalidArgumentError, RagCoreError
from rag_core.factory import SpecString

__all__ = ["DEFAULT_MARGIN", "PREFER", "Candidate", "Closeness", "Recommendation", "recommend"]

#: Of the main metric, where neither the command nor the run gives one.
DEFAULT_MARGIN = 0.01
#: What decides among the acceptable; ``auto``: cost where a service charges for one of them, else latency.
PREFER = ("auto", "latency", "cost", "memory", "throughput", "quality")
#: Those that compare times.
TIMED = ("latency", "throughput")
NONE = "-"
BASELINE = "the baseline"
STAND_IN = "a stand-in that nobody would run"
UNMEASURED = "not measured"
USELESS = "no relevant document among its answers"


@dataclass(frozen=True, slots=True)
class Closeness:
    """How a system stands to the best in one metric: the best minus it, judged by ``margin``."""

    metric: str
    margin: float
    difference: Difference | None
    verdict: str

    @property
    def ok(self) -> bool:
        """Whether it is shown to be behind by less than the margin."""
        return self.verdict in ("equivalent", "not worse")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One system.

    Attributes:
        row: it.
        never: why it is not recommended whatever the limits; empty where it may be.
        closeness: one per margin; empty for the best itself.
        broken: the limits it does not keep, with its value; None where that was not measured.
    """

    row: Row
    never: str = ""
    closeness: tuple[Closeness, ...] = ()
    broken: tuple[tuple[Limit, float | None], ...] = ()

    @property
    def is_close(self) -> bool:
        """Whether it is not worse than the best by more than any margin."""
        return not self.never and all(found.ok for found in self.closeness)

    @property
    def is_acceptable(self) -> bool:
        """Whether it is close and keeps every limit."""
        return self.is_close and not self.broken

    @property
    def mean(self) -> float:
        """Of the main metric; −inf without one."""
        found = self.row.cell.mean(self.row.main)
        return -math.inf if found is None else found


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The outcome.

    Attributes:
        document: the result.
        metric: that quality is judged by.
        margins: metric → margin; the main metric's first.
        limits: as asked.
        prefer: the order that was used; never ``auto``.
        figure: what was compared for it, for a sentence.
        candidates: every cell of the result, in its order.
        best: the highest mean of those that may be recommended.
        ranked: the acceptable ones, the recommended one first.
    """

    document: ResultDocument
    metric: str
    margins: Mapping[str, float]
    limits: tuple[Limit, ...]
    prefer: str
    figure: str
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    ranked: tuple[Candidate, ...]
    usd_per_hour: float | None = None

    @property
    def chosen(self) -> Candidate | None:
        """The recommended one; None where nothing is acceptable."""
        return self.ranked[0] if self.ranked else None

    @property
    def close(self) -> list[Candidate]:
        """Those not worse than the best by more than the margins, whatever the limits."""
        return [one for one in self.candidates if one.is_close]

    @property
    def nearest(self) -> Candidate | None:
        """Of the close ones, the one that is least beyond the limits it breaks."""

        def beyond(one: Candidate) -> tuple[float, int, float]:
            excess = max((limit.excess(value) for limit, value in one.broken), default=0.0)
            return excess, len(one.broken), -one.mean

        return min(self.close, key=beyond, default=None)

    @property
    def binding(self) -> list[Limit]:
        """The limits that every close candidate breaks."""
        broken = [{limit for limit, _ in one.broken} for one in self.close]
        return [limit for limit in self.limits if broken and all(limit in each for each in broken)]


def recommend(
    document: ResultDocument,
    *,
    limits: Sequence[Limit] = (),
    margins: Sequence[str] = (),
    metric: str | None = None,
    prefer: str = "auto",
    usd_per_hour: float | None = None,
) -> Recommendation:
    """Choose among the systems of ``document``.

    Args:
        limits: see :mod:`harness.limits`.
        margins: ``metric=number`` each, else those of the run; the main metric has :data:`DEFAULT_MARGIN`
            where none of them is its own.
        metric: that quality is judged by; the run's main metric without it.
        prefer: one of :data:`PREFER`.
        usd_per_hour: price of the machine; the run's without it.

    Raises:
        InvalidArgumentError: a metric that was not measured, a bad margin or price, or an unknown preference.
    """
    if prefer not in PREFER:
        raise InvalidArgumentError(f"--prefer {prefer!r}; accepted: {', '.join(PREFER)}")
    if usd_per_hour is not None and not 0 <= usd_per_hour < math.inf:
        raise InvalidArgumentError(f"--usd-per-hour {usd_per_hour:g}; accepted: a finite number from 0")
    metric = metric or main_metric(document)
    wanted = parse_margins(margins or document.spec.get("margins") or ())
    wanted = {metric: wanted.pop(metric, DEFAULT_MARGIN), **wanted}
    measured = metric_names(document)
    for name in wanted:
        if measured and name not in measured:
            raise InvalidArgumentError(f"{name} was not measured; the result holds {', '.join(measured)}")
    per_hour = usd_per_hour if usd_per_hour is not None else document.spec.get("usd_per_hour")
    candidates = [Candidate(row, _never(row)) for row in make_rows(document, metric)]
    best = max((one for one in candidates if not one.never), key=lambda one: one.mean, default=None)
    if best is not None:
        judged = _closeness(document, best, candidates, wanted)
        candidates = [
            replace(
                one,
                closeness=judged.get(one.row.cell.key.cell_id, ()),
                broken=tuple(
                    (limit, value)
                    for limit in limits
                    if not one.never and not limit.keeps(value := limit.figure.of(one.row))
                ),
            )
            for one in candidates
        ]
        best = next(one for one in candidates if one.row is best.row)
    acceptable = [one for one in candidates if one.is_acceptable]
    here = on_one_machine(document, *(one.row.cell for one in acceptable))
    order, figure, ranked = _ranked(acceptable, prefer, per_hour, here)
    return Recommendation(
        document, metric, wanted, tuple(limits), order, figure, tuple(candidates), best, ranked, per_hour
    )


def _never(row: Row) -> str:
    if not row.ok:
        return UNMEASURED if row.cell.status == "ok" else row.cell.reason or row.cell.status
    if row.doubt:
        return row.doubt
    if row.is_baseline:
        return BASELINE
    names = (row.cell.key.provider, row.cell.key.reranker)
    if any(_is_stand_in(name) for name in names):
        return STAND_IN
    return "" if row.cell.mean(row.main) else USELESS


def _is_stand_in(text: str) -> bool:
    try:
        name = SpecString.parse(text).name
    except RagCoreError:
        return False
    return name.startswith("fake") or name == "noop"


def _closeness(
    document: ResultDocument, best: Candidate, candidates: Sequence[Candidate], margins: Mapping[str, float]
) -> dict[str, tuple[Closeness, ...]]:
    """Cell id → how it stands to the best, one per margin."""
    seed = document.seed
    main = next(iter(margins))
    others = [one for one in candidates if not one.never and one is not best]
    # the cells that the verdict compares, in its order, so that both read the same resampling
    known = sorted(
        (one for one in candidates if one is not best and one.row.ok and not one.row.doubt),
        key=lambda one: -one.mean,
    )
    pairs = all_pairs([one.row.cell for one in (best, *known)], main, seed)
    own = best.row.cell.key.cell_id
    found: dict[str, dict[str, Difference | None]] = {
        main: {pair.other: pair.difference for pair in pairs if pair.better == own}
    }
    for name in margins:
        if name != main:
            gaps = differences([(best.row.cell, one.row.cell) for one in others], name, seed)
            found[name] = {one.row.cell.key.cell_id: gap for one, gap in zip(others, gaps)}
    out = {}
    for one in others:
        cell_id = one.row.cell.key.cell_id
        out[cell_id] = tuple(
            Closeness(
                name,
                margin,
                gap := found[name].get(cell_id),
                difference_verdict(gap, margin) if gap else OPEN,
            )
            for name, margin in margins.items()
        )
    return out


def _ranked(
    acceptable: Sequence[Candidate], prefer: str, usd_per_hour: float | None, is_one_machine: bool = True
) -> tuple[str, str, tuple[Candidate, ...]]:
    """The order used, the figure it compared, and ``acceptable`` by it, then by latency, cost and quality.

    Times of several machines are not compared: quality stands where latency or throughput would.
    """

    def latency(name: str) -> Callable[[Candidate], float | None]:
        return lambda one: one.row.speed(name)

    def cost(one: Candidate) -> float | None:
        return usd_per_1k(one.row, usd_per_hour)

    # one figure for all: a p50 must not be weighed against a p95
    timed = "p95" if all(one.row.speed("p95_s") is not None for one in acceptable) else "p50"
    orders: dict[str, tuple[str, Callable[[Candidate], float | None]]] = {
        "latency": (timed, latency(f"{timed}_s")),
        "cost": ("cost of 1,000 queries", cost),
        "memory": ("peak memory", latency("peak_rss_bytes")),
        "throughput": _throughput(acceptable),
        "quality": ("quality", lambda one: _negative(one.mean)),
    }
    if prefer == "auto":
        prefer = "cost" if any(cost(one) for one in acceptable) and _is_charged(acceptable) else "latency"
    if prefer in TIMED and not is_one_machine:
        prefer = "quality"
    figure, key = orders[prefer]
    then = ("latency", "cost", "quality") if is_one_machine else ("cost", "quality")
    keys = (key, *(orders[name][1] for name in then))

    def place(one: Candidate) -> tuple[float, ...]:
        return tuple(math.inf if (value := each(one)) is None else value for each in keys)

    return prefer, figure, tuple(sorted(acceptable, key=place))


def _throughput(acceptable: Sequence[Candidate]) -> tuple[str, Callable[[Candidate], float | None]]:
    """Queries a second at the most clients that all were asked by; else documents embedded a second."""

    def rates(one: Candidate) -> dict[int, float]:
        return {
            level["clients"]: level["queries_per_s"] for level in (one.row.cell.load or {}).get("levels", ())
        }

    shared = set.intersection(*(set(rates(one)) for one in acceptable)) if acceptable else set()
    if shared:
        most = max(shared)
        return f"queries/s with {most} clients", lambda one: _negative(rates(one)[most])
    return "documents/s", lambda one: _negative(one.row.speed("docs_per_s"))


def _is_charged(acceptable: Sequence[Candidate]) -> bool:
    """Whether somebody else charges for one of them; the hours of one's own machine follow its latency."""
    return any(used.get("is_paid") for one in acceptable for used in (one.row.cell.cost or {}).values())


def _negative(value: float | None) -> float | None:
    return None if value is None else -value

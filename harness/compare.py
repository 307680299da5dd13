"""Two results side by side: whether they may be compared, what changed, and whether the change is real."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.mismatch import (
    Mismatch,
    cell_mismatches,
    document_mismatches,
    machines_of,
    notes_of,
    other_machine,
    speed_mismatches,
)
from harness.noise import shift
from harness.results import CellResult, ResultDocument
from harness.rows import clean, labels, metric_names, paired

__all__ = [
    "CANNOT_BE_TOLD",
    "IMPROVED",
    "NOT_COMPARABLE",
    "OK",
    "REGRESSED",
    "SPEED",
    "CellPair",
    "Change",
    "Comparison",
    "Mismatch",
    "compare",
    "compare_clean",
    "speed_change",
    "worst",
]

OK, REGRESSED, IMPROVED = "ok", "regressed", "improved"
NOT_COMPARABLE, CANNOT_BE_TOLD = "not comparable", "cannot be told"

#: Figures of ``CellResult.speed`` that are compared → whether higher is better.
SPEED = {
    "p50_s": False,
    "p95_s": False,
    "p99_s": False,
    "docs_per_s": True,
    "tokens_per_s": True,
    "peak_rss_bytes": False,
}
PERCENTILES = {"p50_s": 50.0, "p95_s": 95.0, "p99_s": 99.0}
#: How far a figure moves between two runs of the same thing, which the samples within a run cannot show:
#: a change up to this says nothing. In 21 pairs of equal runs on two shared cores the largest changes were
#: 19 % of p50 and p95 and 1 % of memory; throughput, measured once and for less than a second, moved by
#: 12 to 93 %.
DRIFT = {"p50_s": 0.2, "p95_s": 0.2, "p99_s": 0.2, "docs_per_s": 0.25, "tokens_per_s": 0.25}
DRIFT |= {"peak_rss_bytes": 0.05}
#: A throughput that was measured for less than this long tells no change below a factor of two.
SHORT_S, SHORT_NOISE = 1.0, 1.0
#: A change of a quality mean up to this is rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one cell in both results.

    Attributes:
        name: a metric, or a key of :data:`SPEED`.
        old, new: the figures; None where one is missing.
        delta: new minus old; for a metric over the queries that both have a value for.
        relative: delta over old; None where old is 0.
        low, high: 95 % interval of ``delta`` for a metric, of ``relative`` for a percentile.
        p_value: of a metric, Holm-corrected over the cells.
        noise: relative spread below which a change of speed says nothing; None for metrics.
        verdict: ``ok``, ``regressed``, ``improved`` or ``cannot be told``.
    """

    name: str
    old: float | None
    new: float | None
    delta: float | None = None
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    noise: float | None = None
    verdict: str = OK

    @property
    def is_speed(self) -> bool:
        """Whether this is a figure of speed or memory rather than of quality."""
        return self.name in SPEED

    @property
    def missing(self) -> str:
        """Which result lacks the figure: ``old``, ``new`` or nothing."""
        return "old" if self.old is None else "new" if self.new is None else ""

    @property
    def reported(self) -> bool:
        """Quality beyond rounding, speed beyond noise, and what is missing in one of both."""
        if self.missing:
            return True
        if self.is_speed:
            return self.verdict in (REGRESSED, IMPROVED)
        return abs(self.delta or 0.0) > ROUNDING


@dataclass(frozen=True, slots=True)
class CellPair:
    """A cell that stands in both results.

    ``machines`` names those of a pair that was not measured on one: its times are not compared.
    """

    label: str
    old: CellResult
    new: CellResult
    mismatches: tuple[Mismatch, ...] = ()
    changes: tuple[Change, ...] = ()
    machines: str = ""

    @property
    def verdict(self) -> str:
        """``not comparable``, a lost or gained measurement, else the worst of the changes."""
        if self.mismatches:
            return NOT_COMPARABLE
        if self.old.status != self.new.status and "ok" in (self.old.status, self.new.status):
            return REGRESSED if self.old.status == "ok" else IMPROVED
        return worst(change.verdict for change in self.changes if change.reported)

    def change(self, name: str) -> Change | None:
        """The change of the figure ``name``."""
        return next((change for change in self.changes if change.name == name), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results side by side.

    Attributes:
        old, new: what the results call themselves: data set and time.
        mismatches: fields of the whole results that forbid any comparison.
        speed_mismatches: fields that forbid comparing times and memory.
        cells: cells in both.
        only_old, only_new: labels of cells in one only; they enter no figure.
        only_old_measured: those of ``only_old`` that had been measured.
        notes: other differences worth knowing, such as versions of packages.
    """

    old: str
    new: str
    mismatches: tuple[Mismatch, ...] = ()
    speed_mismatches: tuple[Mismatch, ...] = ()
    cells: tuple[CellPair, ...] = ()
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    only_old_measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """``not comparable`` when that holds for the whole, for a cell, or when no cell is in both."""
        if self.mismatches or not self.cells:
            return NOT_COMPARABLE
        return worst(pair.verdict for pair in self.cells)


def worst(verdicts: Iterable[str]) -> str:
    """The verdict that a reader must hear of first; ``ok`` of none."""
    found = set(verdicts)
    order = (NOT_COMPARABLE, REGRESSED, IMPROVED, CANNOT_BE_TOLD)
    return next((verdict for verdict in order if verdict in found), OK)


def compare(old: ResultDocument, new: ResultDocument, *, allow_other_machine: bool = False) -> Comparison:
    """Compare ``new`` with ``old``. Figures are paired by query; a missing one is never averaged away.

    ``allow_other_machine``: compare times and memory although the machines differ; the notes say so.
    """
    return compare_clean(clean(old), clean(new), allow_other_machine=allow_other_machine)


def compare_clean(
    old: ResultDocument,
    new: ResultDocument,
    *,
    metrics: Sequence[str] | None = None,
    speed: Sequence[str] = tuple(SPEED),
    allow_other_machine: bool = False,
) -> Comparison:
    """:func:`compare` for documents that :func:`harness.rows.clean` has made, and only these figures.

    ``metrics``: None for all that were measured.
    """
    pairs, only_old, only_new = _match(old.cells, new.cells)
    old_names, new_names = labels([c.key for c in old.cells]), labels([c.key for c in new.cells])
    cells = tuple(
        CellPair(
            new_names[b.key.cell_id],
            a,
            b,
            tuple(cell_mismatches(a, b)),
            machines="" if allow_other_machine else machines_of(a, old, b, new),
        )
        for a, b in pairs
    )
    made = Comparison(
        old=f"{old.name} of {old.created}",
        new=f"{new.name} of {new.created}",
        mismatches=tuple(document_mismatches(old, new)),
        speed_mismatches=() if allow_other_machine else tuple(speed_mismatches(old, new)),
        cells=cells,
        only_old=tuple(old_names[cell.key.cell_id] for cell in only_old),
        only_new=tuple(new_names[cell.key.cell_id] for cell in only_new),
        only_old_measured=tuple(old_names[cell.key.cell_id] for cell in only_old if cell.status == "ok"),
        notes=(
            *notes_of(old, new),
            *(other_machine(old, new) if allow_other_machine else ()),
            *(f"{one.label}: its times are not compared: {one.machines}" for one in cells if one.machines),
        ),
    )
    if made.mismatches:
        return made
    names = list(dict.fromkeys([*metric_names(old), *metric_names(new)])) if metrics is None else metrics
    seed = new.seed
    return replace(made, cells=_with_changes(made, names, speed, seed))


Pair = tuple[CellResult, CellResult]


def _match(
    old: Sequence[CellResult], new: Sequence[CellResult]
) -> tuple[list[Pair], list[CellResult], list[CellResult]]:
    """Pairs of the same key; a cell that failed before its dtype was known meets the one that has it."""
    rest_old, rest_new = list(old), list(new)
    pairs: list[Pair] = []
    for same in (_same_key, _same_but_dtype):
        for a in list(rest_old):
            b = next((b for b in rest_new if same(a, b)), None)
            if b is not None:
                pairs.append((a, b))
                rest_old.remove(a)
                rest_new.remove(b)
    order = {id(cell): place for place, cell in enumerate(new)}
    return sorted(pairs, key=lambda pair: order[id(pair[1])]), rest_old, rest_new


def _same_key(a: CellResult, b: CellResult) -> bool:
    # the data set's name is no part of what is compared: its hashes are
    return a.key.cell_id == b.key.cell_id


def _same_but_dtype(a: CellResult, b: CellResult) -> bool:
    unknown = any(cell.status != "ok" and cell.key.dtype == "-" for cell in (a, b))
    return unknown and replace(a.key, dtype="-").cell_id == replace(b.key, dtype="-").cell_id


def _with_changes(
    made: Comparison, names: Sequence[str], speed: Sequence[str], seed: int
) -> tuple[CellPair, ...]:
    found: list[list[Change]] = [[] for _ in made.cells]
    usable = [
        place
        for place, pair in enumerate(made.cells)
        if not pair.mismatches and pair.old.status == pair.new.status == "ok"
    ]
    for name in names:
        for place, change in zip(usable, _quality([made.cells[i] for i in usable], name, seed)):
            if change is not None:
                found[place].append(change)
    if not made.speed_mismatches:
        for place in usable:
            pair = made.cells[place]
            if pair.machines:
                continue
            found[place] += [c for name in speed if (c := speed_change(pair.old, pair.new, name, seed))]
    return tuple(replace(pair, changes=tuple(changes)) for pair, changes in zip(made.cells, found))


def _quality(pairs: Sequence[CellPair], name: str, seed: int) -> list[Change | None]:
    """The change of a metric in each cell, tested together."""
    lists = [
        tuple(cell.metrics[name].per_query if name in cell.metrics else [] for cell in (pair.new, pair.old))
        for pair in pairs
    ]
    out: list[Change | None] = []
    for pair, found in zip(pairs, paired([(a, b) for a, b in lists], seed)):
        old, new = pair.old.mean(name), pair.new.mean(name)
        if old is None and new is None:
            out.append(None)
        elif old is None or new is None:
            out.append(Change(name, old, new, verdict=CANNOT_BE_TOLD))
        elif found is None:
            delta = new - old
            verdict = CANNOT_BE_TOLD if abs(delta) > ROUNDING else OK
            out.append(Change(name, old, new, delta, _ratio(delta, old), verdict=verdict))
        else:
            verdict = OK if abs(found.mean) <= ROUNDING else CANNOT_BE_TOLD
            if verdict != OK and found.sure:
                verdict = IMPROVED if found.mean > 0 else REGRESSED
            relative = _ratio(found.mean, old)
            out.append(
                Change(
                    name, old, new, found.mean, relative, found.low, found.high, found.adjusted, None, verdict
                )
            )
    return out


def _measured_s(cell: CellResult) -> float:
    """Seconds that the throughput of ``cell`` was measured for."""
    return cell.speed.get("embed_s") or cell.speed.get("build_s") or 0.0


def _ratio(delta: float, old: float) -> float | None:
    return delta / old if old else None


def speed_change(old: CellResult, new: CellResult, name: str, seed: int) -> Change | None:
    """The change of a key of :data:`SPEED`, judged against what two runs alone can tell of noise."""
    a, b = old.speed.get(name), new.speed.get(name)
    if a is None and b is None:
        return None
    if a is None or b is None:
        return Change(name, a, b, verdict=CANNOT_BE_TOLD)
    noise = DRIFT[name]
    if name.endswith("_per_s") and min(_measured_s(old), _measured_s(new)) < SHORT_S:
        noise = SHORT_NOISE
    made = Change(name, a, b, b - a, _ratio(b - a, a), noise=noise)
    beyond = made.relative is not None and abs(made.relative) > noise
    if name in PERCENTILES:
        # without failures, sample i of both results timed the same query in the same round
        aligned = not old.counts.get("n_failed") and not new.counts.get("n_failed")
        found = shift(old.total_s, new.total_s, PERCENTILES[name], aligned=aligned, seed=seed)
        if found is None:
            return replace(made, noise=None, verdict=CANNOT_BE_TOLD)
        made = replace(made, low=found.low, high=found.high, noise=max(noise, found.noise))
        beyond = beyond and found.beyond_noise
    if not beyond:
        return replace(made, verdict=OK if made.delta == 0 else CANNOT_BE_TOLD)
    better = (b > a) == SPEED[name]
    return replace(made, verdict=IMPROVED if better else REGRESSED)

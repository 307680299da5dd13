"""What tables are made of: one row per cell, with its distance from the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from harness.differences import SURE, Difference, paired
from harness.naming import short_label
from harness.parity import DIFFERS
from harness.results import CellKey, CellResult, MetricResult, ResultDocument

__all__ = [
    "MAIN_METRIC",
    "SURE",
    "UNTAGGED",
    "Difference",
    "Row",
    "Stratum",
    "clean",
    "difference",
    "differences",
    "doubt",
    "labels",
    "main_metric",
    "make_rows",
    "metric_names",
    "once",
    "paired",
    "strata",
    "strata_places",
    "winner",
]

MAIN_METRIC = "ndcg@10"
NONE = "-"
T = TypeVar("T")
#: Tag value of queries that lack the tag.
UNTAGGED = "(none)"


@dataclass(frozen=True, slots=True)
class Row:
    """One cell as the tables show it.

    Attributes:
        cell: the cell, its numbers finite or None.
        label: shortest name that no other cell of the result has.
        main: the metric that the table sorts and compares by.
        versus: difference of ``main`` from the baseline; None for the baseline itself, without one, or
            where there is nothing to compare.
        headline: mean of ``main`` over the headline queries.
        headline_n: how many of them were judged.
        doubt: why the cell is marked and never the winner: its vectors or results differ from the
            reference of its model, or change with their neighbours; empty for all others.
    """

    cell: CellResult
    label: str
    main: str
    is_baseline: bool = False
    is_winner: bool = False
    versus: Difference | None = None
    headline: float | None = None
    headline_n: int = 0
    doubt: str = ""

    @property
    def ok(self) -> bool:
        """Whether the cell was judged and has a value of the main metric."""
        return self.cell.status == "ok" and self.cell.mean(self.main) is not None

    @property
    def score(self) -> MetricResult | None:
        """The main metric."""
        return self.cell.metrics.get(self.main)

    def speed(self, name: str) -> float | None:
        """A figure of ``cell.speed``; None where it was not measured."""
        return self.cell.speed.get(name)


class _Clean(ResultDocument):
    """What :func:`clean` made: the functions that a report calls neither clean nor judge it again."""

    __slots__ = ("made",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: dict[Hashable, Any] = {}


def clean(document: ResultDocument) -> ResultDocument:
    """A copy with plain numbers only: what is not a number or infinite is None, as in the file.

    A copy that this function made is given back as it is; nothing after it may change it.
    """
    return document if isinstance(document, _Clean) else _Clean.from_dict(document.as_dict())


def once(document: ResultDocument, name: Hashable, make: Callable[[], T]) -> T:
    """``make()``; of a clean document, which never changes, what the first call with ``name`` made.

    The caller may not change it either.
    """
    if not isinstance(document, _Clean):
        return make()
    if name not in document.made:
        document.made[name] = make()
    made: T = document.made[name]
    return made


def metric_names(document: ResultDocument) -> list[str]:
    """Every metric of the run: in the order of its settings, others after them."""
    measured = dict.fromkeys(name for cell in document.cells for name in cell.metrics)
    asked = [name for name in document.spec.get("metrics", ()) if isinstance(name, str)]
    return list(dict.fromkeys([*asked, *measured]))


def main_metric(document: ResultDocument) -> str:
    """``ndcg@10``, or the run's first metric where that was not asked for."""
    names = metric_names(document)
    return MAIN_METRIC if MAIN_METRIC in names or not names else names[0]


def labels(keys: Sequence[CellKey]) -> dict[str, str]:
    """Cell id → ``e5-small · hybrid``, with target, dtype or store only where they tell cells apart."""
    names: dict[str, str] = {}
    base = {key.cell_id: short_label(key) for key in keys}
    named: dict[str, set[tuple[str, str]]] = {}
    for key in keys:
        named.setdefault(base[key.cell_id], set()).add((key.provider, key.reranker))
    for key in keys:
        if len(named[base[key.cell_id]]) > 1:  # two folders end alike
            base[key.cell_id] = short_label(key, is_whole=True)
    for key in keys:
        twins = [other for other in keys if base[other.cell_id] == base[key.cell_id]]
        more = [
            getattr(key, name)
            for name in ("target", "dtype", "store")
            if len({getattr(twin, name) for twin in twins}) > 1
        ]
        names[key.cell_id] = f"{base[key.cell_id]} ({', '.join(more)})" if more else base[key.cell_id]
    return names


def make_rows(document: ResultDocument, metric: str | None = None) -> list[Row]:
    """One row per cell in the order of the document."""
    document = clean(document)
    main = metric or main_metric(document)
    return list(once(document, ("rows", main), lambda: _made_rows(document, main)))


def _made_rows(document: ResultDocument, main: str) -> list[Row]:
    names = labels([cell.key for cell in document.cells])
    query_ids = _query_ids(document)
    places = [query_ids.index(q) for q in document.dataset.get("headline", ()) if q in set(query_ids)]
    rows = []
    for cell in document.cells:
        values = _values(cell, main)
        picked = [values[i] for i in places if i < len(values)]
        known = [value for value in picked if value is not None]
        rows.append(
            Row(
                cell,
                names[cell.key.cell_id],
                main,
                is_baseline=cell.key.cell_id == document.baseline,
                # a mean over some of the five would be another figure under the same name
                headline=_mean(known) if len(known) == len(places) else None,
                headline_n=len(known),
                doubt=doubt(cell.key, document.parity),
            )
        )
    return _mark_winner(_with_baseline(rows, document.seed))


def _with_baseline(rows: list[Row], seed: int) -> list[Row]:
    baseline = next((row for row in rows if row.is_baseline and row.ok), None)
    if baseline is None:
        return rows
    others = [place for place, row in enumerate(rows) if row.ok and row is not baseline]
    found = differences([(rows[place].cell, baseline.cell) for place in others], rows[0].main, seed)
    out = list(rows)
    for place, versus in zip(others, found):
        out[place] = replace(rows[place], versus=versus)
    return out


def doubt(key: CellKey, parity: Iterable[Mapping[str, Any]]) -> str:
    """Why the ``parity`` entries mark the embedder or the reranker of ``key``; empty where none does."""
    reasons = []
    for entry in parity:
        place = (key.provider, key.target) if entry.get("kind") == "embedder" else (key.reranker,)
        named = (entry.get("provider"), entry.get("target"))[: len(place)]
        if entry.get("verdict") == DIFFERS and place == named:
            reasons.append(str(entry.get("reason") or DIFFERS))
    return "; ".join(reasons)


def winner(rows: Iterable[Row]) -> Row | None:
    """The row with the highest main metric that nothing speaks against; of equal ones the first."""
    best: Row | None = None
    for row in rows:
        if row.ok and not row.doubt and (best is None or _known(row) > _known(best)):
            best = row
    return best


def _known(row: Row) -> float:
    mean = row.cell.mean(row.main)
    return -math.inf if mean is None else mean


def _mark_winner(rows: list[Row]) -> list[Row]:
    best = winner(rows)
    return [replace(row, is_winner=row is best) for row in rows]


def difference(a: CellResult, b: CellResult, metric: str, seed: int = 0) -> Difference | None:
    """``a`` minus ``b``, paired by query; None where they share no query with two values."""
    return differences([(a, b)], metric, seed)[0]


def differences(
    pairs: Sequence[tuple[CellResult, CellResult]], metric: str, seed: int = 0
) -> list[Difference | None]:
    """:func:`difference` of each pair, their p values corrected together (Holm)."""
    return paired([(_values(a, metric), _values(b, metric)) for a, b in pairs], seed)


@dataclass(frozen=True, slots=True)
class Stratum:
    """The queries of one tag value: how many were judged, and each cell's mean on them."""

    value: str
    n: int
    means: Mapping[str, float | None] = field(default_factory=dict)


def strata(document: ResultDocument, tag: str, metric: str) -> list[Stratum]:
    """The judged queries by the value of ``tag``, sorted by value; empty when no query has the tag.

    A cell's mean is None where one of its values is missing.
    """
    document = clean(document)
    out = []
    for value, places in strata_places(document, tag).items():
        means: dict[str, float | None] = {}
        for cell in document.cells:
            values = _values(cell, metric)
            known = [values[i] for i in places if i < len(values)]
            means[cell.key.cell_id] = _mean([v for v in known if v is not None], len(places))
        out.append(Stratum(value, len(places), means))
    return out


def strata_places(document: ResultDocument, tag: str) -> dict[str, list[int]]:
    """Value of ``tag`` → places of its judged queries, sorted by value, untagged ones last.

    Empty when no judged query has the tag.
    """
    tags: Mapping[str, Mapping[str, object]] = document.dataset.get("query_tags", {})
    groups: dict[str, list[int]] = {}
    for place, query_id in enumerate(_query_ids(document)):
        value = tags.get(query_id, {}).get(tag)
        groups.setdefault(UNTAGGED if value is None else str(value), []).append(place)
    if set(groups) <= {UNTAGGED}:
        return {}
    return dict(sorted(groups.items(), key=lambda item: (item[0] == UNTAGGED, item[0])))


def _values(cell: CellResult, metric: str) -> list[float | None]:
    found = cell.metrics.get(metric)
    if cell.status != "ok" or found is None or found.mean is None:
        return []
    return found.per_query


def _mean(values: Sequence[float], expected: int | None = None) -> float | None:
    if not values or (expected is not None and len(values) != expected):
        return None
    return math.fsum(values) / len(values)


def _query_ids(document: ResultDocument) -> list[str]:
    return list(document.dataset.get("query_ids", ()))

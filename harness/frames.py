"""A result as tables to go on with: one row per cell, or one per cell and query.

``cells``: the columns of ``cells.csv``. ``queries``: the cell's key, ``system`` (its short name),
``query_id``, every metric by its name, the query's tags as ``tag_NAME`` and its shared words as
``overlap_NAME`` (values of :class:`harness.overlap.Overlap`); judged queries of measured cells only.
Units are told by the names: ``_s`` seconds, ``_bytes`` bytes, ``_per_s`` per second; metrics, differences
and shares are fractions, a metric's between 0 and 1. Text columns hold strings, all others float64; what was
not measured is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.results import CellKey, ResultDocument
from harness.rows import clean, labels, make_rows, metric_names
from harness.tables import KEY_COLUMNS, MARK_COLUMN, header, records
from rag_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas

__all__ = ["ROWS", "Table", "cell_table", "query_table", "table", "to_frame", "unit"]

#: What a row of a table may stand for.
ROWS = ("cells", "queries")
MORE = ("headline", "delta", "delta_low", "delta_high", "p_corrected", "reason")
TEXT = {*KEY_COLUMNS, MARK_COLUMN, "reason", "system", "query_id"}
TAG, OVERLAP = "tag_", "overlap_"


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns of equal length: texts (str or None) or figures (float or None)."""

    columns: dict[str, list[Any]]

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(next(iter(self.columns.values()), []))

    @property
    def lines(self) -> list[list[Any]]:
        """The rows."""
        return [list(line) for line in zip(*self.columns.values())]


def is_text(column: str) -> bool:
    """Whether a column holds strings."""
    return column in TEXT or column.startswith(TAG)


def unit(column: str) -> str:
    """The unit of a column of figures; empty for texts."""
    if is_text(column):
        return ""
    for end, name in (("_per_s", "1/s"), ("_s", "s"), ("_bytes", "byte"), ("words", "1"), ("shared", "1")):
        if column.endswith(end):
            return name
    return "fraction"


def table(document: ResultDocument, rows: str = "cells") -> Table:
    """The table whose rows are ``cells`` or ``queries``.

    Raises:
        InvalidArgumentError: other rows.
    """
    makers: dict[str, Callable[[ResultDocument], Table]] = dict(zip(ROWS, (cell_table, query_table)))
    if rows not in makers:
        raise InvalidArgumentError(f"rows {rows!r}; accepted: {', '.join(ROWS)}")
    return makers[rows](document)


def cell_table(document: ResultDocument) -> Table:
    """One row per cell: the columns of ``bench show``, each metric's interval, distance from the baseline.

    ``headline`` is the main metric's mean over the headline queries; ``delta`` … ``p_corrected`` the main
    metric's difference from the baseline, its 95 % interval and Holm-corrected p value.
    """
    bounds = [(name, end) for name in metric_names(document) for end in ("low", "high")]
    names = [*header(document), *(f"{name}_{end}" for name, end in bounds), *MORE]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row, record in zip(make_rows(document), records(document)):
        found = row.versus
        line = {
            **record,
            **{f"{m}_{end}": getattr(row.cell.metrics.get(m), end, None) for m, end in bounds},
            "headline": row.headline,
            "reason": row.cell.reason,
        }
        if found is not None:
            values = (found.mean, found.low, found.high, found.adjusted)
            line |= dict(zip(("delta", "delta_low", "delta_high", "p_corrected"), values))
        for name, column in columns.items():
            column.append(line.get(name))
    return Table(columns)


def query_table(document: ResultDocument) -> Table:
    """One row per measured cell and judged query, in the order of the document and of its query ids."""
    document = clean(document)
    metrics = metric_names(document)
    ids = [str(query_id) for query_id in document.dataset.get("query_ids", ())]
    names = labels([cell.key for cell in document.cells])
    about = _about_queries(document, ids)
    keys = list(CellKey.__slots__)
    columns: dict[str, list[Any]] = {name: [] for name in [*keys, "system", "query_id", *metrics, *about]}
    for cell in document.cells:
        if cell.status != "ok":
            continue
        for name in keys:
            columns[name] += [getattr(cell.key, name)] * len(ids)
        columns["system"] += [names[cell.key.cell_id]] * len(ids)
        columns["query_id"] += ids
        for metric in metrics:
            found = cell.metrics.get(metric)
            values = found.per_query[: len(ids)] if found else []
            columns[metric] += [*values, *[None] * (len(ids) - len(values))]
        for name, values in about.items():
            columns[name] += values
    return Table(columns)


def _about_queries(document: ResultDocument, ids: list[str]) -> dict[str, list[Any]]:
    """Tags as texts and overlaps as figures, in the order of ``ids``."""
    out: dict[str, list[Any]] = {}
    for part, prefix in (("query_tags", TAG), ("query_overlap", OVERLAP)):
        known: Mapping[str, Mapping[str, Any]] = document.dataset.get(part) or {}
        names = dict.fromkeys(name for query_id in ids for name in known.get(query_id, {}))
        for name in names:
            values = [known.get(query_id, {}).get(name) for query_id in ids]
            if prefix == TAG:
                values = [None if value is None else str(value) for value in values]
            out[prefix + name] = values
    return out


def to_frame(document: ResultDocument, rows: str = "cells") -> pandas.DataFrame:
    """:func:`table` as a pandas DataFrame: texts as they are, figures float64 with NaN where there is none.

    Raises:
        InvalidArgumentError: other rows.
        MissingExtraError: pandas is not installed.
    """
    from rag_core.extras import require

    made = table(document, rows)
    pandas = require("a data frame", "pandas", "frames")
    return pandas.DataFrame(
        {
            name: pandas.Series(values, dtype="object" if is_text(name) else "float64")
            for name, values in made.columns.items()
        }
    )

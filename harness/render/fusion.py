"""``report.md``, "Fusion": each hybrid row, its legs, and the better leg of each query as the ceiling."""

from __future__ import annotations

from collections.abc import Sequence

from harness.differences import Difference
from harness.fusion_rows import FusionRow, fusion_rows
from harness.render.blocks import escape
from harness.render.format import MISSING, score, with_bounds
from harness.results import ResultDocument
from harness.rows import Row
from harness.tables import pipe_table

__all__ = ["fusion"]

NOTE = (
    "\nΔ: fusion minus what stands before it, paired by query, with a 95 % bootstrap interval. Better leg of "
    "each query: what choosing the right leg every time would reach; fusion passes it only where both legs "
    "together find what neither ranks high alone.\n"
)


def fusion(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """The section; empty where no hybrid row has both legs. Rows with one leg measured are left out."""
    found = [
        one
        for one in fusion_rows(rows, metric, document.seed)
        if one.worse is not None and one.to_better is not None
    ]
    if not found:
        return ""
    columns = ["system", "fusion", "better leg", "Δ", "worse leg", "Δ", "better leg of each query", "Δ"]
    body = [_fields(one) for one in found]
    warned = "".join(
        f"\n**{escape(one.row.label)} is worse than its better leg, and surely so: take "
        f"{escape(one.better.label)}.**\n"
        for one in found
        if one.lost
    )
    return "## Fusion\n\n" + pipe_table(columns, body, numeric=len(columns) - 1) + NOTE + warned


def _fields(one: FusionRow) -> list[str]:
    worse = f"{one.worse.label} {_mean(one.worse)}" if one.worse else MISSING
    return [
        one.row.label,
        _mean(one.row),
        f"{one.better.label} {_mean(one.better)}",
        _gap(one.to_better),
        worse,
        _gap(one.to_worse),
        score(one.oracle),
        _gap(one.to_oracle),
    ]


def _mean(row: Row) -> str:
    return score(row.cell.mean(row.main))


def _gap(found: Difference | None) -> str:
    return with_bounds(found.mean, found.low, found.high) if found else MISSING

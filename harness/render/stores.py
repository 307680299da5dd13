"""The section of ``report.md`` on vector stores: what each finds of the exact answer, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

from harness.render.blocks import median_s
from harness.render.format import milliseconds, score, seconds
from harness.rows import Row
from harness.tables import pipe_table

__all__ = ["stores"]


def stores(rows: Sequence[Row]) -> str:
    """A line for each embedder in each store; nothing where all rows are of the exact store."""
    first: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = row.cell.key
        if row.cell.status == "ok" and row.speed("store_write_s") is not None:
            first.setdefault((key.provider, key.target, key.dtype, key.store), row)
    if not any(row.speed("store_recall_at_10") is not None for row in first.values()):
        return ""
    body = [
        [
            f"{provider} ({target}, {dtype})",
            store,
            score(1.0 if row.speed("store_recall_at_10") is None else row.speed("store_recall_at_10")),
            seconds(row.speed("store_write_s")),
            milliseconds(median_s(row, "vector")),
        ]
        for (provider, target, dtype, store), row in first.items()
    ]
    columns = ["embedder", "store", "recall@10 of the exact search", "write s", "median search ms"]
    return "## Vector stores\n\n" + pipe_table(columns, body, numeric=3)

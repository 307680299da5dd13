"""``cells.csv``: one line per cell, for spreadsheets. Full precision; empty where there is no figure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from harness.render.strata import CSV_FILE, strata_csv
from harness.results import ResultDocument, write_atomic
from harness.rows import main_metric, make_rows, metric_names
from harness.tables import header, records

__all__ = ["FILE", "render", "write"]

FILE = "cells.csv"
MORE = ("headline", "delta", "delta_low", "delta_high", "p_corrected", "reason")


def render(document: ResultDocument) -> str:
    """The columns of ``bench show``, each metric's interval, then the difference from the baseline.

    ``headline`` is the main metric's mean over the headline queries; ``delta`` … ``p_corrected`` the main
    metric's difference from the baseline, its 95 % interval and Holm-corrected p value.
    """
    metrics = metric_names(document)
    columns = header(document)
    bounds = [f"{name}_{end}" for name in metrics for end in ("low", "high")]
    buffer = io.StringIO()
    out = csv.writer(buffer, lineterminator="\n")
    out.writerow([*columns, *bounds, *MORE])
    for row, record in zip(make_rows(document), records(document)):
        found = row.versus
        out.writerow(
            [
                *(record[name] for name in columns),
                *(
                    getattr(row.cell.metrics.get(name), end, None)
                    for name in metrics
                    for end in ("low", "high")
                ),
                row.headline,
                *((found.mean, found.low, found.high, found.adjusted) if found else [None] * 4),
                row.cell.reason,
            ]
        )
    return buffer.getvalue()


def write(document: ResultDocument, folder: Path) -> list[Path]:
    """Write ``cells.csv`` into ``folder``, and ``strata.csv`` where the queries fall into parts."""
    path = folder / FILE
    write_atomic(path, render(document))
    parts = strata_csv(document, make_rows(document), main_metric(document))
    if not parts:
        return [path]
    write_atomic(folder / CSV_FILE, parts)
    return [path, folder / CSV_FILE]

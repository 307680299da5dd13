"""``cells.csv``: one line per cell, for spreadsheets. Full precision; empty where there is no figure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from harness.frames import Table, cell_table
from harness.render.strata import CSV_FILE, strata_csv
from harness.results import ResultDocument, write_atomic
from harness.rows import main_metric, make_rows

__all__ = ["FILE", "as_csv", "render", "write"]

FILE = "cells.csv"


def as_csv(table: Table) -> str:
    """``table`` with a line of names first, as the csv module quotes it."""
    buffer = io.StringIO()
    out = csv.writer(buffer, lineterminator="\n")
    out.writerow(table.columns)
    out.writerows(table.lines)
    return buffer.getvalue()


def render(document: ResultDocument) -> str:
    """The columns of :func:`harness.frames.cell_table`."""
    return as_csv(cell_table(document))


def write(document: ResultDocument, folder: Path) -> list[Path]:
    """Write ``cells.csv`` into ``folder``, and ``strata.csv`` where the queries fall into parts."""
    path = folder / FILE
    write_atomic(path, render(document))
    parts = strata_csv(document, make_rows(document), main_metric(document))
    if not parts:
        return [path]
    write_atomic(folder / CSV_FILE, parts)
    return [path, folder / CSV_FILE]

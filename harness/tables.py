"""One row per cell: for scripts as TSV, JSON or markdown, for people as a table in the terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from harness.render.format import interval, megabytes, milliseconds, number, rate, score, signed
from harness.results import CellKey, ResultDocument
from harness.rows import Row, clean, doubt, make_rows, metric_names
from harness.summary import metric_title, reasons
from rag_core.errors import InvalidArgumentError

__all__ = ["KEY_COLUMNS", "SPEED_COLUMNS", "pipe_table", "records", "show", "terminal_table"]

KEY_COLUMNS = ("data", "provider", "target", "dtype", "store", "pipeline", "reranker", "fusion", "status")
SPEED_COLUMNS = ("p50_s", "p95_s", "docs_per_s", "peak_rss_bytes")
#: Last column where a cell is marked, and the mark itself, in the terminal's first column too.
MARK_COLUMN, MARK = "mark", "!"
#: What the columns of figures need beside a system's name folded to a few characters.
NARROWEST = 72
#: From this width on columns stand two blanks apart.
ROOMY = 96


def records(document: ResultDocument) -> list[dict[str, Any]]:
    """One dict per cell: :data:`KEY_COLUMNS`, each metric by its name, :data:`SPEED_COLUMNS`.

    Where a cell is not to be recommended, all have ``mark`` too: ``!`` of such a cell, None elsewhere.
    """
    document = clean(document)
    names = metric_names(document)
    out = []
    for cell in document.cells:
        record: dict[str, Any] = {name: getattr(cell.key, name) for name in CellKey.__slots__}
        record["status"] = cell.status
        record |= {name: cell.mean(name) for name in names}
        record |= {name: cell.speed.get(name) for name in SPEED_COLUMNS}
        out.append(record)
    if _is_marked(document):  # scripts rely on the columns of a result without marks
        for cell, record in zip(document.cells, out):
            record[MARK_COLUMN] = MARK if doubt(cell.key, document.parity) else None
    return out


def _is_marked(document: ResultDocument) -> bool:
    return any(doubt(cell.key, document.parity) for cell in document.cells)


def header(document: ResultDocument) -> list[str]:
    """The column names that scripts rely on."""
    names = [*KEY_COLUMNS, *metric_names(document), *SPEED_COLUMNS]
    return [*names, MARK_COLUMN] if _is_marked(document) else names


def show(document: ResultDocument, format: str = "tsv") -> str:
    """The rows as ``tsv``, ``json`` or ``md``, ending in a newline.

    Raises:
        InvalidArgumentError: another format.
    """
    makers: dict[str, Callable[[ResultDocument], str]] = {"tsv": _tsv, "json": _json, "md": _md}
    if format not in makers:
        raise InvalidArgumentError(f"format {format!r}; accepted: {', '.join(makers)}")
    return makers[format](document)


def _tsv(document: ResultDocument) -> str:
    columns = header(document)
    lines = ["\t".join(columns)]
    lines += ["\t".join(_field(record[name]) for name in columns) for record in records(document)]
    return "\n".join(lines) + "\n"


def _field(value: Any) -> str:
    """A TSV field: empty for null, no tab or line break inside."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, (int, float)) else " ".join(str(value).split())


def _json(document: ResultDocument) -> str:
    return json.dumps(records(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _md(document: ResultDocument) -> str:
    columns = header(document)
    body = [
        [number(v) if v is None or isinstance(v, (int, float)) else v for v in (r[c] for c in columns)]
        for r in records(document)
    ]
    return pipe_table(columns, body, numeric=len(columns) - len(KEY_COLUMNS))


def pipe_table(columns: Sequence[str], body: Sequence[Sequence[str]], numeric: int = 0) -> str:
    """A markdown table; the last ``numeric`` columns are set right. Ends in a newline."""
    marks = ["---"] * (len(columns) - numeric) + ["---:"] * numeric
    lines = [columns, marks, *body]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n"
        for line in lines
    )


def terminal_table(document: ResultDocument, width: int = 80) -> str:
    """The table for people, whole within ``width`` columns (72 at least); ends in a newline.

    The highest main metric is marked with ``*``, what is not recommended with ``!``. Cells that failed
    or could not run stand in the table and, with their reason wrapped, below it.
    """
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = max(width, NARROWEST)
    rows = make_rows(document)
    title = metric_title(rows[0].main) if rows else metric_title("ndcg@10")
    gap = 1 if width >= ROOMY else 0  # beside the box's own column of blanks
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", width=1)
    table.add_column("system", overflow="fold", min_width=8)
    table.add_column(title, justify="right", no_wrap=True)
    for name in ("95 %", "Δ base", "p50 ms", "p95 ms", "docs/s", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(text) for text in _terminal_fields(row)))
    # a buffer, never the terminal: no colours, no cursor movement, the same text everywhere
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, legacy_windows=False, no_color=True).print(table)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    lines += _legend(rows, width)
    return "\n".join(lines) + "\n"


def _terminal_fields(row: Row) -> list[str]:
    found = row.score if row.ok else None
    if row.cell.status != "ok":
        measured = [row.cell.status, ""]
    elif found is None:
        measured = [score(None), ""]
    else:
        measured = [score(found.mean), interval(found.low, found.high)]
    versus = "base" if row.is_baseline else signed(row.versus.mean) if row.versus else score(None)
    return [
        MARK if row.doubt else "*" if row.is_winner else "",
        row.label,
        *measured,
        versus,
        milliseconds(row.speed("p50_s")),
        milliseconds(row.speed("p95_s")),
        rate(row.speed("docs_per_s")),
        megabytes(row.speed("peak_rss_bytes")),
    ]


def _legend(rows: Sequence[Row], width: int) -> list[str]:
    lines = []
    if any(row.is_winner for row in rows):
        lines.append("* highest; Δ base: difference from the baseline")
    doubts: dict[str, list[str]] = {}
    for row in rows:
        if row.doubt:
            doubts.setdefault(row.doubt, []).append(row.label)
    for reason, names in doubts.items():
        text = f"{MARK} not recommended: {', '.join(names)}: {reason}"
        lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    for status in ("failed", "skipped"):
        chosen = [row for row in rows if row.cell.status == status]
        for reason, names in reasons(chosen).items():
            text = f"{status}: {', '.join(names)}: {reason}"
            lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return lines

"""`bench show`: which table, in which form, onto the screen or into a file."""

from __future__ import annotations

from pathlib import Path

from harness.frames import ROWS, Table, is_text, table, unit
from harness.progress import terminal_width
from harness.render.csvfile import as_csv
from harness.results import load_result
from harness.tables import show, terminal_table
from rag_core.errors import InvalidArgumentError
from rag_core.index_files import write_whole

__all__ = ["FORMATS", "as_parquet", "show_text"]

FORMATS = ("table", "tsv", "json", "md", "csv", "parquet")
#: Forms that hold whole tables, with a row per cell or per query.
WHOLE = ("csv", "parquet")


def show_text(result: Path, format: str, rows: str = "cells", out: Path | None = None) -> str:
    """What to print: the table, or where it was written to; ends in a newline.

    Args:
        result: file or folder of a result.
        format: of :data:`FORMATS`.
        rows: of :data:`harness.frames.ROWS`; ``queries`` with ``csv`` and ``parquet`` only.
        out: file to write, whole or not at all.

    Raises:
        InvalidArgumentError: another format or other rows, or Parquet without a file.
        MissingExtraError: Parquet without pyarrow.
        ResultError: no result there.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"format {format!r}; accepted: {', '.join(FORMATS)}")
    if rows not in ROWS or (rows != "cells" and format not in WHOLE):
        raise InvalidArgumentError(
            f"rows {rows!r} as {format}; accepted: cells, and queries with --format {' or '.join(WHOLE)}"
        )
    if format == "parquet" and out is None:
        raise InvalidArgumentError("Parquet is not for a terminal; name a file: --format parquet --out FILE")
    document = load_result(result)
    if out is not None and out.is_dir():
        raise InvalidArgumentError(f"--out {out} is a folder; accepted: a file")
    made = table(document, rows) if format in WHOLE else None
    if made is None:
        text = terminal_table(document, terminal_width()) if format == "table" else show(document, format)
    elif format == "csv":
        text = as_csv(made)
    else:
        text = ""
    if out is None:
        return text
    data = text.encode() if format != "parquet" or made is None else as_parquet(made)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, data)
    except OSError as error:
        raise InvalidArgumentError(f"{out} cannot be written: {error.strerror}") from error
    size = f"{made.n_rows} rows of {len(made.columns)} columns" if made else f"{len(document.cells)} rows"
    return f"{out}: {size}\n"


def as_parquet(made: Table) -> bytes:
    """``made`` as a Parquet file: strings and doubles, nulls for what is missing, each column's unit with it.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    from rag_core.extras import require

    pa = require("writing Parquet", "pyarrow", "frames")
    parquet = require("writing Parquet", "pyarrow.parquet", "frames")
    fields, arrays = [], []
    for name, values in made.columns.items():
        kind = pa.string() if is_text(name) else pa.float64()
        arrays.append(pa.array([v if is_text(name) or v is None else float(v) for v in values], kind))
        fields.append(pa.field(name, kind, metadata={"unit": unit(name)} if unit(name) else None))
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

"""Bytes to lines, records and JSON objects, with the place of every fault.

All readers go through here, so that a byte-order mark, CRLF, a broken character or a stray quote has
one outcome whatever the format.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from rag_core.errors import InvalidArgumentError
from rag_core.extras import require

__all__ = [
    "DataError",
    "Row",
    "csv_rows",
    "json_rows",
    "parquet_rows",
    "read_json",
    "read_lines",
    "shown",
    "tsv_rows",
]

#: A record and the number, from 1, of the line it starts on.
Row = tuple[int, list[str]]

#: Longest accepted CSV field, in characters: the csv module's own limit of 128 Ki is below a long page.
MAX_FIELD = 2**31 - 1

_BOM = "\ufeff"
_SURROGATE = re.compile("[\ud800-\udfff]")


class DataError(InvalidArgumentError):
    """A data file cannot be read as it stands.

    Attributes:
        file: the file.
        line: the line, from 1; None where the fault is in no single line.
    """

    def __init__(self, file: Path | str, line: int | None, message: str) -> None:
        self.file, self.line, self.message = Path(file), line, message
        super().__init__(f"{file}:{line}: {message}" if line else f"{file}: {message}")

    def __reduce__(self) -> tuple[type[DataError], tuple[Path, int | None, str]]:
        return type(self), (self.file, self.line, self.message)


def shown(value: object, limit: int = 60) -> str:
    """``value`` as it may stand in an error message: quoted and not longer than ``limit``."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without their ends; a byte-order mark is no part of any of them.

    Lines end with LF or CRLF and with nothing else: U+2028 and its kin may stand inside a text.

    Raises:
        DataError: the file cannot be opened, or a byte is not UTF-8 (with line and byte).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror}") from error
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            path, 1, "is UTF-16; accepted: UTF-8; convert it with: iconv -f UTF-16 -t UTF-8 IN > OUT"
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = raw.rfind(b"\n", 0, error.start) + 1
        raise DataError(
            path,
            raw.count(b"\n", 0, error.start) + 1,
            f"byte {error.start - start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8; "
            "accepted: UTF-8",
        ) from error
    lines = [line.removeprefix(_BOM).removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        lines.pop()
    return lines


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON object of each line that is not blank, with its line number.

    Raises:
        DataError: a line is not JSON (with its column), or holds something other than an object.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise DataError(
                path,
                number,
                f"column {error.colno}: not JSON: {error.msg}; accepted: one JSON object per line",
            ) from error
        except ValueError as error:
            raise DataError(path, number, f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise DataError(
                path, number, f"{shown(value)} is not an object; accepted: one JSON object per line"
            )
        yield number, value


def read_json(path: Path) -> Any:
    """The value that a JSON file holds.

    Raises:
        DataError: it is not JSON (with line and column).
    """
    try:
        return json.loads("\n".join(read_lines(path)), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DataError(
            path, error.lineno, f"column {error.colno}: not JSON: {error.msg}; accepted: one JSON value"
        ) from error
    except ValueError as error:
        raise DataError(path, None, f"not JSON: {error}") from error


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a Parquet file as objects, numbered from 1.

    Raises:
        MissingExtraError: pyarrow is not installed.
        DataError: the file is not Parquet.
    """
    parquet = require("reading Parquet", "pyarrow.parquet", "parquet")
    try:
        # by ParquetFile: read_table would take the names of folders above ("lang=es") for columns
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these
        raise DataError(path, None, f"cannot be read as Parquet: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def tsv_rows(path: Path) -> list[Row]:
    """Tab-separated records. Quotes are ordinary characters: an id may start with one."""
    return [(n, line.split("\t")) for n, line in enumerate(read_lines(path), 1) if line.strip()]


def csv_rows(path: Path) -> list[Row]:
    """Records after RFC 4180: a quoted field may hold commas, doubled quotes and line ends.

    The separator is a comma, or a semicolon where the first record has only those (which is how
    spreadsheets of many countries write it).

    Raises:
        DataError: a quote that is never closed, or text after a closing quote; with the record's line.
    """
    lines = read_lines(path)
    if csv.field_size_limit() < MAX_FIELD:
        csv.field_size_limit(MAX_FIELD)
    first = next((line for line in lines if line.strip()), "")
    delimiter = ";" if "," not in first and ";" in first else ","
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    rows: list[Row] = []
    start = 1
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                rows.append((start, fields))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            path,
            start,
            f"this record is not CSV: {error}; accepted: RFC 4180, where a quote inside is doubled",
        ) from error
    return rows


def without_surrogates(text: str) -> tuple[str, bool]:
    """``text`` with each unpaired surrogate replaced by U+FFFD, and whether there was one.

    JSON can spell half a character (``"\\ud83d"``); no encoder, tokeniser or file takes it.
    """
    if text.isascii() or not _SURROGATE.search(text):
        return text, False
    return _SURROGATE.sub("\ufffd", text), True

"""Documents and queries from JSON lines or from table rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.formats.reading import (
    DataError,
    csv_rows,
    json_rows,
    parquet_rows,
    shown,
    tsv_rows,
    without_surrogates,
)
from rag_core.types import Document, Query

__all__ = ["OBJECTS", "documents_from", "queries_from", "read_documents", "read_queries"]

#: Files that hold one object a record, and what reads each.
OBJECTS = {".jsonl": json_rows, ".parquet": parquet_rows}

ID_NAMES = ("_id", "id", "doc_id", "doc-id", "docid", "corpus-id", "corpus_id", "query-id", "query_id", "qid")
TEXT_NAMES = (
    "text", "query", "question", "body", "content", "contents", "passage", "abstract",
    "texto", "consulta", "pregunta", "pergunta",
)  # fmt: skip
TITLE_NAMES = ("title", "titulo", "título")

#: One record before it is a document or a query: line, id, title, text, metadata.
_Record = tuple[int, str, str, str, dict[str, Any]]


def read_documents(path: Path, notes: list[str]) -> tuple[Document, ...]:
    """The documents of ``corpus.jsonl``, ``.csv`` or ``.tsv``, in the order of the file.

    A missing or null title or text is empty; such a document keeps its id. ``notes`` receives what
    was put right on the way.

    Raises:
        DataError: a record without a usable id, an id that stands twice (both lines named), a row of
            another width than the first.
    """
    return _documents(path, _records(path, _rows(path), notes))


def documents_from(
    path: Path, rows: Iterable[tuple[int, dict[str, Any]]], notes: list[str]
) -> tuple[Document, ...]:
    """Documents from objects and their line numbers; ``path`` is for messages. Errors as in
    :func:`read_documents`."""
    return _documents(path, _records(path, _from_objects(path, rows), notes))


def _documents(path: Path, records: Iterator[_Record]) -> tuple[Document, ...]:
    made: list[Document] = []
    for _, doc_id, title, text, metadata in _unique(path, "document", records):
        made.append(Document(doc_id, text, title, metadata))
    return tuple(made)


def read_queries(path: Path, notes: list[str]) -> tuple[Query, ...]:
    """The queries of ``queries.jsonl``, ``.csv`` or ``.tsv``. Errors as in :func:`read_documents`."""
    return _queries(path, _records(path, _rows(path), notes))


def queries_from(
    path: Path, rows: Iterable[tuple[int, dict[str, Any]]], notes: list[str]
) -> tuple[Query, ...]:
    """Queries from objects and their line numbers; ``path`` is for messages. Errors as in
    :func:`read_documents`."""
    return _queries(path, _records(path, _from_objects(path, rows), notes))


def _queries(path: Path, records: Iterator[_Record]) -> tuple[Query, ...]:
    made: list[Query] = []
    for _, query_id, title, text, metadata in _unique(path, "query", records):
        made.append(Query(query_id, text or title, metadata))
    return tuple(made)


def _rows(path: Path) -> Iterator[_Record]:
    reader = OBJECTS.get(path.suffix)
    return _from_objects(path, reader(path)) if reader else _from_table(path)


def _records(path: Path, rows: Iterable[_Record], notes: list[str]) -> Iterator[_Record]:
    repaired = 0
    for line, identifier, title, text, metadata in rows:
        if not identifier.strip():
            raise DataError(path, line, "the id is blank; accepted: a string that is not")
        if without_surrogates(identifier)[1]:
            raise DataError(
                path, line, f"the id {shown(identifier)} holds half a character (an unpaired surrogate)"
            )
        title, title_repaired = without_surrogates(title)
        text, text_repaired = without_surrogates(text)
        repaired += title_repaired or text_repaired
        yield line, identifier, title, text, metadata
    if repaired:
        notes.append(f"{path.name}: unpaired surrogates replaced by U+FFFD in {repaired} records")


def _unique(path: Path, what: str, records: Iterator[_Record]) -> Iterator[_Record]:
    lines: dict[str, int] = {}
    for record in records:
        line, identifier = record[:2]
        if identifier in lines:  # of forms without lines the number is 0; two records may share one
            first = lines[identifier]
            raise DataError(
                path,
                line,
                f"{what} id {shown(identifier)} stands already{f' on line {first}' if first else ''}; "
                "accepted: each id once",
            )
        lines[identifier] = line
        yield record


def _from_objects(path: Path, rows: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[_Record]:
    for line, values in rows:
        key = next((name for name in ID_NAMES if name in values), None)
        if key is None:
            raise DataError(path, line, f"no id among the fields {sorted(values)}; accepted: _id (or id)")
        text_key = next((name for name in TEXT_NAMES if name in values), "text")
        metadata = values.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise DataError(path, line, f"metadata is {shown(metadata)}; accepted: an object")
        taken = {key, text_key, "title", "metadata"}
        more = {name: value for name, value in values.items() if name not in taken}
        yield (
            line,
            _identifier(path, line, key, values[key]),
            _text(path, line, "title", values.get("title")),
            _text(path, line, text_key, values.get(text_key)),
            {**more, **(metadata or {})},
        )


def _identifier(path: Path, line: int, key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(path, line, f"{key} is {shown(value)}; accepted: a string or a whole number")
    return value


def _text(path: Path, line: int, key: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(path, line, f"{key} is {shown(value)}; accepted: a string, or null for none")
    return value


def _from_table(path: Path) -> Iterator[_Record]:
    rows = csv_rows(path) if path.suffix == ".csv" else tsv_rows(path)
    if not rows:
        return
    first_line, first = rows[0]
    columns = _header(first)
    if columns is None:
        columns = {2: ["_id", "text"], 3: ["_id", "title", "text"]}.get(len(first))
        if columns is None:
            raise DataError(
                path,
                first_line,
                f"{len(first)} columns and no header; accepted: id, text or id, title, text, or a row of "
                f"names (id: {', '.join(ID_NAMES[:4])} …; text: {', '.join(TEXT_NAMES[:4])} …)",
            )
    else:
        rows = rows[1:]
    for line, fields in rows:
        if len(fields) != len(columns):
            raise DataError(
                path,
                line,
                f"{len(fields)} columns in {shown(fields)}; "
                f"accepted: {len(columns)}, as on line {first_line}",
            )
        values: Mapping[str, str] = dict(zip(columns, fields))
        more = {
            name: value for name, value in values.items() if name not in ("_id", "title", "text") and value
        }
        yield line, values["_id"], values.get("title", ""), values.get("text", ""), more


def _header(fields: Sequence[str]) -> list[str] | None:
    """The column names, with ours for id, title and text; None where the row is data.

    A row is a header only when it names an id and a text or title: no row is dropped for its place.
    """
    names = [field.strip().strip('"').strip() for field in fields]
    lowered = [name.lower() for name in names]
    columns = list(names)
    for accepted, ours in ((ID_NAMES, "_id"), (TITLE_NAMES, "title"), (TEXT_NAMES, "text")):
        place = next((lowered.index(name) for name in accepted if name in lowered), None)
        if place is not None:
            columns[place] = ours
    named = {"_id"} <= set(columns) and {"title", "text"} & set(columns)
    return columns if named else None

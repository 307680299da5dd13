"""Relevance judgements: three columns by tab, comma or blanks, or TREC's four; with a header or without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from harness.formats.reading import DataError, Row, csv_rows, read_lines, shown, tsv_rows
from harness.formats.records import OBJECTS
from rag_core.types import Qrel

__all__ = ["collect", "read_judgements"]

QUERY_NAMES = ("query-id", "query_id", "queryid", "qid", "query", "topic", "consulta", "pregunta", "pergunta")
DOCUMENT_NAMES = (
    "corpus-id", "corpus_id", "corpusid", "doc-id", "doc_id", "docid", "docno", "doc", "document",
    "document_id", "documento", "passage_id", "pid",
)  # fmt: skip
GRADE_NAMES = (
    "score",
    "relevance",
    "rel",
    "grade",
    "label",
    "judgement",
    "judgment",
    "relevancia",
    "relevância",
)

ACCEPTED = (
    "accepted: query, document, grade by tabs, commas or blanks, or TREC's query, iteration, document, "
    "grade; a header names them, for example query-id, corpus-id, score"
)
_GRADE = re.compile(r"[+-]?\d+(\.0*)?")


def read_judgements(path: Path, notes: list[str]) -> tuple[Qrel, ...]:
    """All judgements of a file in its order, each query–document pair once.

    The layout is the one that most rows fit; the first row is a header only when its last column names
    a grade. Quotes are ordinary characters unless the file is ``.csv``. Grades are whole numbers;
    those below 1 are not relevant. A pair repeated with an equal grade is counted in ``notes``.

    Raises:
        DataError: a row of another width, a grade that is not a whole number, a pair judged twice with
            different grades (both lines named).
    """
    if path.suffix in OBJECTS:
        return collect(path, _from_objects(path), notes)
    rows, width = _rows(path)
    if not rows:
        return ()
    order = _header_order(path, rows[0], width)
    if order is None:
        order = (0, 1, 2) if width == 3 else (0, 2, 3)
    else:
        rows = rows[1:]
    query, document, grade = order
    judged = ((line, fields[query], fields[document], fields[grade]) for line, fields in rows)
    return collect(path, judged, notes)


def collect(path: Path, judged: Iterable[tuple[int, str, str, str]], notes: list[str]) -> tuple[Qrel, ...]:
    """``(line, query id, document id, grade)`` as judgements. Errors as in :func:`read_judgements`."""
    seen: dict[tuple[str, str], tuple[int, int]] = {}
    repeated = 0
    for line, query_id, doc_id, text in judged:
        if not query_id.strip() or not doc_id.strip():
            raise DataError(
                path, line, f"query id {query_id!r}, document id {doc_id!r}: one is blank; {ACCEPTED}"
            )
        if not _GRADE.fullmatch(text.strip()):
            raise DataError(path, line, f"grade {shown(text)} is not a whole number; {ACCEPTED}")
        grade = int(text.strip().partition(".")[0])
        known = seen.setdefault((query_id, doc_id), (grade, line))
        if known[1] == line:
            continue
        if known[0] != grade:
            raise DataError(
                path,
                line,
                f"query {shown(query_id)} and document {shown(doc_id)} have grade {grade} here and "
                f"{known[0]} on line {known[1]}; accepted: one grade for a pair",
            )
        repeated += 1
    if repeated:
        notes.append(f"{path.name}: {repeated} judgements repeated with an equal grade, counted once")
    return tuple(Qrel(query_id, doc_id, grade) for (query_id, doc_id), (grade, _) in seen.items())


def _from_objects(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Judgements from JSON lines or Parquet: the fields are known by the names that a header may have."""
    for line, values in OBJECTS[path.suffix](path):
        found = []
        for accepted in (QUERY_NAMES, DOCUMENT_NAMES, GRADE_NAMES):
            name = next((name for name in accepted if name in values), None)
            value = values.get(name) if name else None
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise DataError(
                    path,
                    line,
                    f"no {accepted[0]} among {shown(values)}; accepted: query-id, corpus-id, score",
                )
            found.append(str(value))
        yield line, found[0], found[1], found[2]


def _rows(path: Path) -> tuple[list[Row], int]:
    """The rows in the layout that most of them fit, and its width (3 or 4).

    Raises:
        DataError: a row does not fit it.
    """
    splits: list[Callable[[Path], list[Row]]] = [tsv_rows, _blank_rows]
    if path.suffix == ".csv":
        splits = [csv_rows]
    elif "," in "".join(read_lines(path)[:1]):
        splits.append(_comma_rows)
    best: tuple[int, list[Row], int] | None = None
    for split in splits:
        rows = split(path)
        for width in (3, 4):
            fitting = sum(len(fields) == width for _, fields in rows)
            # "q 0<TAB>d<TAB>1" is three columns by tabs and TREC's four by blanks: the 0 decides
            trec = (
                split is _blank_rows
                and width == 4
                and all(f[1] in ("0", "Q0") for _, f in rows if len(f) == 4)
            )
            if best is None or fitting > best[0] or (trec and fitting == best[0] and fitting):
                best = fitting, rows, width
    assert best is not None  # there is always a split
    _, rows, width = best
    for line, fields in rows:
        if len(fields) != width:
            raise DataError(
                path, line, f"{len(fields)} columns in {shown(fields)} where the file has {width}; {ACCEPTED}"
            )
    return rows, width


def _blank_rows(path: Path) -> list[Row]:
    """Columns by any run of blanks and tabs; a line that starts with ``#`` is a comment, as in trec_eval."""
    return [
        (n, line.split()) for n, line in enumerate(read_lines(path), 1) if line.strip() and line[0] != "#"
    ]


def _comma_rows(path: Path) -> list[Row]:
    return [(n, line.split(",")) for n, line in enumerate(read_lines(path), 1) if line.strip()]


def _header_order(path: Path, row: Row, width: int) -> tuple[int, int, int] | None:
    """Where query, document and grade stand, if ``row`` is a header; None if it is a judgement.

    Raises:
        DataError: its last column is neither a grade nor the name of one.
    """
    line, fields = row
    if _GRADE.fullmatch(fields[-1].strip()):
        return None
    names = [field.strip().strip('"').strip().lower() for field in fields]
    places = [_place(names, accepted) for accepted in (QUERY_NAMES, DOCUMENT_NAMES, GRADE_NAMES)]
    query, document, grade = places
    if query is not None and document is not None and grade is not None:
        return query, document, grade
    if sum(place is not None for place in places) >= 2 or names[-1] in GRADE_NAMES:
        return (0, 1, 2) if width == 3 else (0, 2, 3)
    raise DataError(path, line, f"{shown(fields)} is neither a judgement nor a header; {ACCEPTED}")


def _place(names: Sequence[str], accepted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in accepted if name in names), None)

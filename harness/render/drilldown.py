"""What the page knows of single queries: values, first documents and texts of every system, packed tightly.

A value takes two characters (thousandths, base 64), a document of a list three (its number). So 20 systems
with 1,000 queries stay far below what a mail takes. Where texts do not fit they are cut, those of documents
that nobody judged relevant first; where queries do not fit, those that the systems differ on most are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.formats.tops import read_tops
from harness.formats.trec import escaped_id
from harness.results import ResultDocument, file_name
from harness.rows import Row, main_metric, metric_names

__all__ = ["ALPHABET", "BUDGET_BYTES", "DEPTH", "TEXTS", "as_json", "drilldown", "packed", "read_texts"]

#: Documents of a list that are shown.
DEPTH = 10
#: Beside the run files; :mod:`harness.texts` writes it.
TEXTS = "runs/texts.json"
#: Of all that is known of single queries.
BUDGET_BYTES = 2_400_000
#: Share of it that values, lists and queries may take.
LISTS_SHARE = 0.6
#: With fewer nothing is left out any more, whatever the size.
LEAST_QUERIES = 20
#: Characters of a relevant and of another document, tried in this order until they fit.
EXCERPTS = ((320, 320), (320, 200), (320, 100), (320, 0), (200, 0), (100, 0), (0, 0))
LONGEST_QUERY, LONGEST_TITLE = 400, 100
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
#: Stands for no value and no document.
NOTHING = "~"
LIST_WIDTH, VALUE_WIDTH = 3, 2
#: What may end a script element, or be no character of UTF-8, or turn the reading direction.
_UNSAFE = re.compile("[<>&\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def as_json(value: Any) -> str:
    """``value`` as JSON that may stand in a ``script`` element: nothing in it ends the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def packed(numbers: Sequence[int | None], width: int) -> str:
    """Each number in ``width`` digits to base 64, the highest first; None as :data:`NOTHING`."""
    shifts = range(6 * (width - 1), -1, -6)
    known: dict[int | None, str] = {None: NOTHING * width}
    out = []
    for number in numbers:
        if number not in known and number is not None:
            known[number] = "".join(ALPHABET[number >> shift & 63] for shift in shifts)
        out.append(known[number])
    return "".join(out)


def read_texts(document: ResultDocument, folder: Path) -> Mapping[str, Any]:
    """The texts beside a result; empty where there are none, or they are those of other data."""
    try:
        values = json.loads((folder / TEXTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    same = isinstance(values, dict) and values.get("hash") == document.dataset.get("hash")
    return values if same else {}


@dataclass
class _Documents:
    """Numbers of documents, given as they are met; ids are escaped as in run files."""

    texts: Mapping[str, Sequence[str]]
    numbers: dict[str, int] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)

    def number(self, doc_id: str) -> int:
        return self.numbers.setdefault(doc_id, len(self.numbers))

    def lengths(self) -> NDArray[np.int64]:
        """Characters of the text of each."""
        return np.array([len(self.texts.get(doc_id, ("", ""))[1]) for doc_id in self.numbers], np.int64)

    def code(self, doc_id: str) -> str:
        """The number of a document as a list holds it."""
        known = self.codes.get(doc_id)
        if known is None:
            known = self.codes[doc_id] = packed([self.number(doc_id)], LIST_WIDTH)
        return known

    def rows(self, n_relevant: int, relevant: int, other: int) -> list[list[str]]:
        """Id, title and text of each, cut to the given lengths."""
        out = []
        for place, doc_id in enumerate(self.numbers):
            most = relevant if place < n_relevant else other
            title, text, raw = self.texts.get(doc_id, ("", "", doc_id))
            row = [raw, _cut(title, LONGEST_TITLE), _cut(text, most)]
            while len(row) > 1 and not row[-1]:
                row.pop()
            out.append(row)
        return out


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…" if most else ""


def drilldown(
    document: ResultDocument, rows: Sequence[Row], folder: Path, *, texts: bool = True
) -> dict[str, Any]:
    """What the page's script reads; empty where no system was judged.

    ``queries`` holds id, text, tags and relevant documents (number, grade) of each; ``documents`` id, title
    and text; ``systems`` the row's place, a string of values for each metric, and one of the lists. ``notes``
    says in sentences what is not there.
    """
    measured = [(place, row) for place, row in enumerate(rows) if row.ok]
    n = len(document.dataset.get("query_ids", ()))
    if not measured or not n:
        return {}
    found = read_texts(document, folder)
    kept = found if texts else {"grades": found.get("grades", {})}
    tops = {place: _tops(row, folder) for place, row in measured}
    each = (
        len(measured) * (DEPTH * LIST_WIDTH + len(metric_names(document)) * VALUE_WIDTH) + LONGEST_QUERY // 2
    )
    most = min(n, max(1, int(BUDGET_BYTES * LISTS_SHARE) // each))
    while True:
        made, fits = _made(document, measured, tops, kept, most)
        if fits or most < LEAST_QUERIES:
            return made
        most //= 2  # the ids alone are too long


def _made(
    document: ResultDocument,
    measured: Sequence[tuple[int, Row]],
    tops: Mapping[int, Mapping[str, Sequence[str]]],
    texts: Mapping[str, Any],
    most: int,
) -> tuple[dict[str, Any], bool]:
    """What :func:`drilldown` gives back, with at most ``most`` queries, and whether it fits."""
    notes = [] if texts.get("queries") else ["The texts of queries and documents are not in this file."]
    if not any(tops.values()):
        notes.append("The lists of documents were not kept with this result.")
    chosen = _chosen(document, [row for _, row in measured], most, notes)
    query_ids = [document.dataset["query_ids"][place] for place in chosen]
    known = {
        escaped_id(doc_id): (title, text, doc_id)
        for doc_id, (title, text) in texts.get("documents", {}).items()
    }
    documents = _Documents(known)
    queries = [_query(document, query_id, texts, documents) for query_id in query_ids]
    n_relevant = len(documents.numbers)
    systems = [
        {
            "row": place,
            "values": [_values(row, name, chosen) for name in metric_names(document)],
            "tops": _list(tops[place], query_ids, documents),
        }
        for place, row in measured
    ]
    made = {"depth": DEPTH, "queries": queries, "systems": systems, "notes": notes}
    left = BUDGET_BYTES - len(as_json(made).encode())
    made["documents"], fits = _fitting(documents, n_relevant, left, notes)
    return made, fits


def _fitting(
    documents: _Documents, n_relevant: int, left: int, notes: list[str]
) -> tuple[list[list[str]], bool]:
    """The documents with the longest texts that fit into ``left`` bytes; False where they do not."""
    lengths = documents.lengths()
    for relevant, other in EXCERPTS:
        is_last = (relevant, other) == EXCERPTS[-1]
        most = np.where(np.arange(len(lengths)) < n_relevant, relevant, other)
        if np.minimum(lengths, most).sum() > left and not is_last:
            continue  # a character takes a byte at least, so that this is known without writing it
        found = documents.rows(n_relevant, relevant, other)
        fits = len(as_json(found).encode()) <= left
        if fits or is_last:
            break
    if (relevant, other) != EXCERPTS[0]:
        notes.append("Texts are cut to keep this file small; the whole ones are in the data set.")
    return found, fits


def _chosen(document: ResultDocument, rows: Sequence[Row], most: int, notes: list[str]) -> list[int]:
    """Positions of the queries that are kept, in order: all, or those that the systems differ on most."""
    n = len(document.dataset["query_ids"])
    if n <= most:
        return list(range(n))
    metric = main_metric(document)
    columns = [row.cell.metrics[metric].per_query for row in rows]

    def spread(place: int) -> float:
        known = [v for column in columns if place < len(column) and (v := column[place]) is not None]
        return max(known) - min(known) if known else -1.0

    notes.append(f"Of {n:,} queries the {most:,} that the systems differ on most are listed here.")
    return sorted(sorted(range(n), key=lambda place: (-spread(place), place))[:most])


def _tops(row: Row, folder: Path) -> Mapping[str, Sequence[str]]:
    path = folder / "runs" / f"{file_name(row.cell.key)}.run"
    return read_tops(path, DEPTH) if path.exists() else {}


def _query(
    document: ResultDocument, query_id: str, texts: Mapping[str, Any], documents: _Documents
) -> list[Any]:
    tags = document.dataset.get("query_tags", {}).get(query_id, {})
    grades: Mapping[str, int] = texts.get("grades", {}).get(query_id, {})
    best_first = sorted(grades.items(), key=lambda item: (-item[1], item[0]))
    judged = [[documents.number(escaped_id(doc_id)), grade] for doc_id, grade in best_first]
    text = _cut(texts.get("queries", {}).get(query_id, ""), LONGEST_QUERY)
    return [query_id, text, " · ".join(str(value) for _, value in sorted(tags.items())), judged]


def _values(row: Row, name: str, chosen: Sequence[int]) -> str:
    found = row.cell.metrics.get(name)
    values = found.per_query if found else []
    picked = [values[i] if i < len(values) else None for i in chosen]
    return packed([None if v is None else round(1000 * min(1.0, max(0.0, v))) for v in picked], VALUE_WIDTH)


def _list(tops: Mapping[str, Sequence[str]], query_ids: Sequence[str], documents: _Documents) -> str:
    if not tops:
        return ""
    out = []
    known = documents.codes
    for query_id in query_ids:
        escaped = escaped_id(query_id)
        found = tops.get("%23" + escaped[1:] if escaped.startswith("#") else escaped, ())[:DEPTH]
        out += [known.get(doc_id) or documents.code(doc_id) for doc_id in found]
        out += [NOTHING * LIST_WIDTH] * (DEPTH - len(found))
    return "".join(out)

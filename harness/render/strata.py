"""The section of ``report.md`` on words shared with the relevant documents."""

from __future__ import annotations

from collections.abc import Sequence

from harness.render.format import MISSING, p_value, score, signed
from harness.results import ResultDocument
from harness.rows import Difference, Row
from harness.strata import LEAST_PER_SIDE, Part, Split, overlap_split, stratify
from harness.summary import metric_title
from harness.tables import pipe_table

__all__ = ["by_overlap"]


def by_overlap(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """The section, or nothing where the file tells no overlap, too few queries, or no measured cell."""
    plain = overlap_split(document)
    measured = [row for row in rows if row.ok]
    if plain is None or not measured:
        return ""
    split = stratify(document, plain, metric)
    columns = ["system"]
    for part in split.parts:
        columns += [f"{part.name} (n = {part.n})", "Δ BM25", "corrected p"]
    body = [
        [row.label, *(text for part in split.parts for text in _fields(part, row, split))] for row in measured
    ]
    heading = f"## {metric_title(metric)} by words shared with the relevant documents\n\n"
    return heading + pipe_table(columns, body, numeric=len(columns) - 1) + f"\n{_note(split)}\n"


def _fields(part: Part, row: Row, split: Split) -> list[str]:
    cell_id = row.cell.key.cell_id
    mean = score(part.means.get(cell_id))
    if cell_id == split.reference:
        return [mean, "BM25", "BM25"]
    found = part.versus.get(cell_id)
    return [mean, _difference(found), p_value(found.adjusted) if found else MISSING]


def _difference(found: Difference | None) -> str:
    return f"{signed(found.mean)} ({signed(found.low)} to {signed(found.high)})" if found else MISSING


def _note(split: Split) -> str:
    if split.kind == "words":
        what = "Queries none of whose content words occur in a relevant document, and the others."
    else:
        what = (
            f"{split.n_none} queries share no content word with a relevant document and {split.n_some} "
            f"share one; with fewer than {LEAST_PER_SIDE} on a side these are thirds by the share of a "
            "query's words that a relevant document has, each word weighted by its idf."
        )
    n = split.n_without_words
    blank = f" {n} without a content word stand{'s' if n == 1 else ''} in no part." if n else ""
    return (
        f"{what}{blank} Words are stemmed, function words left out. Δ BM25: paired by query, with a 95 % "
        "bootstrap interval; p values after Holm's correction over the whole table."
    )

"""The sections of ``report.md`` on parts of the queries, and ``strata.csv``, which has all of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from harness.render.format import MISSING, p_value, score, with_bounds
from harness.results import ResultDocument
from harness.rows import Difference, Row
from harness.strata import LEAST_PER_SIDE, Part, Split, overlap_split, share_split, stratify, words_split
from harness.summary import metric_title
from harness.tables import pipe_table
from harness.tag_strata import scope_tag, tag_names, tag_split, tag_strata

__all__ = ["CSV_FILE", "by_overlap", "by_tags", "strata_csv"]

CSV_FILE = "strata.csv"
#: Tags that have a heading of their own, and a section however few their queries are.
TITLES = {"lang": "by language of the query", "kind": "by kind of query"}
#: Further tags in the report, and the most values one may have there; all stand in strata.csv.
MOST_TAGS = 2
MOST_VALUES = 8
CSV_COLUMNS: tuple[str, ...] = ("split", "part", "n", "cell", "system", "metric", "mean")
CSV_COLUMNS += ("delta_bm25", "delta_low", "delta_high", "p_corrected")


def by_tags(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """A section for language, kind, and the first other tags that have parts of enough queries."""
    others = [tag for tag in tag_names(document) if tag not in TITLES and tag != scope_tag(document)]
    few = [tag for tag in others if len(tag_split(document, tag, LEAST_PER_SIDE).parts) <= MOST_VALUES]
    sections = [_by_tag(document, rows, metric, tag) for tag in (*TITLES, *few[:MOST_TAGS])]
    return "\n".join(section for section in sections if section)


def _by_tag(document: ResultDocument, rows: Sequence[Row], metric: str, tag: str) -> str:
    measured = [row for row in rows if row.ok]
    split = tag_strata(document, tag, metric)
    parts = [part for part in split.parts if part.n >= LEAST_PER_SIDE or tag in TITLES]
    if not parts or not measured:
        return ""
    columns = ["system"]
    for part in parts:
        columns += [f"{part.name} (n = {part.n})", *(["Δ BM25"] if part.versus else [])]
    body = []
    for row in measured:
        own = row.cell.key.cell_id
        fields = [row.label]
        for part in parts:
            fields.append(score(part.means.get(own)))
            if part.versus:
                fields.append("BM25" if own == split.reference else _difference(part.versus.get(own)))
        body.append(fields)
    heading = f"## {metric_title(metric)} {TITLES.get(tag, f'by {tag} of the query')}\n\n"
    table = heading + pipe_table(columns, body, numeric=len(columns) - 1)
    if not any(part.versus for part in parts):
        return table
    return table + (
        f"\nΔ BM25 where a part has {LEAST_PER_SIDE} queries: paired by query, with a 95 % bootstrap "
        f"interval; corrected p values stand in {CSV_FILE}.\n"
    )


def strata_csv(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """Every part of :data:`.LEAST_PER_SIDE` queries of every split, full precision; empty without one.

    ``split`` is ``words``, ``share`` (idf-weighted) or a tag's name. ``p_corrected`` is Holm's over its
    split.
    """
    labels = {row.cell.key.cell_id: row.label for row in rows if row.ok}
    buffer = io.StringIO()
    out = csv.writer(buffer, lineterminator="\n")
    out.writerow(CSV_COLUMNS)
    before = buffer.tell()
    for name, split in _all_splits(document, metric):
        for part in split.parts:
            if part.n < LEAST_PER_SIDE and split.kind == "tag":
                continue
            for cell_id, mean in part.means.items():
                gap = part.versus.get(cell_id)
                numbers = (gap.mean, gap.low, gap.high, gap.adjusted) if gap else ("",) * 4
                label = labels.get(cell_id, cell_id)
                out.writerow([name, part.name, part.n, cell_id, label, metric, mean, *numbers])
    return buffer.getvalue() if buffer.tell() > before else ""


def _all_splits(document: ResultDocument, metric: str) -> Iterator[tuple[str, Split]]:
    for found in (words_split(document), share_split(document)):
        if found is not None:
            yield found.kind, stratify(document, found, metric)
    for tag in tag_names(document):
        yield tag, tag_strata(document, tag, metric)


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
    return with_bounds(found.mean, found.low, found.high) if found else MISSING


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

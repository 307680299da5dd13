"""The forms a data set may have. A new one is a module here and a row in :data:`FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.formats import beir, tables
from harness.formats.folders import Parts
from harness.formats.reading import DataError

__all__ = ["FORMATS", "Format", "recognise"]


@dataclass(frozen=True, slots=True)
class Format:
    """One form of a data set.

    Attributes:
        name: short name.
        recognises: what a folder must hold, in words, for the message when none fits.
        matches: whether this form is at a path.
        load: reads it.
    """

    name: str
    recognises: str
    matches: Callable[[Path], bool]
    load: Callable[[Path], Parts]


#: Tried in this order.
FORMATS = (
    Format("beir", "corpus.jsonl, queries.jsonl and qrels/test.tsv", beir.matches, beir.load),
    Format("tables", "corpus.csv, queries.csv and qrels.csv (or .tsv, .jsonl)", tables.matches, tables.load),
)


def recognise(path: Path) -> Format:
    """The form of the data set at ``path``.

    Raises:
        DataError: none fits; says what is there and what would be recognised.
    """
    for form in FORMATS:
        if form.matches(path):
            return form
    found = ", ".join(sorted(file.name for file in path.iterdir())[:8]) if path.is_dir() else "a file"
    accepted = "; ".join(f"{form.recognises} ({form.name})" for form in FORMATS)
    raise DataError(path, None, f"not a data set: found {found or 'an empty folder'}; accepted: {accepted}")

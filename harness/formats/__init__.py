"""The forms a data set may have. A new one is a module here and a row in :data:`FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.formats import beir, hub, irds, locomo, mteb, squad, tables, trecset
from harness.formats.folders import Parts
from harness.formats.reading import DataError
from rag_core.errors import UnknownNameError
from rag_core.registry import nearest

__all__ = ["FORMATS", "REMOTE", "Format", "format_named", "recognise"]


@dataclass(frozen=True, slots=True)
class Format:
    """One form of a data set.

    Attributes:
        name: short name, which may also stand before a path: ``squad:train.json``.
        recognises: what a file or folder must hold, in words, for the message when none fits.
        matches: whether this form is at a path.
        load: reads it.
    """

    name: str
    recognises: str
    matches: Callable[[Path], bool]
    load: Callable[[Path], Parts]


#: Tried in this order.
FORMATS = (
    Format("mteb", "corpus, queries and qrels as Parquet, or as folders of pieces", mteb.matches, mteb.load),
    Format("beir", "corpus.jsonl, queries.jsonl and qrels/test.tsv", beir.matches, beir.load),
    Format("tables", "corpus.csv, queries.csv and qrels.csv (or .tsv, .jsonl)", tables.matches, tables.load),
    Format("trec", "topics, qrels and corpus or docs, in TREC's layouts", trecset.matches, trecset.load),
    Format("locomo", "a JSON file of conversations with qa, as locomo10.json", locomo.matches, locomo.load),
    Format("squad", "a JSON file of paragraphs with questions, as SQuAD's", squad.matches, squad.load),
)


def format_named(name: str) -> Format:
    """The form of that name.

    Raises:
        UnknownNameError: there is none; names the nearest.
    """
    found = next((form for form in FORMATS if form.name == name), None)
    if found is None:
        raise UnknownNameError(f"no data format {name!r}{nearest(name, [form.name for form in FORMATS])}")
    return found


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


def _recognised(path: Path) -> Parts:
    return recognise(path).load(path)


#: Sets that are named rather than lie at a path: what stands before the colon, and what reads the rest.
REMOTE: dict[str, Callable[[str], Parts]] = {"irds": irds.load, "hf": partial(hub.load, read=_recognised)}

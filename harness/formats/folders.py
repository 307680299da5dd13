"""A data set as a folder: what the readers of folders share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.formats.description import Description, read_description
from harness.formats.judgements import read_judgements
from harness.formats.reading import DataError
from harness.formats.records import read_documents, read_queries
from rag_core.types import Document, Qrel, Query

__all__ = ["Parts", "find", "judgements_file", "read_parts"]

QRELS_SUFFIXES = (".tsv", ".csv", ".txt", ".qrels", ".qrel")
#: Which judgements are read where the description names no split, best first.
SPLITS = ("test", "dev", "validation", "valid", "train")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reader found: content, what the set says about itself, and what was put right."""

    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    qrels: tuple[Qrel, ...]
    description: Description
    notes: tuple[str, ...] = ()


def find(folder: Path, stem: str, suffixes: tuple[str, ...]) -> Path | None:
    """The file ``stem`` plus the first of ``suffixes`` that exists in ``folder``."""
    files = (folder / f"{stem}{suffix}" for suffix in suffixes)
    return next((file for file in files if file.is_file()), None)


def judgements_file(folder: Path, split: str, notes: list[str]) -> Path:
    """``qrels/<split>`` or ``qrels`` in ``folder``, with one of :data:`QRELS_SUFFIXES`.

    Raises:
        DataError: there is none, or several of which none is called test.
    """
    single = find(folder, "qrels", QRELS_SUFFIXES)
    if single and not split:
        return single
    inside = folder / "qrels"
    files = sorted(f for f in inside.glob("*") if f.suffix in QRELS_SUFFIXES) if inside.is_dir() else []
    by_name = {file.stem: file for file in files}
    wanted = (split,) if split else SPLITS
    chosen = next((by_name[name] for name in wanted if name in by_name), None)
    if chosen is None and not split and len(files) == 1:
        chosen = files[0]
    if chosen is None:
        raise DataError(
            inside,
            None,
            f"no judgements of split {split or 'test'!r} among {sorted(by_name) or 'no files'}; "
            "accepted: qrels/test.tsv, qrels.tsv or qrels.csv, or a split named in dataset.toml",
        )
    if len(files) > 1:
        others = ", ".join(file.name for file in files if file != chosen)
        notes.append(f"judgements read from {chosen.name}; not read: {others}")
    return chosen


def read_parts(
    corpus: Path,
    queries: Path,
    qrels: Path,
    description: Description | None = None,
    notes: list[str] | None = None,
) -> Parts:
    """Read three files. Errors as in the readers of each."""
    notes = [] if notes is None else notes
    documents, asked = read_documents(corpus, notes), read_queries(queries, notes)
    return Parts(documents, asked, read_judgements(qrels, notes), description or Description(), tuple(notes))


def read_folder(folder: Path, corpus: Path, queries: Path) -> Parts:
    """Read ``corpus`` and ``queries`` with the description and the judgements of ``folder``."""
    notes: list[str] = []
    description = read_description(folder)
    return read_parts(corpus, queries, judgements_file(folder, description.split, notes), description, notes)

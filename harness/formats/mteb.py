"""Folders of retrieval sets as the hub has them for MTEB: parts as folders of Parquet or JSON lines.

``corpus``, ``queries`` and ``qrels`` (or ``data``, or ``default``) are each a file or a folder of numbered
pieces; the pieces of judgements begin with the split's name: ``qrels/test-00000-of-00001.parquet``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from harness.formats.description import read_description
from harness.formats.folders import SPLITS, Parts
from harness.formats.judgements import read_judgements
from harness.formats.languages import with_languages
from harness.formats.reading import DataError, shown
from harness.formats.records import OBJECTS, read_documents, read_queries
from rag_core.types import Document, Qrel, Query

__all__ = ["load", "matches"]

JUDGEMENTS = ("qrels", "data", "default")
TABULAR = (*OBJECTS, ".tsv")
Item = TypeVar("Item", Document, Query)


def matches(path: Path) -> bool:
    """Whether all three parts are here, and not as a BEIR folder has them."""
    corpus, queries = _pieces(path, "corpus"), _pieces(path, "queries")
    folder = _judgements_folder(path)
    if not (corpus and queries and folder):
        return False
    kept = _pieces_of(folder)
    return any(file.suffix == ".parquet" or file.parent != path for file in (*corpus, *queries)) or all(
        file.suffix in OBJECTS for file in kept
    )


def load(path: Path) -> Parts:
    """Read the folder; the split is the description's, else the first of test, dev, validation, train.

    Raises:
        MissingExtraError: a part is Parquet and pyarrow is not installed.
        DataError: a part is missing or cannot be read as it stands.
    """
    folder = _judgements_folder(path)
    corpus, queries = _pieces(path, "corpus"), _pieces(path, "queries")
    if not (corpus and queries and folder):
        found = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else "a file"
        raise DataError(
            path, None, f"found {found}; accepted: corpus, queries and qrels (one language's set)"
        )
    about, notes = read_description(path), list[str]()
    documents = _together(corpus, [read_documents(file, notes) for file in corpus])
    asked = _together(queries, [read_queries(file, notes) for file in queries])
    qrels: dict[tuple[str, str], Qrel] = {}
    for file in _of_split(folder, about.split, notes):
        for qrel in read_judgements(file, notes):
            known = qrels.setdefault((qrel.query_id, qrel.doc_id), qrel)
            if known != qrel:
                raise DataError(
                    file, None, f"query {shown(qrel.query_id)} and document {shown(qrel.doc_id)} have grade "
                    f"{qrel.relevance} here and {known.relevance} before; accepted: one grade for a pair",
                )  # fmt: skip
    return with_languages(Parts(documents, asked, tuple(qrels.values()), about, tuple(notes)))


def _pieces_of(place: Path) -> list[Path]:
    files = sorted(place.glob("*")) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and file.suffix in TABULAR]


def _pieces(path: Path, stem: str) -> list[Path]:
    inside = _pieces_of(path / stem) if (path / stem).is_dir() else []
    return inside or next(([f] for s in OBJECTS if (f := path / f"{stem}{s}").is_file()), [])


def _judgements_folder(path: Path) -> Path | None:
    places = [path / name for name in JUDGEMENTS] + [path / f"qrels{suffix}" for suffix in OBJECTS]
    return next((place for place in places if place.exists() and _pieces_of(place)), None)


def _of_split(folder: Path, split: str, notes: list[str]) -> list[Path]:
    by_split: dict[str, list[Path]] = {}
    for file in _pieces_of(folder):
        by_split.setdefault(file.stem.partition("-")[0], []).append(file)
    wanted = (split,) if split else SPLITS
    chosen = next((name for name in wanted if name in by_split), None)
    if chosen is None and not split and len(by_split) == 1:
        chosen = next(iter(by_split))
    if chosen is None:
        raise DataError(
            folder, None, f"no judgements of split {split or 'test'!r} among {sorted(by_split)}; "
            "accepted: files that begin with the split's name, or a split named in dataset.toml",
        )  # fmt: skip
    others = sorted(set(by_split) - {chosen})
    if others:
        notes.append(f"judgements read of split {chosen}; not read: {', '.join(others)}")
    return by_split[chosen]


def _together(files: list[Path], parts: list[tuple[Item, ...]]) -> tuple[Item, ...]:
    seen: dict[str, Path] = {}
    for file, part in zip(files, parts):
        for item in part:
            identifier = item.doc_id if isinstance(item, Document) else item.query_id
            first = seen.setdefault(identifier, file)
            if first != file:
                raise DataError(
                    file,
                    None,
                    f"id {shown(identifier)} stands already in {first.name}; accepted: each id once",
                )
    return tuple(item for part in parts for item in part)

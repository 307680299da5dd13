"""A data set: documents, queries and judgements, read from a path or by the name of a shipped one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.formats import FORMATS, REMOTE, format_named, recognise
from harness.formats.description import read_description
from harness.formats.folders import Parts, read_parts
from harness.formats.reading import DataError
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import nearest
from rag_core.types import Document, Qrel, Query

__all__ = [
    "DataError",
    "Dataset",
    "DatasetInfo",
    "absolute_data",
    "count_notes",
    "list_datasets",
    "load_dataset",
    "load_tables",
    "split_format",
    "table_paths",
    "with_format",
]

#: Where a query searches when a data set says nothing: within its own value of this metadata field,
#: provided that every document and every query has one.
SCOPE_FIELD = "scope"


@dataclass(frozen=True)
class Dataset:
    """Documents, queries and judgements.

    Attributes:
        name: short name.
        documents: in the order of the file; empty ones included.
        queries: in the order of the file; those without a judgement included.
        qrels: one for each judged pair, negative grades included.
        languages: codes; those of the documents come first.
        licence: of the content.
        headline: ids of the queries shown first.
        scope: metadata field within which each query searches; empty for the whole corpus.
        path: folder or files it was read from.
        notes: what the readers put right or found odd, for people.
        query_languages: the queries' languages where they differ from the documents'.
        description: one sentence.
    """

    name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    qrels: tuple[Qrel, ...]
    languages: tuple[str, ...] = ()
    licence: str = ""
    headline: tuple[str, ...] = ()
    scope: str = ""
    path: str = ""
    notes: tuple[str, ...] = ()
    query_languages: tuple[str, ...] = ()
    description: str = ""

    @property
    def empty_documents(self) -> tuple[Document, ...]:
        """Documents without title and text: known ids that are never hits."""
        return tuple(document for document in self.documents if document.is_empty)

    @cached_property
    def relevance(self) -> dict[str, dict[str, int]]:
        """Query id → document id → grade, for the judged queries of this set.

        Judgements of queries that are not in the set are left out; those of unknown documents stay, and
        count as relevant documents that no system can find. ``bench data check`` reports both.
        """
        known = {query.query_id for query in self.queries}
        grades: dict[str, dict[str, int]] = {}
        for qrel in self.qrels:
            if qrel.query_id in known:
                grades.setdefault(qrel.query_id, {})[qrel.doc_id] = qrel.relevance
        return grades

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of ``corpus``, ``queries`` and ``qrels``: of the content, not of the files.

        Order, line endings, byte-order mark, layout and format do not change them.
        """
        return {
            "corpus": _digest([d.doc_id, d.title, d.text, d.metadata] for d in self.documents),
            "queries": _digest([q.query_id, q.text, q.metadata] for q in self.queries),
            "qrels": _digest([q.query_id, q.doc_id, q.relevance] for q in self.qrels),
        }

    @property
    def corpus_hash(self) -> str:
        """SHA-256 of the documents."""
        return self.hashes["corpus"]

    @property
    def queries_hash(self) -> str:
        """SHA-256 of the queries."""
        return self.hashes["queries"]

    @property
    def qrels_hash(self) -> str:
        """SHA-256 of the judgements."""
        return self.hashes["qrels"]

    @property
    def hash(self) -> str:
        """SHA-256 over all three."""
        return _digest([list(self.hashes.items())])


def _digest(records: Iterable[list[Any]]) -> str:
    lines = (
        json.dumps(record, sort_keys=True, ensure_ascii=True).replace("\\r\\n", "\\n") for record in records
    )
    whole = hashlib.sha256()
    for line in sorted(lines):
        whole.update(line.encode() + b"\n")
    return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One line of ``bench data list``."""

    name: str
    path: str
    description: str
    licence: str
    languages: tuple[str, ...]
    n_documents: int
    n_queries: int
    n_judgements: int


def fixture_folders() -> list[Path]:
    """Where shipped data sets are looked for: beside the checkout's sources, then inside the package."""
    package = Path(__file__).resolve().parent
    folders = [package / "fixtures"]
    if (package.parent / "pyproject.toml").is_file():  # else the folder above belongs to somebody else
        folders.insert(0, package.parent / "fixtures")
    return folders


def _shipped() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in fixture_folders():
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if any(form.matches(path) for form in FORMATS):
                found.setdefault(path.name, path)
    return found


def list_datasets() -> list[DatasetInfo]:
    """The shipped data sets, by name.

    Raises:
        DataError: one of them cannot be read.
    """
    made = []
    for name, path in sorted(_shipped().items()):
        data = load_dataset(path)
        counts = len(data.documents), len(data.queries), len(data.qrels)
        made.append(DatasetInfo(name, str(path), data.description, data.licence, data.languages, *counts))
    return made


def load_dataset(name_or_path: str | Path) -> Dataset:
    """Read the shipped data set of that name, or the one at that path.

    A name wins over a folder of the same name in the current folder; write ``./name`` for the folder.
    A path may have the name of its form before it (``squad:train.json``), and sets of other places are
    named ``irds:ID`` and ``hf:OWNER/NAME`` (see :data:`harness.formats.REMOTE`). Three files joined as
    :func:`table_paths` joins them are read as :func:`load_tables` reads them.

    Raises:
        UnknownNameError: neither exists; says where it looked and which names are near.
        DataError: a file cannot be read as it stands; names file and line.
    """
    text = str(name_or_path)
    files = text.split(os.pathsep)
    if len(files) == 3 and not Path(text).exists():
        return load_tables(*files)
    form, rest = split_format(text)
    if form in REMOTE:
        return _dataset(rest.rpartition("/")[2], text, REMOTE[form](rest))
    shipped = _shipped()
    path = shipped.get(rest) or Path(rest).expanduser()
    if not path.exists():
        looked = ", ".join(str(folder) for folder in (Path.cwd(), *fixture_folders()))
        raise UnknownNameError(f"no data set {text!r}: looked in {looked}{nearest(text, shipped)}")
    reader = format_named(form) if form else recognise(path)
    name = path.resolve().name if path.is_dir() else path.stem
    return _dataset(name, f"{form}:{path}" if form else str(path), reader.load(path))


def split_format(data: str) -> tuple[str, str]:
    """What stands before the colon, if it names a form or another place and no file is called so."""
    form, _, rest = data.partition(":")
    named = form in REMOTE or any(form == known.name for known in FORMATS)
    return (form, rest) if rest and named and not Path(data).exists() else ("", data)


def with_format(data: str, form: str) -> str:
    """``data`` with the name of its form before it, as :func:`load_dataset` takes it; absolute.

    Raises:
        UnknownNameError: no such form.
        InvalidArgumentError: ``data`` is empty, or names its form already.
    """
    already = split_format(data)[0]
    if not data or (already and already != form):
        raise InvalidArgumentError(
            f"--format {form} with --data {data!r}; accepted: a file or folder as --data"
        )
    return absolute_data(data if already else f"{form if form in REMOTE else format_named(form).name}:{data}")


def absolute_data(data: str) -> str:
    """A data set given as a path, for a process that may stand elsewhere; a name as it is."""
    form, rest = split_format(data)
    path = Path(rest).expanduser()
    if form in REMOTE or not path.exists() or rest in _shipped():
        return data
    return f"{form}:{path.resolve()}" if form else str(path.resolve())


def load_tables(corpus: str | Path, queries: str | Path, qrels: str | Path) -> Dataset:
    """Read three files wherever they lie: corpus and queries as ``.csv``, ``.tsv`` or ``.jsonl``.

    A ``dataset.toml`` beside the corpus describes the set.

    Raises:
        DataError: a file cannot be read as it stands; names file and line.
    """
    paths = Path(corpus), Path(queries), Path(qrels)
    return _dataset(
        paths[0].resolve().parent.name,
        table_paths(*paths),
        read_parts(*paths, description=read_description(paths[0].parent)),
    )


def table_paths(corpus: str | Path, queries: str | Path, qrels: str | Path) -> str:
    """Three files as the one string that :func:`load_dataset` takes; absolute."""
    return os.pathsep.join(os.path.abspath(path) for path in (corpus, queries, qrels))


def _dataset(folder: str, path: str, parts: Parts) -> Dataset:
    about, notes = parts.description, list(parts.notes)
    scope = about.scope
    if scope is None:
        records: tuple[Document | Query, ...] = (*parts.documents, *parts.queries)
        scope = SCOPE_FIELD if records and all(SCOPE_FIELD in r.metadata for r in records) else ""
        if scope:
            notes.append(
                f"each query searches within its metadata {scope!r}; to search everything: "
                'scope = "" in dataset.toml'
            )
    data = Dataset(
        name=about.name or folder,
        documents=parts.documents,
        queries=parts.queries,
        qrels=parts.qrels,
        languages=about.languages,
        licence=about.licence,
        headline=about.headline,
        scope=scope,
        path=path,
        query_languages=about.query_languages,
        description=about.description,
    )
    return replace(data, notes=(*notes, *count_notes(data), *_changes(data, about.hashes)))


def count_notes(data: Dataset) -> list[str]:
    """What :attr:`Dataset.notes` says about empty documents and missing or foreign judgements."""
    foreign = sum(qrel.query_id not in data.relevance for qrel in data.qrels)
    unjudged = sum(query.query_id not in data.relevance for query in data.queries)
    counted = (
        (len(data.empty_documents), "empty documents, known ids that are never hits"),
        (unjudged, "queries without a judgement"),
        (foreign, "judgements of queries that are not in the set, left out"),
    )
    return [f"{words}: {number}" for number, words in counted if number]


def _changes(data: Dataset, written: Mapping[str, str]) -> list[str]:
    return [
        f"{part} has changed since dataset.toml was written: {data.hashes[part][:16]}, then {digest[:16]}"
        for part, digest in written.items()
        if part in data.hashes and not data.hashes[part].startswith(digest)
    ]

"""Sets of the package ir_datasets by their ids: ``irds:beir/scifact/test``, ``irds:cranfield``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from harness.formats.description import Description
from harness.formats.folders import Parts
from harness.formats.judgements import collect
from harness.formats.languages import with_languages
from harness.formats.reading import DataError, shown
from harness.formats.records import documents_from, queries_from
from rag_core.errors import ProviderUnavailableError, RagCoreError, UnknownNameError
from rag_core.extras import require
from rag_core.registry import nearest

__all__ = ["load"]

#: What a query's text is called, best first, where the package does not say.
QUERY_FIELDS = ("text", "query", "title", "question", "description")
OFFLINE = (
    "a set is downloaded at its first use into ~/.ir_datasets (IR_DATASETS_HOME); to work without the "
    "network, copy that folder from a machine that has it, or give the set's own files with --data FOLDER"
)


def load(name: str) -> Parts:
    """Read the set of that id, downloading it where it is not on disk yet.

    Raises:
        MissingExtraError: ir_datasets is not installed.
        UnknownNameError: it knows no such set; names the nearest.
        ProviderUnavailableError: the set is not on disk and cannot be downloaded.
        DataError: the set has no documents, queries or judgements of its own, or a pair has two grades.
    """
    package = require("irds:" + name, "ir_datasets", "irds")
    try:
        found = package.load(name)
    except KeyError as error:
        raise UnknownNameError(
            f"ir_datasets knows no set {name!r}{nearest(name, list(package.registry))}"
        ) from error
    where = Path(f"irds:{name}")
    lacking = [part for part in ("docs", "queries", "qrels") if not getattr(found, f"has_{part}")()]
    if lacking:
        inside = [other for other in package.registry if other.startswith(f"{name}/")][:5]
        raise DataError(
            where,
            None,
            f"has no {', no '.join(lacking)}; accepted: a set with all three, such as one of {inside}",
        )
    notes: list[str] = []
    documents = documents_from(where, _read(name, found.docs_iter, _document), notes)
    queries = queries_from(where, _read(name, found.queries_iter, _query), notes)
    judged = (
        (line, values["query"], values["document"], values["grade"])
        for line, values in _read(name, found.qrels_iter, _judgement)
    )
    qrels = collect(where, judged, notes)
    described = Description(name=name.replace("/", "-"), languages=_languages(found))
    return with_languages(Parts(documents, queries, qrels, described, tuple(notes)))


def _read(
    name: str, records: Callable[[], Any], convert: Callable[[Any], dict[str, Any]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The converted records with their numbers; what the package raises becomes one readable line."""
    numbers = count(1)
    try:
        for record in records():
            yield next(numbers), convert(record)
    except RagCoreError:
        raise
    except Exception as error:  # downloads fail with the errors of whatever library fetched them
        raise ProviderUnavailableError(
            f"irds:{name}",
            f"it cannot be read or downloaded ({type(error).__name__}: {shown(str(error), 160)})",
            OFFLINE,
        ) from error


def _document(record: Any) -> dict[str, Any]:
    title = getattr(record, "title", None) or ""
    text = getattr(record, "text", None)
    if text is None:  # the package's own choice of fields; a title is in it already
        return {"_id": record.doc_id, "text": record.default_text()}
    return {"_id": record.doc_id, "title": title, "text": text}


def _query(record: Any) -> dict[str, Any]:
    text = next((value for name in QUERY_FIELDS if (value := getattr(record, name, None))), "")
    return {"_id": record.query_id, "text": text}


def _judgement(record: Any) -> dict[str, Any]:
    return {"query": record.query_id, "document": record.doc_id, "grade": str(record.relevance)}


def _languages(found: Any) -> tuple[str, ...]:
    named = (getattr(found, "docs_lang", lambda: None)(), getattr(found, "queries_lang", lambda: None)())
    return tuple(dict.fromkeys(language for language in named if language))

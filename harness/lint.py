"""What is odd about a data set, before anybody measures with it."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.datasets import Dataset, count_notes

__all__ = ["Finding", "check"]

ERROR, WARNING = "error", "warning"
EXAMPLES = 5
_LEADING_ZEROS = re.compile(r"(?<![\d.,])0+(?=\d)")


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of fault.

    Attributes:
        severity: ``error`` (figures would be wrong) or ``warning`` (worth a look).
        code: stable short name.
        message: what is wrong, what it means for the figures, and how many.
        examples: up to five ids, or ids that belong together.
        count: how many there are.
    """

    severity: str
    code: str
    message: str
    examples: tuple[str, ...]
    count: int


def check(dataset: Dataset) -> list[Finding]:
    """All findings, errors first; empty for a sound data set."""
    findings = []
    for severity, code, message, examine in _CHECKS:
        found = list(dict.fromkeys(examine(dataset)))
        if found:
            text = f"{message} ({len(found)})"
            findings.append(Finding(severity, code, text, tuple(found[:EXAMPLES]), len(found)))
    counted = count_notes(dataset)  # has findings of its own above
    findings += [Finding(WARNING, "reading", note, (), 1) for note in dataset.notes if note not in counted]
    return sorted(findings, key=lambda finding: finding.severity)


def _unknown_queries(data: Dataset) -> Iterator[str]:
    known = {query.query_id for query in data.queries}
    return (qrel.query_id for qrel in data.qrels if qrel.query_id not in known)


def _unknown_documents(data: Dataset) -> Iterator[str]:
    known = {document.doc_id for document in data.documents}
    return (f"{q.query_id} → {q.doc_id}" for q in data.qrels if q.doc_id not in known)


def _unknown_headline(data: Dataset) -> Iterator[str]:
    known = {query.query_id for query in data.queries}
    return (query_id for query_id in data.headline if query_id not in known)


def _no_judgements(data: Dataset) -> Iterator[str]:
    if not any(qrel.relevance >= 1 for qrel in data.qrels):
        yield data.name


def _without_relevant(data: Dataset) -> Iterator[str]:
    relevant = {qrel.query_id for qrel in data.qrels if qrel.relevance >= 1}
    return (query.query_id for query in data.queries if query.query_id not in relevant)


def _relevant_but_empty(data: Dataset) -> Iterator[str]:
    empty = {document.doc_id for document in data.empty_documents}
    return (f"{q.query_id} → {q.doc_id}" for q in data.qrels if q.relevance >= 1 and q.doc_id in empty)


def _empty_documents(data: Dataset) -> Iterator[str]:
    return (document.doc_id for document in data.empty_documents)


def _blank_queries(data: Dataset) -> Iterator[str]:
    return (query.query_id for query in data.queries if not query.text.strip())


def _duplicate_documents(data: Dataset) -> Iterator[str]:
    texts = (
        (d.doc_id, _folded(d.indexed_text) + _scope(data, d.metadata))
        for d in data.documents
        if not d.is_empty
    )
    return _together(texts)


def _duplicate_queries(data: Dataset) -> Iterator[str]:
    return _together(
        (q.query_id, _folded(q.text) + _scope(data, q.metadata)) for q in data.queries if q.text.strip()
    )


def _leaked_queries(data: Dataset) -> Iterator[str]:
    documents: dict[str, str] = {}
    for document in data.documents:
        for text in (document.text, document.indexed_text):
            documents.setdefault(_folded(text), document.doc_id)
    documents.pop("", None)
    for query in data.queries:
        doc_id = documents.get(_folded(query.text))
        if doc_id is not None:
            yield f"{query.query_id} = {doc_id}"


def _alike_documents(data: Dataset) -> Iterator[str]:
    return _together((document.doc_id, _form(document.doc_id)) for document in data.documents)


def _alike_queries(data: Dataset) -> Iterator[str]:
    return _together((query.query_id, _form(query.query_id)) for query in data.queries)


def _together(keyed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The ids of each key that has several, joined."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for identifier, key in keyed:
        groups[key].append(identifier)
    return (" = ".join(repr(i) for i in ids) for ids in groups.values() if len(ids) > 1)


def _scope(data: Dataset, metadata: Mapping[str, Any]) -> str:
    """What keeps equal texts of two scopes apart: they never meet in one search."""
    return f"\x00{metadata.get(data.scope, '')}" if data.scope else ""


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _form(identifier: str) -> str:
    """``identifier`` without case, blanks, Unicode form and leading zeros."""
    folded = "".join(unicodedata.normalize("NFKC", identifier).casefold().split())
    return _LEADING_ZEROS.sub("", folded)


#: severity, code, the message before the number, ids found.
_CHECKS: tuple[tuple[str, str, str, Callable[[Dataset], Iterator[str]]], ...] = (
    (
        ERROR,
        "dangling-query",
        "judged queries are not in the set; their judgements are left out",
        _unknown_queries,
    ),
    (
        ERROR,
        "dangling-document",
        "judged documents are not in the corpus; no system can find them",
        _unknown_documents,
    ),
    (ERROR, "unknown-headline", "headline queries are not in the set", _unknown_headline),
    (
        ERROR,
        "no-relevant",
        "no judgement says that anything is relevant; nothing can be measured",
        _no_judgements,
    ),
    (ERROR, "relevant-empty", "relevant documents are empty; no system can find them", _relevant_but_empty),
    (ERROR, "blank-query", "queries are blank; they find nothing", _blank_queries),
    (
        WARNING,
        "query-without-relevant",
        "queries have no relevant document; they take no part in any mean",
        _without_relevant,
    ),
    (WARNING, "empty-document", "documents are empty; they are never hits", _empty_documents),
    (
        WARNING,
        "duplicate-document",
        "texts stand under several document ids; perhaps only one of them is judged",
        _duplicate_documents,
    ),
    (
        WARNING,
        "duplicate-query",
        "texts stand under several query ids; they count several times",
        _duplicate_queries,
    ),
    (WARNING, "leaked-query", "queries equal a document's text; they are found too easily", _leaked_queries),
    (
        WARNING,
        "similar-document-id",
        "sets of document ids differ in form only (case, blanks, Unicode, zeros)",
        _alike_documents,
    ),
    (
        WARNING,
        "similar-query-id",
        "sets of query ids differ in form only (case, blanks, Unicode, zeros)",
        _alike_queries,
    ),
)

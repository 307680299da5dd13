"""How many of a query's content words its relevant documents contain: what a lexical search can go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log1p
from typing import Any

from harness.datasets import Dataset
from rag_core.analysis import Analyser

__all__ = ["Overlap", "overlap_record", "query_overlap"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """One query's words against its relevant documents.

    Attributes:
        words: distinct content words of the query, stemmed.
        shared: those of them that occur in any relevant document.
        share: ``shared / words``; None for a query without content words.
        idf_share: the same where each word counts by its idf, so that a name that every document has
            counts little; None likewise.
    """

    words: int
    shared: int
    share: float | None
    idf_share: float | None


def query_overlap(dataset: Dataset, analyser: Analyser | None = None) -> dict[str, Overlap]:
    """Query id → overlap, for the queries that have a relevant document.

    Words are what BM25 indexes: folded, without function words, stemmed, each text in its own language.
    The idf of a word in n of N documents is ln(1 + (N - n + 0.5) / (n + 0.5)), as BM25 has it, over all
    documents. Relevant documents that are not in the set contain nothing.

    Args:
        dataset: documents, queries, judgements.
        analyser: default: that of BM25 for the languages of the set.
    """
    analyser = analyser or Analyser.for_languages((*dataset.languages, *dataset.query_languages))
    relevant = {
        query_id: {doc_id for doc_id, grade in grades.items() if grade >= 1}
        for query_id, grades in dataset.relevance.items()
    }
    needed = set().union(*relevant.values()) if relevant else set()
    kept: dict[str, frozenset[str]] = {}
    found_in: Counter[str] = Counter()
    for document in dataset.documents:
        terms = frozenset(analyser.analyse(document.indexed_text, _lang(document.metadata)))
        found_in.update(terms)
        if document.doc_id in needed:
            kept[document.doc_id] = terms
    n_filled = len(dataset.documents) - len(dataset.empty_documents)
    made = {}
    for query in dataset.queries:
        documents = relevant.get(query.query_id)
        if not documents:
            continue
        words = analyser.content_words(query.text, _lang(query.metadata))
        texts = [kept[doc_id] for doc_id in documents if doc_id in kept]
        shared = words.intersection(frozenset().union(*texts))
        # sorted: a sum of floats depends on its order, and a set's is another in every process
        weight = {
            word: log1p((n_filled - found_in[word] + 0.5) / (found_in[word] + 0.5)) for word in sorted(words)
        }
        total = sum(weight.values())
        made[query.query_id] = Overlap(
            words=len(words),
            shared=len(shared),
            share=len(shared) / len(words) if words else None,
            idf_share=sum(weight[word] for word in sorted(shared)) / total if total else None,
        )
    return made


def overlap_record(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """:func:`query_overlap` as a result keeps it: query id → the four values, shares to six decimals."""
    return {
        query_id: {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(found).items()
        }
        for query_id, found in sorted(query_overlap(dataset).items())
    }


def _lang(metadata: Mapping[str, object]) -> str | None:
    language = metadata.get("lang")
    return language if isinstance(language, str) else None

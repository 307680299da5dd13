"""BM25 engines by name: ours, and two well-known ones on the same terms, for comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.errors import InvalidArgumentError, MissingExtraError, UnknownNameError
from rag_core.filters import compile_where
from rag_core.registry import nearest
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking, Run

__all__ = ["ENGINES", "LexicalEngine", "get_lexical"]


class LexicalEngine(Protocol):
    """A retriever that says what it ran."""

    name: str

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """As of :class:`rag_core.protocols.Retriever`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Engine, analyser and constants."""
        ...


class _Peer:
    """What the two other engines have in common: terms from the analyser, hits only where a term is shared."""

    name = ""

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        given = list(documents)
        self.documents = [d for d in given if not d.is_empty]
        self.analyser, self.k1, self.b = analyser, k1, b
        self._n_empty = len(given) - len(self.documents)
        self.terms = [analyser.analyse(d.indexed_text, d.metadata.get("lang")) for d in self.documents]
        self._sets = [frozenset(terms) for terms in self.terms]

    def scores(self, terms: list[str]) -> Sequence[float]:
        """The engine's score of every document."""
        raise NotImplementedError

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` documents that share a term with the query."""
        if k < 1:
            raise InvalidArgumentError(f"k is {k}; accepted: a whole number from 1")
        matches = compile_where(where) if where else None
        rankings: dict[str, Ranking] = {}
        for query in queries:
            terms = self.analyser.analyse(query.text, query.metadata.get("lang"), as_query=True)
            asked = frozenset(terms)
            if not asked or not any(self.terms):
                rankings[query.query_id] = EMPTY_RANKING
                continue
            rankings[query.query_id] = Ranking.from_scores(
                (
                    (document.doc_id, float(score))
                    for document, found, score in zip(self.documents, self._sets, self.scores(terms))
                    if not asked.isdisjoint(found) and (matches is None or matches(document.metadata))
                ),
                k,
            )
        return Run(self.name, rankings)

    def describe(self) -> dict[str, Any]:
        """Engine, analyser, constants and sizes."""
        counts = Counter(term for terms in self.terms for term in terms)
        return {
            "engine": self.name,
            "analyser": self.analyser.name,
            "k1": self.k1,
            "b": self.b,
            "n_documents": len(self.documents),
            "n_empty": self._n_empty,
            "n_terms": len(counts),
        }


class Bm25sEngine(_Peer):
    """bm25s, method ``lucene``. It raises for k past the corpus and answers unknown terms with zeros."""

    name = "bm25s"

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MissingExtraError(self.name, "bm25s", "lexical") from error
        super().__init__(documents, analyser, k1, b)
        self._engine = bm25s.BM25(method="lucene", k1=k1, b=b)
        if any(self.terms):
            self._engine.index(self.terms, show_progress=False)

    def scores(self, terms: list[str]) -> Sequence[float]:
        """The engine's score of every document."""
        known = [term for term in terms if term in self._engine.vocab_dict]
        return self._engine.get_scores(known) if known else np.zeros(len(self.documents))  # type: ignore[return-value]


class RankBm25Engine(_Peer):
    """rank_bm25's BM25Okapi, whose idf can be zero or negative; its scores are left as they are."""

    name = "rank_bm25"

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        try:
            import rank_bm25
        except ImportError as error:
            raise MissingExtraError(self.name, "rank_bm25", "lexical") from error
        super().__init__(documents, analyser, k1, b)
        self._engine = rank_bm25.BM25Okapi(self.terms, k1=k1, b=b) if any(self.terms) else None

    def scores(self, terms: list[str]) -> Sequence[float]:
        """The engine's score of every document."""
        return self._engine.get_scores(terms)  # type: ignore[union-attr, no-any-return]


def _ours(documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> LexicalEngine:
    return BM25.build(documents, analyser, k1, b)


ENGINES: Mapping[str, Callable[[Iterable[Document], Analyser, float, float], LexicalEngine]] = {
    "bm25": _ours,
    "bm25s": Bm25sEngine,
    "rank_bm25": RankBm25Engine,
}


def get_lexical(
    name: str,
    documents: Iterable[Document],
    analyser: Analyser | None = None,
    k1: float = 1.2,
    b: float = 0.75,
) -> LexicalEngine:
    """Index ``documents`` with the engine of that name.

    Raises:
        UnknownNameError: no engine of that name.
        MissingExtraError: its package is not installed.
    """
    if name not in ENGINES:
        raise UnknownNameError(f"unknown lexical engine {name!r}{nearest(name, ENGINES)}")
    return ENGINES[name](documents, analyser or Analyser.for_languages(("en", "es", "pt")), k1, b)

"""BM25 engines by name: ours, and two well-known ones on the same terms, for comparison."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25, SCORERS
from rag_core.bm25_counts import postings
from rag_core.errors import MissingExtraError, SpecStringError, UnknownNameError
from rag_core.factory import SpecString
from rag_core.filters import compile_where
from rag_core.registry import nearest
from rag_core.types import EMPTY_RANKING, Document, Query, Ranking, Run, check_k

__all__ = ["ENGINES", "LexicalEngine", "get_lexical", "parse_lexical"]


class LexicalEngine(Protocol):
    """A retriever that says what it ran."""

    name: str

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """As of :class:`rag_core.protocols.Retriever`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Engine, analyser and constants."""
        ...


class _Peer(ABC):
    """The two other engines: terms from the analyser, hits only where a term is shared.

    What is added around an engine is done on arrays, so that its time stays close to its own.
    """

    name = ""
    idf = ""

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        given = list(documents)
        self.documents = [d for d in given if not d.is_empty]
        self.analyser, self.k1, self.b = analyser, k1, b
        self._n_empty = len(given) - len(self.documents)
        languages = [d.metadata.get("lang") for d in self.documents]
        analysed = analyser.analyse_many([d.indexed_text for d in self.documents], languages)
        self._numbers = {term: number for number, term in enumerate(analysed.terms)}
        self._postings = postings(analysed.ids, analysed.lengths, len(analysed.terms), k1, b)
        ends = np.cumsum(analysed.lengths)
        terms = np.array(analysed.terms, object)
        self.terms: list[list[str]] = [
            terms[analysed.ids[end - n : end]].tolist() for end, n in zip(ends, analysed.lengths)
        ]

    @abstractmethod
    def scores(self, terms: list[str]) -> NDArray[Any]:
        """The engine's score of every document, shape ``(n_documents,)``; ``terms`` are all indexed."""

    def search(self, queries: Sequence[Query], k: int, where: Mapping[str, Any] | None = None) -> Run:
        """The best ``k`` documents that share a term with the query."""
        check_k(k)
        allowed = None
        if where:
            matches = compile_where(where)
            allowed = np.fromiter((matches(d.metadata) for d in self.documents), bool, len(self.documents))
        return Run(self.name, {query.query_id: self._top(query, k, allowed) for query in queries})

    def _top(self, query: Query, k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        asked = self.analyser.analyse(query.text, query.metadata.get("lang"), as_query=True)
        known = [term for term in asked if term in self._numbers]
        if not known:
            return EMPTY_RANKING
        starts, rows = self._postings["starts"], self._postings["rows"]
        numbers = {self._numbers[term] for term in known}
        hits = np.concatenate([rows[starts[number] : starts[number + 1]] for number in numbers])
        sharing = np.zeros(len(self.documents), bool)
        sharing[hits] = True if allowed is None else allowed[hits]
        found = np.flatnonzero(sharing)
        scores = self.scores(known)[found].astype(np.float64)
        if k < found.size:
            near = scores >= np.partition(scores, found.size - k)[found.size - k]
            found, scores = found[near], scores[near]
        return Ranking.from_scores(
            zip((self.documents[row].doc_id for row in found.tolist()), scores.tolist()), k
        )

    def describe(self) -> dict[str, Any]:
        """Engine, analyser, constants and sizes."""
        return {
            "engine": self.name,
            "analyser": self.analyser.name,
            "k1": self.k1,
            "b": self.b,
            "idf": self.idf,
            "n_documents": len(self.documents),
            "n_empty": self._n_empty,
            "n_terms": len(self._numbers),
        }


class Bm25sEngine(_Peer):
    """bm25s, method ``lucene``. It raises for k past the corpus and answers unknown terms with zeros."""

    name = "bm25s"
    idf = "lucene: ln(1 + (N - n + 0.5) / (n + 0.5))"

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MissingExtraError(self.name, "bm25s", "lexical") from error
        super().__init__(documents, analyser, k1, b)
        self._engine = bm25s.BM25(method="lucene", k1=k1, b=b)
        if any(self.terms):
            self._engine.index(self.terms, show_progress=False)

    def scores(self, terms: list[str]) -> NDArray[Any]:
        """The engine's score of every document."""
        return self._engine.get_scores(terms)  # type: ignore[no-any-return]


class RankBm25Engine(_Peer):
    """rank_bm25's BM25Okapi, whose idf can be zero or negative; its scores are left as they are."""

    name = "rank_bm25"
    idf = "okapi: ln((N - n + 0.5) / (n + 0.5)), a negative one replaced by 0.25 of the mean"

    def __init__(self, documents: Iterable[Document], analyser: Analyser, k1: float, b: float) -> None:
        try:
            import rank_bm25
        except ImportError as error:
            raise MissingExtraError(self.name, "rank_bm25", "lexical") from error
        super().__init__(documents, analyser, k1, b)
        self._engine = rank_bm25.BM25Okapi(self.terms, k1=k1, b=b) if any(self.terms) else None

    def scores(self, terms: list[str]) -> NDArray[Any]:
        """The engine's score of every document."""
        return self._engine.get_scores(terms)  # type: ignore[union-attr, no-any-return]


ENGINES: Mapping[str, Callable[..., LexicalEngine]] = {
    "bm25": BM25.build,
    "bm25s": Bm25sEngine,
    "rank_bm25": RankBm25Engine,
}
#: Engine -> option -> values it takes.
OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {"bm25": {"engine": tuple(SCORERS)}}


def get_lexical(
    name: str,
    documents: Iterable[Document],
    analyser: Analyser | None = None,
    k1: float = 1.2,
    b: float = 0.75,
) -> LexicalEngine:
    """Index ``documents`` with the engine that ``name`` names, for example ``bm25?engine=numba``.

    Raises:
        SpecStringError, UnknownNameError: as of :func:`parse_lexical`.
        MissingExtraError: its package is not installed.
    """
    known, options = parse_lexical(name)
    analyser = analyser or Analyser.for_languages(("en", "es", "pt"))
    return ENGINES[known](documents, analyser, k1, b, **options)


def parse_lexical(text: str) -> tuple[str, dict[str, str]]:
    """Engine and options of ``bm25``, ``bm25?engine=numba``, ``bm25s`` or ``rank_bm25``.

    Raises:
        SpecStringError: ``text`` is no such string, or has an option that the engine does not take.
        UnknownNameError: no engine of that name.
    """
    parsed = SpecString.parse(text)
    if parsed.name not in ENGINES:
        raise UnknownNameError(f"unknown lexical engine {parsed.name!r}{nearest(parsed.name, ENGINES)}")
    accepted = OPTIONS.get(parsed.name, {})
    for option, value in parsed.options.items():
        if value not in accepted.get(option, ()):
            forms = ", ".join(f"{o}={v}" for o, values in accepted.items() for v in values)
            raise SpecStringError(f"lexical engine {text!r}: accepted: {forms or 'no options'}")
    if parsed.model or parsed.target:
        raise SpecStringError(f"lexical engine {text!r}: it has neither model nor target")
    return parsed.name, dict(parsed.options)

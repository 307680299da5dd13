"""The values that pass between all parts: documents, queries, judgements, rankings, runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rag_core.errors import InvalidArgumentError, RankingError

__all__ = ["Document", "Qrel", "Query", "Ranking", "Run", "ScoredDoc", "check_k"]


def check_k(k: int) -> None:
    """Raises InvalidArgumentError unless ``k``, a number of documents asked for, is at least 1."""
    if k < 1:
        raise InvalidArgumentError(f"k is {k}; accepted: a whole number from 1")


@dataclass(frozen=True, slots=True)
class Document:
    """One retrievable text. ``metadata`` holds plain JSON values, for filters and templates."""

    doc_id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def indexed_text(self) -> str:
        """The one definition of what is embedded and indexed: title and text, joined by a newline."""
        title, text = self.title.strip(), self.text.strip()
        return f"{title}\n{text}" if title and text else title or text

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to index: such a document stays a known id but is never a hit."""
        return not self.indexed_text


@dataclass(frozen=True, slots=True)
class Query:
    """One information need. ``metadata`` holds tags such as ``lang`` and ``kind``."""

    query_id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Qrel:
    """One relevance judgement; ``relevance`` of 1 or more counts as relevant."""

    query_id: str
    doc_id: str
    relevance: int


@dataclass(frozen=True, slots=True)
class ScoredDoc:
    """A document id with its score; higher is better."""

    doc_id: str
    score: float


class Ranking(Sequence[ScoredDoc]):
    """The documents found for one query, best first. Made only by :meth:`from_scores`.

    The order is score descending, then document id descending by code point (the same order as by
    UTF-8 bytes), which is trec_eval's rule. Every metric, fusion and export reads this order.
    """

    __slots__ = ("doc_ids", "duplicates", "scores")

    doc_ids: tuple[str, ...]
    scores: tuple[float, ...]
    duplicates: int

    def __init__(self) -> None:
        raise TypeError("use Ranking.from_scores(pairs)")

    @classmethod
    def _of(cls, pairs: Sequence[tuple[str, float]], duplicates: int) -> Ranking:
        ranking = object.__new__(cls)
        ranking.doc_ids = tuple(doc_id for doc_id, _ in pairs)
        ranking.scores = tuple(score for _, score in pairs)
        ranking.duplicates = duplicates
        return ranking

    @classmethod
    def _ordered(cls, doc_ids: Iterable[str], scores: Iterable[float]) -> Ranking:
        """Columns that are known to be distinct ids with finite scores in the order of a ranking."""
        ranking = object.__new__(cls)
        ranking.doc_ids, ranking.scores, ranking.duplicates = tuple(doc_ids), tuple(scores), 0
        return ranking

    @classmethod
    def from_scores(
        cls, scores: Mapping[str, float] | Iterable[tuple[str, float]], k: int | None = None
    ) -> Ranking:
        """Rank ``scores`` and keep the best ``k`` (all when None).

        A repeated id keeps its best score; ``duplicates`` counts the copies dropped.

        Raises:
            RankingError: a score is NaN, an id is not a non-empty string, or ``k`` is below 1.
        """
        if k is not None and k < 1:
            raise RankingError(f"k is {k}; accepted: a whole number from 1")
        best: dict[str, float] = {}
        seen = 0
        for doc_id, raw in scores.items() if isinstance(scores, Mapping) else scores:
            score = float(raw)
            seen += 1
            if not isinstance(doc_id, str) or not doc_id:
                raise RankingError(f"document id {doc_id!r} is not a non-empty string")
            if math.isnan(score):
                raise RankingError(f"the score of document {doc_id!r} is NaN; accepted: a number")
            known = best.get(doc_id)
            if known is None or score > known:
                best[doc_id] = score
        pairs = sorted(best.items(), key=_by_id, reverse=True)
        pairs.sort(key=_by_score, reverse=True)  # stable: equal scores stay id descending
        return cls._of(pairs[:k] if k is not None else pairs, seen - len(best))

    def top(self, k: int) -> Ranking:
        """The best ``k`` of this ranking (``k`` from 1)."""
        if k < 1:
            raise RankingError(f"k is {k}; accepted: a whole number from 1")
        if k >= len(self):
            return self
        return self._of(list(zip(self.doc_ids[:k], self.scores[:k])), self.duplicates)

    def __len__(self) -> int:
        return len(self.doc_ids)

    def __iter__(self) -> Iterator[ScoredDoc]:
        return map(ScoredDoc, self.doc_ids, self.scores)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [ScoredDoc(d, s) for d, s in zip(self.doc_ids[index], self.scores[index])]
        return ScoredDoc(self.doc_ids[index], self.scores[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.doc_ids == other.doc_ids and self.scores == other.scores

    def __hash__(self) -> int:
        return hash((self.doc_ids, self.scores))

    def __repr__(self) -> str:
        head = ", ".join(f"{d}={s:.4g}" for d, s in zip(self.doc_ids[:3], self.scores[:3]))
        return f"Ranking({len(self)} documents: {head}{', …' if len(self) > 3 else ''})"


def _by_id(pair: tuple[str, float]) -> str:
    return pair[0]


def _by_score(pair: tuple[str, float]) -> float:
    return pair[1]


EMPTY_RANKING = Ranking.from_scores(())


@dataclass(frozen=True, slots=True)
class Run:
    """A system's rankings, one per answered query.

    ``failed`` maps the queries that raised to the reason; they count 0 in every metric. ``degraded`` maps
    those that were answered by a part of the system, because another part failed, to the reason.
    """

    name: str
    rankings: Mapping[str, Ranking]
    failed: Mapping[str, str] = field(default_factory=dict)
    degraded: Mapping[str, str] = field(default_factory=dict)

    def strictly_decreasing(self, query_id: str) -> bool:
        """Whether no two scores of ``query_id`` are equal."""
        return all(a > b for a, b in pairwise(self.rankings[query_id].scores))

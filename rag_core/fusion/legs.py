"""What goes into a fusion and what comes out: lists with what is known of them, a list with its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_core.errors import InvalidArgumentError
from rag_core.types import Ranking

__all__ = ["Evidence", "Fused", "Leg", "checked_weights", "combine", "standardise"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a lexical index knows of a query beside its list.

    Attributes:
        coverage: 0 to 1, the largest share of the query's idf mass that one of the best three documents
            holds; words that no document has count with the idf of a word found nowhere.
        n_documents: documents that could have been found.
    """

    coverage: float
    n_documents: int


@dataclass(frozen=True, slots=True)
class Leg:
    """One list to be fused.

    Attributes:
        name: for the explanation.
        ranking: best first, higher scores better (turn distances round before).
        evidence: of a lexical leg, whose documents outside the list score 0 unless the list was cut; None
            where nothing but the list is known.
        depth: documents asked for, so that a shorter list is known to be whole; None takes its length.
        floor: least score that the leg could give any document (-1 of a cosine), which ``convex`` measures
            from; None takes 0 of a leg with evidence, else the least of the list.
    """

    name: str
    ranking: Ranking
    evidence: Evidence | None = None
    depth: int | None = None
    floor: float | None = None

    @property
    def n_unlisted(self) -> int:
        """Documents known to score 0 that fill the list up to its depth; only a lexical list has them."""
        if self.evidence is None or self.depth is None:
            return 0
        return max(0, min(self.depth, self.evidence.n_documents) - len(self.ranking))


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused list and why it is as it is.

    Attributes:
        ranking: best first; equal scores by document id descending.
        method: its name.
        legs: names of the legs.
        weights: what each leg counted, in the order of the legs.
        reasons: why, per leg; empty strings where the weights were given.
        points, missing: per leg, what it added to each document of its own and to any other.
    """

    ranking: Ranking
    method: str
    legs: tuple[str, ...]
    weights: tuple[float, ...]
    reasons: tuple[str, ...]
    points: tuple[Mapping[str, float], ...]
    missing: tuple[float, ...]

    def parts(self, doc_id: str) -> dict[str, float]:
        """Leg -> what it added to the score of ``doc_id``."""
        return {n: p.get(doc_id, m) for n, p, m in zip(self.legs, self.points, self.missing)}

    def describe(self) -> dict[str, object]:
        """Method, weights and reasons as plain values, for results and logs."""
        return {
            "method": self.method,
            "weights": dict(zip(self.legs, self.weights)),
            "why": {name: reason for name, reason in zip(self.legs, self.reasons) if reason},
        }


def checked_weights(weights: Sequence[float] | None, legs: int, method: str) -> list[float]:
    """``weights`` as floats, 1 for each leg where None.

    Raises:
        InvalidArgumentError: not one per leg, one that is negative or not finite, or all of them 0.
    """
    if weights is None:
        return [1.0] * legs
    values = [float(weight) for weight in weights]
    if len(values) != legs:
        raise InvalidArgumentError(
            f"{method}: {len(values)} weights for {legs} lists; accepted: one per list"
        )
    for weight in values:
        if not math.isfinite(weight) or weight < 0:
            raise InvalidArgumentError(f"{method}: a weight is {weight}; accepted: finite numbers from 0")
    if legs and not any(values):
        raise InvalidArgumentError(f"{method}: all weights are 0; accepted: at least one above 0")
    return values


def combine(points: Sequence[Mapping[str, float]], missing: Sequence[float]) -> Ranking:
    """Every document that a leg lists, by the sum of what the legs add to it.

    The terms are added in order of size: the order of the legs changes no bit, and because rounding keeps
    the order of sums whose terms are ordered, a document that is better in every leg never scores less.
    """
    if len(points) == 2:  # the usual case, where one addition needs no order
        (first, second), (no_first, no_second) = points, missing
        both = {doc_id: value + second.get(doc_id, no_second) for doc_id, value in first.items()}
        both |= {doc_id: no_first + value for doc_id, value in second.items() if doc_id not in first}
        return Ranking.from_scores(both)
    scores: dict[str, float] = {}
    for found in points:
        for doc_id in found:
            if doc_id not in scores:
                scores[doc_id] = sum(sorted(p.get(doc_id, m) for p, m in zip(points, missing)))
    return Ranking.from_scores(scores)


def standardise(leg: Leg) -> tuple[list[float], float, float]:
    """Scores of ``leg`` in standard deviations above the mean of its list.

    A lexical list shorter than its depth is filled with zeros, which is what the other documents score:
    a query that few documents match then stands out as it should. Equal scores all become 0.

    Returns:
        The list's values in its order; the value of a document that is not listed (the least of the list,
        or that of a zero); the peak, which is the best value when nothing is filled in.
    """
    scores, zeros = leg.ranking.scores, leg.n_unlisted
    if not scores:
        return [], 0.0, 0.0
    values, peak = _deviations(scores, 0)
    if not zeros:
        return values, values[-1], peak
    filled, _ = _deviations(scores, zeros)
    return filled[: len(scores)], filled[-1], peak


def _deviations(scores: Sequence[float], zeros: int) -> tuple[list[float], float]:
    n = len(scores) + zeros
    mean = math.fsum(scores) / n
    squares = math.fsum((score - mean) ** 2 for score in scores) + zeros * mean * mean
    deviation = math.sqrt(squares / n)
    # equal scores leave a deviation of rounding errors, which must not be taken for a shape
    if not deviation > 1e-9 * max(map(abs, scores)):
        return [0.0] * (len(scores) + bool(zeros)), 0.0
    values = [(score - mean) / deviation for score in scores]
    return values + [-mean / deviation] * bool(zeros), max(values)

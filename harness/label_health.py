"""What the judgements can bear: how much of a system's answers is judged, which queries tell nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.differences import mean_of
from harness.metrics import Grades, evaluated_queries
from harness.render.format import share
from harness.results import ResultDocument
from harness.rows import Row, paired
from rag_core.types import Ranking

__all__ = ["LEAST_GAP", "Extremes", "JudgedGap", "extremes", "judged_at", "judged_gap", "judged_mean"]

#: A gap between the judged shares of two systems from which on it is spoken of.
LEAST_GAP = 0.2
#: A value of a metric this close to 0 or 1 is 0 or 1.
ROUNDING = 1e-9


def judged_at(rankings: Mapping[str, Ranking], relevance: Grades, k: int = 10) -> list[float | None]:
    """The share of the first ``k`` documents that have a judgement, whatever its grade.

    One value per judged query, sorted by id; of a shorter answer the share of what it holds, None of an
    empty or missing one.
    """
    out: list[float | None] = []
    for query_id in evaluated_queries(relevance):
        ranking = rankings.get(query_id)
        first = ranking.doc_ids[:k] if ranking is not None else ()
        grades = relevance[query_id]
        out.append(round(sum(doc_id in grades for doc_id in first) / len(first), 6) if first else None)
    return out


def judged_mean(row: Row) -> float | None:
    """The mean of a row's judged share of the first 10; None where it was not counted."""
    return mean_of(row.cell.judged_at_10 or ())


@dataclass(frozen=True, slots=True)
class JudgedGap:
    """Two systems whose answers are judged to very different shares.

    Attributes:
        most, least: the rows with the highest and the lowest judged share of their first 10.
        most_share, least_share: these means, 0 to 1.
        mean, low, high: their paired difference with its 95 % interval.
    """

    most: Row
    least: Row
    most_share: float
    least_share: float
    mean: float
    low: float
    high: float

    def sentence(self) -> str:
        """One plain sentence, figures included."""
        return (
            f"The first 10 of {self.least.label} are unjudged to {share(1 - self.least_share)}, of "
            f"{self.most.label} to {share(1 - self.most_share)} (difference {share(self.mean)}, "
            f"{share(self.low)} to {share(self.high)}): an unjudged document counts as not relevant, so the "
            "labels may favour systems like those that they were pooled from."
        )


def judged_gap(document: ResultDocument, rows: Sequence[Row]) -> JudgedGap | None:
    """The widest gap of judged shares; None below :data:`LEAST_GAP`, or where nothing can be made of it.

    That is so where only relevant documents are judged: the share is then a precision, and says nothing of
    how the judgements were made.
    """
    if not has_negatives(document):
        return None
    known = [(share, row) for row in _systems(rows) if (share := judged_mean(row)) is not None]
    if len(known) < 2:
        return None
    (top, most), (bottom, least) = (pick(known, key=lambda pair: pair[0]) for pick in (max, min))
    [found] = paired([(most.cell.judged_at_10 or [], least.cell.judged_at_10 or [])], document.seed)
    if found is None or found.mean < LEAST_GAP or found.low <= 0:
        return None
    return JudgedGap(most, least, top, bottom, found.mean, found.low, found.high)


def _systems(rows: Sequence[Row]) -> list[Row]:
    """The measured rows but the baseline, whose vectors are meant to know nothing."""
    return [row for row in rows if row.ok and not row.is_baseline]


def has_negatives(document: ResultDocument) -> bool:
    """Whether the judgements also name documents that are not relevant."""
    relevant = document.dataset.get("n_judgements_relevant")
    return relevant is not None and relevant < (document.dataset.get("n_judgements") or 0)


@dataclass(frozen=True, slots=True)
class Extremes:
    """Queries on which the systems of a run do not differ.

    Attributes:
        systems: how many were looked at.
        queries: judged queries.
        missed: ids of those where every system has 0.
        solved: ids of those where every system has 1.
    """

    systems: int
    queries: int
    missed: tuple[str, ...]
    solved: tuple[str, ...]


def extremes(document: ResultDocument, rows: Sequence[Row], metric: str) -> Extremes:
    """The queries that every measured system misses or solves by ``metric``, the baseline aside; none with
    fewer than two."""
    query_ids = [str(query_id) for query_id in document.dataset.get("query_ids", ())]
    columns = [
        row.cell.metrics[metric].per_query
        for row in _systems(rows)
        if metric in row.cell.metrics and len(row.cell.metrics[metric].per_query) == len(query_ids)
    ]
    missed, solved = [], []
    if len(columns) > 1:
        for query_id, values in zip(query_ids, zip(*columns)):
            known = [value for value in values if value is not None]
            if known and max(known) <= ROUNDING:
                missed.append(query_id)
            elif known and min(known) >= 1 - ROUNDING:
                solved.append(query_id)
    return Extremes(len(columns), len(query_ids), tuple(missed), tuple(solved))

"""Rank metrics, equal to trec_eval's, computed for all queries at once.

A document is relevant when its grade is 1 or more. Only the ranks of relevant documents matter to any of
these metrics, so a run is first reduced to those and the rest is arithmetic on flat arrays.

**Queries without a relevant document** have no value and no part in any mean: the values are those of
:func:`evaluated_queries`, in that order. A query of these that a run does not answer counts 0. Queries
that a run answers without being judged are ignored. (trec_eval agrees on every query's value, but its
mean counts a query without a relevant document as 0.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import nearest
from rag_core.types import Ranking

__all__ = ["FAMILIES", "Family", "Metric", "Ranks", "evaluate", "evaluated_queries"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Grades = Mapping[str, Mapping[str, int]]

#: Up to this many relevant documents are looked up one by one; for more, one pass over the list is faster.
FEW = 8
NO_CUTOFF = np.iinfo(np.int64).max

_NAME = re.compile(r"([a-z_]+)(?:@([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Runs and judgements reduced to numbers, for ``n`` queries.

    Attributes:
        n: number of queries.
        query: (h,) int64, the query's row, of each relevant document found; ascending.
        rank: (h,) int64, its rank from 1; ascending within a query.
        gain: (h,) float64, its grade.
        nth: (h,) int64, how many relevant documents stand at its rank or above.
        retrieved: (n,) int64, documents in the ranking.
        relevant: (n,) int64, relevant documents in the judgements.
        ideal_query, ideal_rank, ideal_gain: the same as the first three for the best possible ranking.
    """

    n: int
    query: Ints
    rank: Ints
    gain: Floats
    nth: Ints
    retrieved: Ints
    relevant: Ints
    ideal_query: Ints
    ideal_rank: Ints
    ideal_gain: Floats

    def total(self, query: Ints, values: Floats, keep: NDArray[np.bool_]) -> Floats:
        """Sum of ``values`` where ``keep``, per query: (n,) float64."""
        # float even when nothing is kept: bincount of no weights counts in integers
        return np.bincount(query[keep], values[keep], self.n).astype(np.float64)

    def found(self, k: int) -> Floats:
        """Relevant documents among the first ``k``: (n,) float64."""
        return self.total(self.query, np.ones(len(self.query)), self.rank <= k)


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of metric.

    Attributes:
        name: canonical name.
        title: for table heads and axes.
        aliases: other accepted names.
        compute: values of all queries at a cut-off, (n,) float64 in [0, 1].
        binary: whether a query's value is always 0 or 1.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    compute: Callable[[Ranks, int], Floats]
    binary: bool = False


def _ndcg(ranks: Ranks, k: int) -> Floats:
    """Linear gain over log2(rank + 1), divided by the same of the judgements' best order (trec_eval)."""
    gained = ranks.total(ranks.query, ranks.gain / np.log2(ranks.rank + 1.0), ranks.rank <= k)
    ideal = ranks.ideal_gain / np.log2(ranks.ideal_rank + 1.0)
    return gained / ranks.total(ranks.ideal_query, ideal, ranks.ideal_rank <= k)


def _precision(ranks: Ranks, k: int) -> Floats:
    """Relevant among the first k, divided by k even where fewer were found; by those found without k."""
    if k == NO_CUTOFF:
        return ranks.found(k) / np.maximum(ranks.retrieved, 1)
    return ranks.found(k) / k


def _recall(ranks: Ranks, k: int) -> Floats:
    return ranks.found(k) / ranks.relevant


def _mrr(ranks: Ranks, k: int) -> Floats:
    """One over the rank of the first relevant document."""
    return ranks.total(ranks.query, 1.0 / ranks.rank, (ranks.nth == 1) & (ranks.rank <= k))


def _map(ranks: Ranks, k: int) -> Floats:
    """Precision at each relevant document, summed, divided by the number of relevant documents."""
    return ranks.total(ranks.query, ranks.nth / ranks.rank, ranks.rank <= k) / ranks.relevant


def _success(ranks: Ranks, k: int) -> Floats:
    return (ranks.found(k) > 0).astype(np.float64)


FAMILIES = {
    family.name: family
    for family in (
        Family("ndcg", "nDCG", ("ndcg_cut",), _ndcg),
        Family("precision", "Precision", ("p", "prec"), _precision),
        Family("recall", "Recall", ("r",), _recall),
        Family("mrr", "MRR", ("rr", "recip_rank"), _mrr),
        Family("map", "MAP", ("ap", "map_cut"), _map),
        Family("success", "Success", ("hit", "hits", "hit_rate"), _success, binary=True),
    )
}
_ALIASES = {alias: f.name for f in FAMILIES.values() for alias in (f.name, *f.aliases)}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as a value: ``str(Metric.parse(text))`` is its one name.

    Attributes:
        family: a key of :data:`FAMILIES`.
        cutoff: ranks looked at; None for the whole list.
    """

    family: str
    cutoff: int | None = None

    @classmethod
    def parse(cls, text: str) -> Metric:
        """``ndcg@10``, ``map``, ``hit@5`` …, in any case.

        Raises:
            UnknownNameError: no such family; names the nearest.
            InvalidArgumentError: the cut-off is not a whole number from 1.
        """
        lowered = text.strip().lower()
        name, at, cutoff = lowered.partition("@")
        if name not in _ALIASES:
            raise UnknownNameError(f"unknown metric {text!r}{nearest(name, FAMILIES)}")
        if not _NAME.fullmatch(lowered):
            raise InvalidArgumentError(
                f"metric {text!r} has cut-off {cutoff!r}; accepted: a whole number from 1, as in {name}@10"
            )
        return cls(_ALIASES[name], int(cutoff) if at else None)

    def __str__(self) -> str:
        return f"{self.family}@{self.cutoff}" if self.cutoff else self.family

    @property
    def title(self) -> str:
        """For table heads and axes: ``nDCG@10``."""
        return f"{FAMILIES[self.family].title}@{self.cutoff}" if self.cutoff else FAMILIES[self.family].title

    @property
    def direction(self) -> str:
        """Which way is better: always ``higher``."""
        return "higher"

    @property
    def unit(self) -> str:
        """All are fractions in [0, 1]."""
        return "fraction"

    @property
    def binary(self) -> bool:
        """Whether a query's value is always 0 or 1."""
        return FAMILIES[self.family].binary


def evaluated_queries(relevance: Grades) -> tuple[str, ...]:
    """The queries that have a relevant document, sorted by id: the rows of every result."""
    return tuple(sorted(q for q, grades in relevance.items() if any(g >= 1 for g in grades.values())))


def evaluate(
    run: Mapping[str, Ranking | Sequence[str]], relevance: Grades, metrics: Iterable[Metric | str]
) -> dict[str, Floats]:
    """Values of ``metrics`` by name, each (n,) float64 over :func:`evaluated_queries`; never NaN.

    Args:
        run: query id → ranking, or document ids best first (of an id that stands twice the later
            copy is dropped).
        relevance: query id → document id → grade.
        metrics: metrics or their names.
    """
    ranks = reduce(run, relevance)
    parsed = [metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in metrics]
    return {str(m): FAMILIES[m.family].compute(ranks, m.cutoff or NO_CUTOFF) for m in parsed}


def reduce(run: Mapping[str, Ranking | Sequence[str]], relevance: Grades) -> Ranks:
    """``run`` and ``relevance`` as numbers, over :func:`evaluated_queries`."""
    # flat lists of plain integers: numpy takes them in many times faster than a list of tuples
    queries = evaluated_queries(relevance)
    places: list[int] = []
    gains: list[int] = []
    ideal: list[int] = []
    found, retrieved, relevant = ([0] * len(queries) for _ in range(3))
    for row, query_id in enumerate(queries):
        grades = {doc_id: grade for doc_id, grade in relevance[query_id].items() if grade >= 1}
        relevant[row] = len(grades)
        ideal += grades.values()
        ranking = run.get(query_id)
        if ranking is None:
            continue
        ids = ranking.doc_ids if isinstance(ranking, Ranking) else tuple(dict.fromkeys(ranking))
        retrieved[row] = len(ids)
        if len(grades) <= FEW:
            here = [ids.index(doc_id) for doc_id in set(grades).intersection(ids)]
        else:
            here = [place for place, doc_id in enumerate(ids) if doc_id in grades]
        places += here
        gains += [grades[ids[place]] for place in here]
        found[row] = len(here)
    rows = np.arange(len(queries))
    query, rank, gain = np.repeat(rows, found), np.array(places, np.int64) + 1, np.array(gains, np.float64)
    order = np.lexsort((rank, query))
    ideal_query, ideal_gain = np.repeat(rows, relevant), np.array(ideal, np.float64)
    best = np.lexsort((-ideal_gain, ideal_query))
    return Ranks(
        n=len(queries),
        query=query,
        rank=rank[order],
        gain=gain[order],
        nth=_position_in_group(query),
        retrieved=np.array(retrieved, np.int64),
        relevant=np.array(relevant, np.int64),
        ideal_query=ideal_query,
        ideal_rank=_position_in_group(ideal_query),
        ideal_gain=ideal_gain[best],
    )


def _position_in_group(groups: Ints) -> Ints:
    """1, 2, … within each run of equal values of the ascending ``groups``."""
    first: Ints = np.searchsorted(groups, groups, side="left")
    return np.arange(1, len(groups) + 1) - first

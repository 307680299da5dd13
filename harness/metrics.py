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
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from harness.ranks import Floats, Grades, Ints, Lists, Ranks, evaluated_queries, reduce
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import nearest

__all__ = [
    "FAMILIES",
    "Family",
    "Floats",
    "Grades",
    "Ints",
    "Metric",
    "Ranks",
    "compute",
    "evaluate",
    "evaluated_queries",
]

NO_CUTOFF = np.iinfo(np.int64).max

_NAME = re.compile(r"([a-z_]+)(?:@([1-9][0-9]{0,8}))?")


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
    best = ranks.ideal
    return gained / ranks.total(best.query, best.discounted, best.rank <= k)


def _precision(ranks: Ranks, k: int) -> Floats:
    """Relevant among the first k, divided by k even where fewer were found; by those found without k."""
    if k == NO_CUTOFF:
        return ranks.found(k) / np.maximum(ranks.retrieved, 1)
    return ranks.found(k) / k


def _recall(ranks: Ranks, k: int) -> Floats:
    return ranks.found(k) / ranks.ideal.relevant


def _mrr(ranks: Ranks, k: int) -> Floats:
    """One over the rank of the first relevant document."""
    return ranks.total(ranks.query, 1.0 / ranks.rank, (ranks.nth == 1) & (ranks.rank <= k))


def _map(ranks: Ranks, k: int) -> Floats:
    """Precision at each relevant document, summed, divided by the number of relevant documents."""
    return ranks.total(ranks.query, ranks.nth / ranks.rank, ranks.rank <= k) / ranks.ideal.relevant


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


def evaluate(run: Lists, relevance: Grades, metrics: Iterable[Metric | str]) -> dict[str, Floats]:
    """Values of ``metrics`` by name, each (n,) float64 over :func:`evaluated_queries`; never NaN.

    Args:
        run: query id → ranking, or document ids best first (of an id that stands twice the later
            copy is dropped), or document id → score (ranked as :meth:`Ranking.from_scores` does, without
            sorting); of all queries the same.
        relevance: query id → document id → grade.
        metrics: metrics or their names.

    Raises:
        RankingError: a score is NaN.
    """
    return compute(reduce(run, relevance), metrics)


def compute(ranks: Ranks, metrics: Iterable[Metric | str]) -> dict[str, Floats]:
    """Values of ``metrics`` by name, each (n,) float64 over the rows of ``ranks``."""
    parsed = [metric if isinstance(metric, Metric) else Metric.parse(metric) for metric in metrics]
    return {str(m): FAMILIES[m.family].compute(ranks, m.cutoff or NO_CUTOFF) for m in parsed}

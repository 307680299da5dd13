"""What a user's own judgements say about how to search: a setting and its gain, or that they cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.leg_lists import LegLists
from harness.neardup import near_duplicates
from harness.nested import LEVEL, Choice, nested_choice
from harness.power import queries_needed
from harness.tune_grid import DEFAULT, Floats, Setting, grid, values_of
from rag_core.errors import InvalidArgumentError

__all__ = ["LEAST", "Tuned", "distinct", "tune"]

#: Different queries below which nothing is chosen: intervals of fewer are not to be trusted either.
LEAST = 30
#: The gain that a refusal speaks of.
WORTH_HAVING = 0.02


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning found.

    Attributes:
        setting: the best on all queries; to be taken only where ``sure``.
        choice: how it was chosen and what choosing gains on queries that took no part.
        default: (n,) values of each group of queries under the default.
        vector, bm25: means of each leg alone.
        n_queries: judged queries; ``len(default)`` of them are different.
        n_settings: tried.
        needed: queries that would tell a gain of the size estimated with 80 % power; None of one that is
            not above 0.
    """

    setting: Setting
    choice: Choice
    default: Floats
    vector: float
    bm25: float
    n_queries: int
    n_settings: int
    needed: int | None

    @property
    def sure(self) -> bool:
        """Whether the tuned setting is surely better than the default."""
        return self.setting != DEFAULT and self.choice.sure


def distinct(texts: Mapping[str, str]) -> list[list[str]]:
    """Query ids in groups of nearly the same text (see :mod:`harness.neardup`), in the order given.

    A query asked twice counts once, and both stand in the same fold.
    """
    ids = list(texts)
    parent = list(range(len(ids)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for a, b in near_duplicates([texts[query_id] for query_id in ids]):
        first, second = sorted((root(a), root(b)))
        parent[second] = first
    groups: dict[int, list[str]] = {}
    for place, query_id in enumerate(ids):
        groups.setdefault(root(place), []).append(query_id)
    return list(groups.values())


def tune(
    lists: LegLists,
    texts: Mapping[str, str],
    relevance: Mapping[str, Mapping[str, int]],
    metric: str,
    seed: int = 0,
) -> Tuned:
    """Choose a setting for the lists of both legs by nested cross-validation over the queries.

    Args:
        lists: of both legs, deep enough for the pools to be tried.
        texts: judged query id → text; nearly equal texts count as one query.
        relevance: query id → document id → grade.
        metric: to be raised.
        seed: of partitions and intervals; the same seed gives the same answer.

    Raises:
        InvalidArgumentError: fewer than :data:`LEAST` different queries; says how many it takes.
    """
    groups = distinct(texts)
    settings, widths = grid(lists.depth)
    if len(groups) < LEAST:
        narrow = [settings[place] for place in widths[0]]
        raise InvalidArgumentError(_too_few(values_of(lists, groups, relevance, metric, narrow), metric))
    values = values_of(lists, groups, relevance, metric, settings)
    choice = nested_choice(values, widths, seed)
    means = values.mean(axis=0)
    mean, spread = choice.gain.mean, (choice.held_out - values[:, 0]).std(ddof=1)
    return Tuned(
        settings[choice.column],
        choice,
        values[:, 0],
        float(means[_leg(settings, "vector")]),
        float(means[_leg(settings, "bm25")]),
        len(texts),
        len(settings),
        queries_needed(mean, float(spread), 1 - LEVEL) if mean > 0 else None,
    )


def _leg(settings: Sequence[Setting], name: str) -> int:
    return next(place for place, setting in enumerate(settings) if setting.method == name)


def _too_few(values: Floats, metric: str) -> str:
    n = len(values)
    told = ""
    if n > 1:
        gaps = values[:, 1:] - values[:, :1]
        needed = queries_needed(WORTH_HAVING, float(np.median(gaps.std(axis=0, ddof=1))))
        if needed:
            told = f"; with the spread seen here about {needed:,} tell a gain of {WORTH_HAVING:g} {metric}"
    return f"{n} different judged queries are too few to tune on; accepted: {LEAST} or more{told}"

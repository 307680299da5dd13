"""The settings of a search that `bench tune` tries, and what each is worth on frozen lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.leg_lists import LegLists
from harness.metrics import evaluate
from rag_core.fusion import METHODS, Leg, fuse, reading_depth
from rag_core.types import Ranking

__all__ = ["DEFAULT", "POOLS", "Setting", "grid", "values_of"]

#: Documents that each leg gives; constants of rank fusion; weights of the legs, vectors then BM25.
POOLS, CONSTANTS = (50, 100, 200), (10.0, 60.0)
WEIGHTS = ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0), (4.0, 1.0), (1.0, 4.0))
EQUAL = WEIGHTS[0]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to search.

    Attributes:
        method: of :data:`rag_core.fusion.METHODS`; or one leg alone, ``vector`` or ``bm25``.
        weights: of the legs, vectors then BM25.
        pool: documents that each leg gives, and that go on to the reranker; ``adaptive``
            reads :func:`~rag_core.fusion.reading_depth` of it.
        k: constant of ``rrf``, which the others do not read.
    """

    method: str = "rrf"
    weights: tuple[float, float] = EQUAL
    pool: int = 50
    k: float = 60.0

    @property
    def is_leg(self) -> bool:
        """Whether one leg answers alone."""
        return self.method not in METHODS

    @property
    def depth(self) -> int:
        """Documents that are read of each leg."""
        return reading_depth(self.method, self.pool)

    def __str__(self) -> str:
        if self.is_leg:
            return f"{self.method} alone"
        parts = [self.method, f"pool {self.pool}"]
        if self.weights != EQUAL:
            parts.append("weights {:g}:{:g}".format(*self.weights))
        if self.method == "rrf":
            parts.append(f"k {self.k:g}")
        return ", ".join(parts)

    def as_search(self) -> dict[str, str | float | int | list[float]]:
        """The keys of ``[search]`` in a ``rag.toml``; those left out keep their defaults."""
        if self.is_leg:
            return {"pipeline": self.method, "candidate_pool": self.pool}
        out: dict[str, str | float | int | list[float]] = {"fusion": self.method, "candidate_pool": self.pool}
        if self.weights != EQUAL:
            out["weights"] = list(self.weights)
        if self.method == "rrf":
            out["rrf_k"] = self.k
        return out


#: What a search does where nothing is set.
DEFAULT = Setting()


def grid(depth: int) -> tuple[list[Setting], list[list[int]]]:
    """All settings for lists of ``depth`` documents, the default first; and three widths of search.

    The narrowest holds the methods as they come and each leg alone, the next one the weights of the legs as
    well, the widest pools and constants too.

    Returns:
        settings; the positions of each width, the narrowest first.
    """
    usual = min(DEFAULT.pool, depth)
    pools = [pool for pool in POOLS if pool <= depth] or [depth]
    narrow = [DEFAULT, *(Setting(method, pool=usual) for method in METHODS[1:])]
    narrow += [Setting("vector", pool=usual), Setting("bm25", pool=usual)]
    weighed = [Setting(method, weights, usual) for method in METHODS for weights in WEIGHTS]
    every = [
        Setting(method, weights, pool, k)
        for method in METHODS
        for weights in WEIGHTS
        for pool in pools
        for k in (CONSTANTS if method == "rrf" else (DEFAULT.k,))
    ]
    settings = _distinct([*narrow, *weighed, *every], depth)
    ends = (len(narrow), len(_distinct([*narrow, *weighed], depth)), len(settings))
    return settings, [list(range(end)) for end in ends]


def _distinct(settings: Iterable[Setting], depth: int) -> list[Setting]:
    """The first of those that read as much of lists of ``depth`` documents, in their order."""
    found: dict[Setting, Setting] = {}
    for setting in settings:
        found.setdefault(replace(setting, pool=min(setting.depth, depth)), setting)
    return list(found.values())


def values_of(
    lists: LegLists,
    groups: Sequence[Sequence[str]],
    relevance: Mapping[str, Mapping[str, int]],
    metric: str,
    settings: Sequence[Setting],
) -> Floats:
    """(len(groups), len(settings)) float64: the mean of ``metric`` over each group's queries.

    Args:
        lists: of both legs.
        groups: ids of judged queries that are to count as one.
        relevance: query id → document id → grade.
        metric: its name.
    """
    chosen = sorted(query_id for group in groups for query_id in group)
    row = {query_id: number for number, query_id in enumerate(chosen)}
    grades = {query_id: relevance[query_id] for query_id in chosen}
    places = [np.array([row[query_id] for query_id in group]) for group in groups]
    values = np.zeros((len(groups), len(settings)))
    legs: dict[str, tuple[Leg, Leg]] = {}
    cut = 0
    for column in sorted(range(len(settings)), key=lambda column: settings[column].depth):
        setting = settings[column]
        depth = min(setting.depth, lists.depth)
        if depth != cut:  # once for all settings that read as much
            cut = depth
            legs = {q: lists.legs(q, depth) for q in chosen if q in lists.vector}
        # a query that failed in one leg has no list, and counts 0
        found = evaluate({q: _search(both, setting) for q, both in legs.items()}, grades, (metric,))[metric]
        values[:, column] = [found[place].mean() for place in places]
    return values


def _search(legs: tuple[Leg, Leg], setting: Setting) -> Ranking:
    if setting.is_leg:
        return legs[0 if setting.method == "vector" else 1].ranking
    return fuse(legs, setting.method, k=setting.k, weights=setting.weights).ranking

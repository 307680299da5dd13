"""The fusion stage of a measuring process: BM25 lists with what is known of them, each method timed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.leg_lists import COSINE_FLOOR, LegLists, legs_file
from harness.results import CellKey, write_atomic
from harness.stages import Job, Timed
from harness.timing import timed
from rag_core.errors import RagCoreError
from rag_core.fusion import Evidence, Leg, fuse, reading_depth
from rag_core.types import Query, Ranking

__all__ = ["FusedLists", "Lexical", "fuse_lists", "keep_legs"]

LEGS = ("vector", "bm25")
#: The method whose settings hold the constant of rank fusion.
BY_RANKS = "rrf"
#: In a cell's settings: what the legs counted, mean over the calls; measured, so no setting to compare.
MEAN_WEIGHTS = "mean_weights"


@dataclass
class Lexical:
    """What the BM25 process leaves for the hybrid cells.

    Attributes:
        timed: its lists.
        described: engine, analyser and constants.
        evidence: query id -> what the index knows of the query; empty where the engine has none.
        evidence_s: seconds that took, one per query in their order; empty like ``evidence``.
    """

    timed: Timed
    described: dict[str, Any]
    evidence: dict[str, Evidence] = field(default_factory=dict)
    evidence_s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, this: Job, engine: Any, found: Timed) -> Lexical:
        """Ask ``engine`` for the evidence of every query: the run's methods may read it, and tuning does."""
        out = cls(found, engine.describe())
        ask = getattr(engine, "evidence", None)
        if ask is None:
            return out
        for query in this.queries:
            ranking = found.rankings.get(query.query_id)
            if ranking is None:  # a failed query has no hybrid list either
                out.evidence_s.append(0.0)
                continue
            known, seconds = timed(lambda q=query, r=ranking: ask(q, r, this.where(q)))  # type: ignore[misc]
            out.evidence[query.query_id] = known
            out.evidence_s.append(seconds)
        return out

    def write(self, path: Path) -> None:
        """Hand over to the provider processes."""
        lists = {
            "rankings": {q: [r.doc_ids, r.scores] for q, r in self.timed.rankings.items()},
            "failed": self.timed.failed,
            "samples_s": self.timed.samples_s,
            "warmup_s": self.timed.warmup_s,
            "bm25": self.described,
            "evidence": {q: asdict(known) for q, known in self.evidence.items()},
            "evidence_s": self.evidence_s,
        }
        write_atomic(path, json.dumps(lists, ensure_ascii=False))

    @classmethod
    def read(cls, path: Path) -> Lexical:
        """The inverse of :meth:`write`."""
        values = json.loads(path.read_text(encoding="utf-8"))
        rankings = {
            q: Ranking.from_scores(zip(ids, scores)) for q, (ids, scores) in values["rankings"].items()
        }
        found = Timed(rankings, values["failed"], values["samples_s"], values["warmup_s"])
        evidence = {q: Evidence(**known) for q, known in values["evidence"].items()}
        return cls(found, values["bm25"], evidence, values["evidence_s"])


@dataclass
class FusedLists:
    """The lists of one method, timed, and the settings that a cell records of it."""

    timed: Timed
    settings: dict[str, Any]


def fuse_lists(this: Job, searched: Timed, lexical: Lexical, method: str) -> FusedLists:
    """Fuse the first of both legs, query by query; a query that failed in one fails."""
    spec = this.spec
    depth = reading_depth(method, spec.candidate_pool)
    vector = _cut(searched.rankings, depth)
    words = _cut(lexical.timed.rankings, depth)
    weights: list[tuple[float, ...]] = []

    def call(query: Query) -> Ranking:
        for failed in (searched.failed, lexical.timed.failed):
            if query.query_id in failed:
                raise RagCoreError(failed[query.query_id])
        legs = (
            Leg(LEGS[0], vector[query.query_id], depth=depth, floor=COSINE_FLOOR),
            Leg(LEGS[1], words[query.query_id], lexical.evidence.get(query.query_id), depth),
        )
        found = fuse(legs, method, k=spec.rrf_k, weights=spec.weights)
        weights.append(found.weights)
        return found.ranking

    out = this.time_queries(call)
    fusion: dict[str, Any] = {"method": method, "weights": spec.weights}
    settings: dict[str, Any] = {"fusion": fusion}
    if method == BY_RANKS:
        fusion["k"] = spec.rrf_k
    else:
        if depth != spec.candidate_pool:
            fusion["depth"] = depth
        if lexical.evidence_s:
            out.samples_s = np.add(out.samples_s, lexical.evidence_s).tolist()
        if weights:
            means = np.mean(weights, axis=0)
            settings[MEAN_WEIGHTS] = {name: round(float(m), 4) for name, m in zip(LEGS, means)}
    return FusedLists(out, settings)


def keep_legs(this: Job, vector: CellKey, searched: Timed, lexical: Lexical) -> None:
    """Leave both lists of every query beside the run files, where `bench tune` reads them."""
    lists = LegLists(this.depth, searched.rankings, lexical.timed.rankings, lexical.evidence)
    lists.write(legs_file(this.runs, vector))


def _cut(rankings: Mapping[str, Ranking], depth: int) -> dict[str, Ranking]:
    return {q: r.top(depth) if len(r) else r for q, r in rankings.items()}

"""The reranking stage: load the reranker, reorder every fused list, keep its scores, count what was cut."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.economics import MAIN, Pool, depths_of, economics, points_per_ms, share_of_p95
from harness.results import CellKey, CellResult, file_name, write_atomic
from harness.stages import Job, Timed, language_warning, stat
from harness.thresholds import record
from harness.timing import percentile, timed
from rag_core.errors import RagCoreError
from rag_core.factory import get_reranker, resolve
from rag_core.protocols import Reranker
from rag_core.registry import RERANKERS
from rag_core.reranking import Reordered, interpolate, reorder
from rag_core.types import Query, Ranking

__all__ = ["Reranked", "load_reranker", "time_depths"]

#: Queries on which the depths below the pool are timed, and the seconds that may take in all.
TIMED_QUERIES, TIMED_S = 20, 3.0
#: The option of rerankers that keep what they computed of a document.
CACHE_OPTION = "cache_mb"


def load_reranker(text: str, corpus: Sequence[str]) -> tuple[Reranker, list[str]] | str:
    """The reranker with a warning if it is not made for the languages of ``corpus``, or why there is none.

    It keeps nothing from one query to the next unless the spec string asks for that (``cache_mb=``).
    """
    try:
        spec, parsed = resolve(RERANKERS, text)
        reranker = get_reranker(text)
    except Exception as error:  # noqa: BLE001 - the reason becomes the row's; other rows go on
        return f"{type(error).__name__}: {error}"
    if CACHE_OPTION not in parsed.options and hasattr(reranker, "without_cache"):
        # the pools of a data set overlap: later queries would be timed on what earlier ones computed
        reranker.without_cache()
    made_for = getattr(reranker, "languages", ()) or spec.languages  # a folder's are known to the reranker
    return reranker, language_warning(f"reranker {spec.name}", made_for, corpus)


class Reranked:
    """Every fused list scored once by one reranker, timed; from the scores comes each pipeline's cell.

    Attributes:
        pools: query id → what was scored; no entry where the lists before it failed.
        timed: the reranker's order, its failures and the seconds of each call.
        counts: ``n_truncated_pairs`` where the reranker counts what it cuts.
    """

    def __init__(self, this: Job, reranker: Reranker, fused: Timed) -> None:
        self._job, self._reranker = this, reranker
        self._texts = {document.doc_id: document.indexed_text for document in this.dataset.documents}
        self._again: dict[str, Reordered] = {}
        self._depth_s: dict[int, list[float]] | None = None
        self.pools = {
            query_id: Pool(ranking, () if not len(ranking) else None, min(len(ranking), self._size))
            for query_id, ranking in fused.rankings.items()
            if query_id not in fused.failed
        }
        self.timed, self.counts = self._score(fused)

    @property
    def _size(self) -> int:
        return self._job.spec.candidate_pool

    def _score(self, fused: Timed) -> tuple[Timed, dict[str, int]]:
        pairs: dict[str, int] = {}
        cut: dict[str, int] = {}
        notes: dict[str, int] = {}
        made: dict[str, list[tuple[Ranking, Reordered]]] = {}

        def call(query: Query) -> Ranking:
            if query.query_id in fused.failed:
                raise RagCoreError(fused.failed[query.query_id])
            whole = fused.rankings[query.query_id]
            if not len(whole):
                return whole
            pool = whole.top(self._size)
            before = stat(self._reranker, "truncated")
            again = reorder(pool, self.rerank(query, pool.doc_ids))
            # by query, for warm-ups and further rounds cut the same pairs again
            pairs[query.query_id] = len(pool)
            cut[query.query_id] = stat(self._reranker, "truncated") - before
            for warning in again.warnings:
                notes[warning] = notes.get(warning, 0) + 1
            made.setdefault(query.query_id, []).append((_with_tail(again.ranking, whole), again))
            return made[query.query_id][-1][0]

        found = self._job.time_queries(call)
        # of warm-up and rounds the call whose order is judged: scores may move in their last bits
        self._again = {
            query_id: again
            for query_id, calls in made.items()
            for ranking, again in calls
            if ranking is found.rankings.get(query_id)
        }
        for query_id, again in self._again.items():
            if query_id not in found.failed:
                self.pools[query_id] = replace(self.pools[query_id], scores=tuple(again.raw.values()))
        found.warnings = [f"{warning} (in {count} calls)" for warning, count in notes.items()]
        if not hasattr(self._reranker, "stats"):
            return found, {}
        n_cut = sum(cut.values())
        if n_cut:
            said = f"reranker {self._reranker.name} read {n_cut} of {sum(pairs.values())} pairs only in part"
            window = getattr(self._reranker, "max_tokens", 0)
            found.warnings.append(f"{said}: its window has {window} tokens" if window else said)
        return found, {"n_truncated_pairs": n_cut}

    def rerank(self, query: Query, doc_ids: Sequence[str]) -> Sequence[float]:
        """The reranker's raw scores of ``doc_ids``."""
        return self._reranker.rerank(query.text, [self._texts[doc_id] for doc_id in doc_ids])

    def cell(self, key: CellKey, stages: Mapping[str, Timed], base: CellResult) -> CellResult:
        """Judge the pipeline of ``key`` and write its pools and raw scores beside its run.

        Args:
            key: of a reranked pipeline.
            stages: those before reranking, by name.
            base: what the cell shares with the others of its provider.
        """
        ranks = key.pipeline.endswith("+rrf")
        done = self._fused_with_ranks() if ranks else self.timed
        own = replace(base, counts=base.counts | self.counts)
        kept = done.rankings if self._threshold is None else self._above_threshold(done.rankings)
        cell = self._job.cell(key, kept, done.failed, {**stages, "rerank": done}, own)
        cell.settings["reranker"] = self._reranker.fingerprint
        if self._threshold is not None:
            cell.settings["score_threshold"] = self._threshold
        if cell.status != "ok":
            return cell
        cell.rerank = self._economics("ranks" if ranks else "scores", done, stages)
        cell.thresholds = self._scores()
        cell.rerank["pool_file"] = f"{file_name(key)}.pool.json"
        write_atomic(self._job.runs / cell.rerank["pool_file"], self._pools_as_json())
        if ranks:
            cell.settings["rerank_mix"] = {"method": "rrf", "k": self._job.spec.rrf_k, "weight": 1.0}
        return cell

    @property
    def _threshold(self) -> float | None:
        return self._job.spec.score_threshold

    def _above_threshold(self, rankings: Mapping[str, Ranking]) -> dict[str, Ranking]:
        """``rankings`` as the library answers with a threshold: raw scores count, whatever the mix, and
        documents beyond the pool, which have none, go.
        """
        least, out = self._threshold or 0.0, {}
        for query_id, ranking in rankings.items():
            pool = self.pools[query_id]
            scores = dict(zip(pool.fused.doc_ids, pool.scores or ()))
            pairs = zip(ranking.doc_ids, ranking.scores)
            out[query_id] = Ranking.from_scores((d, s) for d, s in pairs if scores.get(d, -math.inf) >= least)
        return out

    def _scores(self) -> dict[str, Any]:
        scored = {q: tuple(zip(p.fused.doc_ids, p.scores)) for q, p in self.pools.items() if p.scores}
        queries = [query.query_id for query in self._job.queries]
        return record(scored, self._job.dataset.relevance, queries, "rerank")

    def _fused_with_ranks(self) -> Timed:
        """The rank fusion of both orders, timed and added to the seconds of the scores it reads."""

        def call(query: Query) -> Ranking:
            if query.query_id in self.timed.failed:
                raise RagCoreError(self.timed.failed[query.query_id])
            whole = self.timed.rankings[query.query_id]
            if not len(whole):
                return whole
            pool = self.pools[query.query_id]
            mixed = interpolate(
                pool.fused.top(pool.size), self._again[query.query_id].ranking, k=self._job.spec.rrf_k
            )
            return _with_tail(mixed, pool.fused)

        found = self._job.time_queries(call)
        found.samples_s = np.add(found.samples_s, self.timed.samples_s).tolist()
        found.warmup_s, found.warnings = list(self.timed.warmup_s), list(self.timed.warnings)
        return found

    def _economics(self, mix: str, done: Timed, stages: Mapping[str, Timed]) -> dict[str, Any]:
        spec, relevance = self._job.spec, self._job.dataset.relevance
        found = economics(self.pools, relevance, mix=mix, rrf_k=spec.rrf_k, k=spec.k)
        stage_s = np.ravel(done.samples_s)
        before_s = np.sum([stage.samples_s for stage in stages.values()], axis=0).ravel()
        measured = [float(s) for s in stage_s if math.isfinite(s)]
        added_s = percentile(measured, 50)
        means = [
            float(np.mean(found[side][MAIN])) if found[side][MAIN] else None for side in ("before", "after")
        ]
        gain = means[1] - means[0] if means[0] is not None and means[1] is not None else None
        if self._depth_s is None:  # once for all pipelines: they read the same scores
            self._depth_s = self._time_depths()
        for at in found["depths"]:
            seconds = self._depth_s.get(at["depth"], [])
            at["median_s"], at["n_timed"] = percentile(seconds, 50), len(seconds)
        return found | {
            "added_s": added_s,
            "share_of_p95": share_of_p95((before_s + stage_s).tolist(), stage_s.tolist()),
            "points_per_ms": points_per_ms(gain, added_s),
        }

    def _time_depths(self) -> dict[int, list[float]]:
        """Seconds at each depth: the stage's own at the deepest, calls of their own at the others."""
        depths = depths_of(self.pools[q] for q in self._job.dataset.relevance if q in self.pools)
        if not depths:
            return {}
        deepest = depths[-1]
        rows = np.array(self.timed.samples_s, np.float64)
        full: dict[str, float] = {}
        for place, query in enumerate(self._job.queries):
            pool = self.pools.get(query.query_id)
            if pool and pool.scores is not None and pool.size >= deepest:
                full[query.query_id] = float(np.median(rows[:, place]))
        chosen = [query for query in self._job.queries if query.query_id in full]
        if not chosen:
            return {}
        if self._reranker.target == "api":  # calls of their own would be paid for
            return {deepest: list(full.values())}
        places = np.unique(np.linspace(0, len(chosen) - 1, TIMED_QUERIES).astype(int))
        queries = [chosen[place] for place in places]
        own = time_depths(
            self._at_depth,
            queries,
            depths[:-1],
            {query.query_id: full[query.query_id] / deepest for query in queries},
        )
        return {**own, deepest: list(full.values())}

    def _at_depth(self, query: Query, depth: int) -> Reordered:
        head = self.pools[query.query_id].fused.top(depth)
        return reorder(head, self.rerank(query, head.doc_ids))

    def _pools_as_json(self) -> str:
        pools = {
            query_id: {
                "doc_ids": list(pool.fused.doc_ids[: pool.size]),
                "scores": None if pool.scores is None else [_json_score(score) for score in pool.scores],
            }
            for query_id, pool in self.pools.items()
        }
        values = {"reranker": self._reranker.fingerprint, "pool": self._size, "queries": pools}
        return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


def time_depths(
    call: Callable[[Query, int], object],
    queries: Sequence[Query],
    depths: Sequence[int],
    pair_s: Mapping[str, float],
    limit_s: float = TIMED_S,
) -> dict[int, list[float]]:
    """Seconds of ``call(query, depth)`` at each of ``depths``, query by query, ``limit_s`` in all.

    A call is made only where its expected time, ``depth * pair_s[query id]`` seconds, still fits, so
    that a slow reranker is timed on fewer queries, or at a depth on none.
    """
    out: dict[int, list[float]] = {depth: [] for depth in depths}
    left = limit_s
    for query in queries:
        for depth in depths:
            if depth * pair_s[query.query_id] > left:
                break
            try:
                _, seconds = timed(lambda: call(query, depth))  # noqa: B023 - called at once
            except RagCoreError:
                break
            out[depth].append(seconds)
            left -= seconds
    return out


def _with_tail(head: Ranking, whole: Ranking) -> Ranking:
    """``head``, then the documents of ``whole`` beyond its length in their order, as in the library."""
    order = [*head.doc_ids, *whole.doc_ids[len(head) :]]
    return Ranking.from_scores((doc_id, float(len(order) - i)) for i, doc_id in enumerate(order))


def _json_score(score: float) -> float | str | None:
    """A number; null for NaN; an infinity by name, which JSON has no number for and `float` reads."""
    if math.isnan(score):
        return None
    return score if math.isfinite(score) else ("Infinity" if score > 0 else "-Infinity")

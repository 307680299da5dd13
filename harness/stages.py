"""What the stages of a measuring process share: the job, its clock, and the judging of a finished run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from harness.attribution import TOP, as_table, attribute, totals
from harness.config import RunSpec
from harness.datasets import Dataset, load_dataset
from harness.environment import peak_rss_bytes
from harness.formats.trec import write_run
from harness.judging import judge
from harness.label_health import judged_at
from harness.metrics import Metric
from harness.results import CellKey, CellResult, MetricResult, StageTimes, file_name, write_atomic
from harness.significance import mean_interval
from harness.timing import summary_s, timed
from rag_core.errors import BudgetExceededError, InvalidArgumentError, RagCoreError
from rag_core.fusion import reading_depth
from rag_core.protocols import EmbedProvider, Reranker
from rag_core.types import Query, Ranking, Run

__all__ = ["Job", "Timed", "language_warning", "stat"]


@dataclass
class Timed:
    """Rankings of one stage with the seconds of every call: ``samples_s[round][query position]``."""

    rankings: dict[str, Ranking] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    samples_s: list[list[float]] = field(default_factory=list)
    warmup_s: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Job:
    """What both kinds of job share: settings, data, depth, rounds."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.spec = RunSpec.from_dict(job["spec"])
        self.dataset: Dataset = load_dataset(job["data"])
        if (wanted := job.get("hashes")) and wanted != dict(self.dataset.hashes):
            raise InvalidArgumentError(
                f"{job['data']} holds other data here than where the run began; share one folder"
            )
        self.queries: tuple[Query, ...] = self.dataset.queries
        self.metrics = [Metric.parse(name) for name in self.spec.metrics]
        read = (reading_depth(method, self.spec.candidate_pool) for method in self.spec.fusions)
        #: Documents asked of each leg.
        self.depth = max(self.spec.k, *read)
        self.rounds = max(self.spec.repeats, math.ceil(self.spec.min_samples / max(1, len(self.queries))))
        self.work, self.runs = Path(job["work"]), Path(job["runs"])
        self.wanted = [CellKey(**values) for values in job["cells"]]
        #: Document id -> tokens that the embedder reads of it, tokens of the whole; those that are cut.
        self.cut: dict[str, tuple[int, int]] = {}

    def where(self, query: Query) -> dict[str, Any] | None:
        """The filter that keeps a query within its scope."""
        scope = self.spec.scope or self.dataset.scope
        return {scope: query.metadata[scope]} if scope and scope in query.metadata else None

    def time_queries(self, call: Callable[[Query], Ranking]) -> Timed:
        """Run ``call`` for every query and round, after the warm-ups."""
        out = Timed()
        for query in self.queries[: self.spec.warmup]:
            started = perf_counter()
            try:
                call(query)
            except BudgetExceededError:
                raise  # the queries after this one would cost as much
            except RagCoreError:
                continue  # counted below, where the query is asked for the record
            out.warmup_s.append(perf_counter() - started)
        for number in range(self.rounds):
            row: list[float] = []
            for query in self.queries:
                try:
                    ranking, seconds = timed(lambda query=query: call(query))  # type: ignore[misc]
                except BudgetExceededError:
                    raise
                except RagCoreError as error:
                    out.failed[query.query_id] = str(error)
                    seconds = math.nan
                else:
                    if number == 0:
                        out.rankings[query.query_id] = ranking
                row.append(seconds)
            out.samples_s.append(row)
        return out

    def cell(
        self,
        key: CellKey,
        rankings: Mapping[str, Ranking],
        failed: Mapping[str, str],
        stages: Mapping[str, Timed],
        base: CellResult,
    ) -> CellResult:
        """Judge one run, derive its latencies and write its run file."""
        run = Run(key.cell_id, {q: r.top(self.spec.k) if len(r) else r for q, r in rankings.items()}, failed)
        judged = judge(run, self.dataset, self.metrics)
        metrics = {}
        for metric in self.metrics:
            values = judged.values[str(metric)]
            low = high = None
            if len(values):
                low, high = mean_interval(values, binary=metric.binary, seed=self.spec.seed)
            metrics[str(metric)] = MetricResult(judged.means[str(metric)], low, high, values.tolist())
        totals = np.sum([stage.samples_s for stage in stages.values()], axis=0).ravel()
        measured = [float(s) for s in totals if np.isfinite(s)]
        speed = {**base.speed, **summary_s(measured), "peak_rss_bytes": peak_rss_bytes()}
        counts = {
            **base.counts,
            **judged.counts,
            "n_duplicates": sum(ranking.duplicates for ranking in rankings.values()),
        }
        write_run(run, self.runs / f"{file_name(key)}.run", key.cell_id)
        return replace(
            base,
            key=key,
            status="failed" if judged.all_failed else "ok",
            reason=f"all queries failed; the first: {next(iter(failed.values()))}"
            if judged.all_failed
            else None,
            counts=counts,
            metrics={} if judged.all_failed else metrics,
            speed=speed,
            stages={
                name: StageTimes([float(s) for s in np.ravel(stage.samples_s)], stage.warmup_s)
                for name, stage in stages.items()
            },
            total_s=measured,
            attribution=None if judged.all_failed else self._attribution(key, run, stages),
            judged_at_10=None if judged.all_failed else judged_at(run.rankings, self.dataset.relevance),
            warnings=[*base.warnings, *(w for stage in stages.values() for w in stage.warnings)],
        )

    def _attribution(self, key: CellKey, run: Run, stages: Mapping[str, Timed]) -> dict[str, Any] | None:
        """Totals of which stage lost the relevant documents; each of them goes to a file beside the run."""
        lists = {
            name: {query_id: ranking.doc_ids for query_id, ranking in stages[name].rankings.items()}
            for name in ("vector", "bm25", "fusion", "rerank")
            if name in stages and (name != "rerank" or self.spec.score_threshold is not None)
        }
        pool, top = reading_depth(key.fusion, self.spec.candidate_pool), min(TOP, self.spec.k)
        fates = attribute(
            lists,
            {query_id: ranking.doc_ids for query_id, ranking in run.rankings.items()},
            self.dataset.relevance,
            pool=pool,
            present={document.doc_id for document in self.dataset.documents if not document.is_empty},
            failed=run.failed,
            top=top,
            cut=self.cut,
        )
        file = f"{file_name(key)}.fates.tsv"
        write_atomic(self.runs / file, as_table(fates))
        return {**totals(fates, pool=pool, top=top), "file": file}


def language_warning(name: str, languages: Sequence[str], corpus: Sequence[str]) -> list[str]:
    """A warning where ``corpus`` has a language that is not among those ``name`` is made for."""
    foreign = [language for language in corpus if languages and language not in languages]
    if not foreign:
        return []
    return [f"{name} is made for {', '.join(languages)}; the data set also has {', '.join(foreign)}"]


def stat(provider: EmbedProvider | Reranker, name: str) -> int:
    """The count ``name`` of a provider that keeps one; 0 of one that does not."""
    return int(getattr(getattr(provider, "stats", None), name, 0))

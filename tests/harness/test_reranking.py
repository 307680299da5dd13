"""The reranking stage: the scores it keeps, the cells made of them, and the clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.config import RunSpec
from harness.reranking import Reranked, load_reranker, time_depths
from harness.results import CellKey, CellResult, file_name, result_schema, strict
from harness.stages import Job, Timed
from rag_core.errors import ProviderError
from rag_core.reranking import RerankStats, interpolate, reorder
from rag_core.types import Query, Ranking

TEXTS = {f"d{i:02d}": f"text {i}" for i in range(24)}
QUERIES = ("qa", "qb", "qc")


class Scripted:
    """Scores a text by what stands in ``scores``; counts calls, and cuts those in ``cut``."""

    name = model = "scripted"
    target = "cpu"
    fingerprint = "scripted/1"

    def __init__(self, scores: dict[str, float], cut: Sequence[str] = (), fail: str = "") -> None:
        self.scores, self.cut, self.fail = scores, set(cut), fail
        self.calls: list[tuple[str, int]] = []
        self.stats = RerankStats()

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.calls.append((query, len(candidates)))
        if self.fail and query == self.fail:
            raise ProviderError("no luck")
        self.stats.pairs += len(candidates)
        self.stats.truncated += sum(text in self.cut for text in candidates)
        return [self.scores.get(text, 0.0) for text in candidates]


Setup = Callable[..., tuple[Job, Timed]]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A job over 24 documents and three queries, of which two are judged, and their fused lists."""
    folder = tmp_path / "town"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": d, "title": "", "text": text}) for d, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": q, "text": q}) for q in QUERIES))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nqa\td00\t1\nqa\td21\t1\nqb\td12\t2\nqb\td23\t1\n"
    )

    def make(**settings: Any) -> tuple[Job, Timed]:
        spec = RunSpec(data=str(folder), providers=("fake",), **{"candidate_pool": 22, **settings})
        job = Job(
            {
                "spec": spec.as_dict(),
                "data": str(folder),
                "work": str(tmp_path),
                "runs": str(tmp_path / "runs"),
                "cells": [],
            }
        )
        whole = Ranking.from_scores((d, -float(i)) for i, d in enumerate(TEXTS))
        (tmp_path / "runs").mkdir(exist_ok=True)
        return job, job.time_queries(lambda query: whole)

    return make


def key(pipeline: str = "hybrid+rerank") -> CellKey:
    return CellKey("town", "fake", "cpu", "fp32", "flat", pipeline, "scripted")


def cell(reranked: Reranked, fused: Timed, pipeline: str = "hybrid+rerank") -> CellResult:
    return reranked.cell(key(pipeline), {"fusion": fused}, CellResult(key(pipeline), "ok"))


def pools(job: Job, made: CellResult) -> dict[str, Any]:
    assert made.rerank is not None
    return json.loads((job.runs / made.rerank["pool_file"]).read_text())  # type: ignore[no-any-return]


def test_o29_every_score_stands_with_its_document(setup: Setup) -> None:
    """O29: the file of pools gives each document the score of its own text, in fused order; two documents
    of one text are two."""
    job, fused = setup()
    scores = {text: float(i * 7 % 11) for i, text in enumerate(TEXTS.values())}
    made = cell(Reranked(job, Scripted(scores), fused), fused)
    found = pools(job, made)
    assert made.rerank is not None
    assert made.rerank["pool_file"] == f"{file_name(key())}.pool.json"
    assert (found["reranker"], found["pool"], set(found["queries"])) == ("scripted/1", 22, set(QUERIES))
    for one in found["queries"].values():
        assert one["doc_ids"] == list(TEXTS)[:22]
        assert one["scores"] == [scores[TEXTS[d]] for d in one["doc_ids"]]
    order = reorder(fused.rankings["qa"].top(22), found["queries"]["qa"]["scores"]).ranking.doc_ids
    run = (job.runs / f"{file_name(key())}.run").read_text().splitlines()
    assert tuple(line.split()[2] for line in run if line.startswith("qa ")) == (*order, "d22", "d23")


def test_o30_nan_is_null_never_wins_and_is_told(setup: Setup) -> None:
    """O30: NaN and infinities stay strict JSON; equal scores change nothing and say so."""
    job, fused = setup()
    scores = {TEXTS["d00"]: math.nan, TEXTS["d01"]: math.inf, TEXTS["d02"]: -math.inf, TEXTS["d03"]: 2.0}
    made = cell(Reranked(job, Scripted(scores), fused), fused)
    assert pools(job, made)["queries"]["qa"]["scores"][:4] == [None, "Infinity", "-Infinity", 2.0]
    assert made.rerank is not None
    assert made.rerank["fates"]["pushed_out"] == 1  # d00, relevant to qa
    assert "NaN for 1 of 22 candidates" in made.warnings[0]
    made = cell(Reranked(job, Scripted({}), fused), fused)
    assert made.rerank is not None
    assert made.rerank["before"] == made.rerank["after"]
    assert "all 22 candidates the same score" in made.warnings[0]


def test_o31_cut_pairs_are_counted_once(setup: Setup) -> None:
    """O31: warm-ups, rounds and the calls that time the depths read the same pairs again."""
    job, fused = setup(repeats=2, warmup=3)
    reranker = Scripted({}, cut=[TEXTS["d00"], TEXTS["d05"], TEXTS["d23"]])
    made = cell(Reranked(job, reranker, fused), fused)
    assert made.counts["n_truncated_pairs"] == 6  # two of the pool, for three queries
    assert reranker.stats.truncated > 6
    assert "read 6 of 66 pairs only in part" in made.warnings[-1]


def test_both_pipelines_come_from_one_set_of_scores(setup: Setup) -> None:
    job, fused = setup(warmup=0, min_samples=1)
    scores = {text: float(i) for i, text in enumerate(TEXTS.values())}
    reranker = Scripted(scores)
    reranked = Reranked(job, reranker, fused)
    plain = cell(reranked, fused)
    calls = len(reranker.calls)
    ranks = cell(reranked, fused, "hybrid+rerank+rrf")
    assert len(reranker.calls) == calls
    assert sum(n == 22 for _, n in reranker.calls) == len(QUERIES)
    assert plain.rerank is not None
    assert ranks.rerank is not None
    assert (plain.rerank["mix"], ranks.rerank["mix"]) == ("scores", "ranks")
    assert ranks.settings["rerank_mix"] == {"method": "rrf", "k": 60.0, "weight": 1.0}
    assert pools(job, plain) == pools(job, ranks)
    head = fused.rankings["qa"].top(22)
    mixed = interpolate(head, reorder(head, [scores[TEXTS[d]] for d in head.doc_ids]).ranking)
    run = (job.runs / f"{file_name(key('hybrid+rerank+rrf'))}.run").read_text().splitlines()
    assert [line.split()[2] for line in run if line.startswith("qa ")][:22] == list(mixed.doc_ids)
    # the seconds of the scores count in both
    pairs = zip(ranks.stages["rerank"].samples_s, plain.stages["rerank"].samples_s)
    assert all(a > b for a, b in pairs)


@pytest.mark.parametrize("pipeline", ["hybrid+rerank", "hybrid+rerank+rrf"])
@pytest.mark.parametrize("settings", [{}, {"k": 5}, {"candidate_pool": 4}])
def test_before_and_after_are_the_figures_of_the_cells(
    setup: Setup, pipeline: str, settings: dict[str, Any]
) -> None:
    job, fused = setup(**settings)
    made = cell(
        Reranked(job, Scripted({text: float(-i % 5) for i, text in enumerate(TEXTS.values())}), fused),
        fused,
        pipeline,
    )
    before = job.cell(key("hybrid"), fused.rankings, {}, {"fusion": fused}, CellResult(key("hybrid"), "ok"))
    assert made.rerank is not None
    for name in ("ndcg@10", "precision@5"):
        assert made.rerank["after"][name] == made.metrics[name].per_query
        assert made.rerank["before"][name] == before.metrics[name].per_query


def test_a_failed_query_has_a_pool_without_scores(setup: Setup) -> None:
    job, fused = setup()
    fused.failed["qc"] = "the leg failed"
    made = cell(Reranked(job, Scripted({}, fail="qa"), fused), fused, "hybrid+rerank+rrf")
    assert made.counts["n_failed"] == 2
    found = pools(job, made)["queries"]
    assert set(found) == {"qa", "qb"}
    assert found["qa"]["scores"] is None
    assert made.rerank is not None
    assert made.rerank["after"]["mrr@10"][0] == 0.0 < made.rerank["before"]["mrr@10"][0]


def test_all_failed_is_no_measurement(setup: Setup) -> None:
    job, fused = setup()
    fused.failed.update(dict.fromkeys(QUERIES, "the leg failed"))
    made = cell(Reranked(job, Scripted({}), fused), fused)
    assert (made.status, made.rerank) == ("failed", None)
    assert not list(job.runs.glob("*.pool.json"))


def test_queries_that_find_nothing_have_empty_pools(setup: Setup) -> None:
    job, fused = setup()
    fused.rankings = dict.fromkeys(QUERIES, Ranking.from_scores(()))
    reranker = Scripted({})
    made = cell(Reranked(job, reranker, fused), fused, "hybrid+rerank+rrf")
    assert reranker.calls == []
    assert made.rerank is not None
    assert made.rerank["depths"] == []
    assert pools(job, made)["queries"]["qa"] == {"doc_ids": [], "scores": []}


def test_each_depth_is_judged_and_timed(setup: Setup) -> None:
    """d21 stands last in the pool of 22, and only the deepest depth lifts it."""
    job, fused = setup()
    made = cell(Reranked(job, Scripted({TEXTS["d21"]: 9.0}), fused), fused)
    assert made.rerank is not None
    depths = made.rerank["depths"]
    assert [at["depth"] for at in depths] == [10, 20, 22]
    assert [at["n_timed"] for at in depths] == [3, 3, 3]
    assert all(at["median_s"] > 0 for at in depths)
    assert [at["means"]["mrr@10"] == 0.5 for at in depths] == [True, True, True]
    assert depths[0]["per_query"] == depths[1]["per_query"] != depths[2]["per_query"]
    assert 0 < made.rerank["share_of_p95"] <= 1
    assert made.rerank["added_s"] > 0
    assert made.rerank["points_per_ms"] > 0


def test_a_service_is_not_called_again_for_the_clock(setup: Setup) -> None:
    """Calls at smaller depths would be paid for: their milliseconds are not measured."""
    job, fused = setup()
    service = Scripted({TEXTS["d21"]: 9.0})
    service.target = "api"
    made = cell(Reranked(job, service, fused), fused)
    assert made.rerank is not None
    depths = made.rerank["depths"]
    assert [at["n_timed"] for at in depths] == [0, 0, 3]
    assert [at["median_s"] is None for at in depths] == [True, True, False]
    assert {size for _, size in service.calls} == {22}


def test_the_cell_stands_in_the_schema(setup: Setup) -> None:
    job, fused = setup()
    made = cell(Reranked(job, Scripted({}), fused), fused)
    schema = result_schema()
    whole = {**schema, **{"$ref": "#/$defs/cell"}}
    for name in ("type", "properties", "required", "additionalProperties"):
        whole.pop(name)
    values = strict(asdict(made))
    assert list(jsonschema.Draft202012Validator(whole).iter_errors(values)) == []
    assert CellResult.from_dict(values).rerank == values["rerank"]


def test_a_slow_reranker_is_timed_on_fewer_queries() -> None:
    """0.1 s a pair expected: depth 10 fits three times into 3 s where depth 20 never does after it."""
    queries = [Query(f"q{i}", "text") for i in range(20)]
    calls: list[tuple[str, int]] = []
    spent = time_depths(
        lambda query, depth: calls.append((query.query_id, depth)),
        queries,
        (10, 20),
        dict.fromkeys((query.query_id for query in queries), 0.1),
        limit_s=1.5,
    )
    # the calls themselves take no time, so that every depth 10 fits and no depth 20 does
    assert (len(spent[10]), len(spent[20])) == (20, 0)
    assert {depth for _, depth in calls} == {10}


def test_too_slow_for_any_call_and_failures_leave_no_time() -> None:
    query = Query("q", "text")

    def fail(query: Query, depth: int) -> None:
        raise ProviderError("no luck")

    assert time_depths(fail, [query], (10,), {"q": 0.0}) == {10: []}
    assert time_depths(fail, [query], (10,), {"q": 1.0}) == {10: []}


def test_seconds_already_spent_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.reranking.timed", lambda call: (call(), 1.0))
    queries = [Query(f"q{i}", "text") for i in range(9)]
    pair_s = {query.query_id: 0.1 for query in queries}
    spent = time_depths(lambda query, depth: None, queries, (10,), pair_s, limit_s=3.0)
    assert spent == {10: [1.0, 1.0, 1.0]}


def test_a_reranker_that_is_not_there_gives_the_reason() -> None:
    assert "UnknownNameError" in str(load_reranker("no-such-reranker", ["en"]))
    made, notes = load_reranker("noop", ["en"])
    assert (made.name, notes) == ("noop", [])  # type: ignore[union-attr]


def ranked(job: Job, pipeline: str = "hybrid+rerank") -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for line in (job.runs / f"{file_name(key(pipeline))}.run").read_text().splitlines():
        out.setdefault(line.split()[0], []).append(line.split()[2])
    return out


def test_a_threshold_drops_low_scores_and_what_was_not_scored(setup: Setup) -> None:
    """The scores decide whatever the mix, NaN never passes, and each loss is told."""
    job, fused = setup(score_threshold=5.0)
    scores = {text: float(i) for i, text in enumerate(TEXTS.values())} | {TEXTS["d07"]: math.nan}
    reranked = Reranked(job, Scripted(scores), fused)
    made = cell(reranked, fused)
    expected = [f"d{i:02d}" for i in range(21, 4, -1) if i != 7]
    assert ranked(job)["qa"] == expected
    assert made.settings["score_threshold"] == 5.0
    assert made.attribution is not None
    # of four relevant documents d00 scores 0 (ranked beyond the first ten) and d23 stands outside the pool
    assert made.attribution["fates"]["found"] == 2
    mixed = cell(reranked, fused, "hybrid+rerank+rrf")
    assert set(ranked(job, "hybrid+rerank+rrf")["qa"]) == set(expected)
    assert mixed.thresholds == made.thresholds


def test_a_threshold_above_every_score_leaves_empty_answers(setup: Setup) -> None:
    job, fused = setup(score_threshold=99.0)
    scores = {text: -float(i) for i, text in enumerate(TEXTS.values())}
    made = cell(Reranked(job, Scripted(scores), fused), fused)
    assert made.counts["n_empty_answers"] == 3
    assert made.metrics["ndcg@10"].mean == 0.0
    assert made.attribution is not None
    assert made.attribution["fates"]["threshold"] == 1  # d00, first of the reranked list
    assert made.judged_at_10 == [None, None]


def test_the_scores_of_each_query_are_kept_for_a_threshold(setup: Setup) -> None:
    job, fused = setup()
    scores = {text: float(i * 7 % 11) for i, text in enumerate(TEXTS.values())}
    made = cell(Reranked(job, Scripted(scores, fail="qb"), fused), fused)
    assert "score_threshold" not in made.settings
    best = max(scores[TEXTS[d]] for d in list(TEXTS)[:22] if d not in ("d00", "d21"))
    assert made.thresholds == {
        "of": "rerank",
        "relevant": [max(scores[TEXTS["d00"]], scores[TEXTS["d21"]]), None],
        "other": [best, None],
        "unanswerable": [max(scores[TEXTS[d]] for d in list(TEXTS)[:22])],
        "n_unjudged": 1,
    }

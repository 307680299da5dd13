"""The choice: non-inferiority, limits, what is never recommended, the order among the acceptable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from harness.cost import Usage
from harness.limits import limits_of, minimum
from harness.pairwise import all_pairs, margin_verdict
from harness.recommend import DEFAULT_MARGIN, Recommendation, recommend
from harness.recommend_findings import recommendation_sentences
from harness.results import CellKey, CellResult, MetricResult, ResultDocument
from harness.summary import verdict
from rag_core.errors import InvalidArgumentError

E5_HYBRID = "e5-small/cpu/q4/flat/hybrid/-"
E5_VECTOR = "e5-small/cpu/q4/flat/vector/-"
BM25 = "bm25/cpu/-/-/bm25/-"


def chosen(found: Recommendation) -> str:
    return found.chosen.row.cell.key.cell_id if found.chosen else ""


def ids(found: Recommendation) -> list[str]:
    return [one.row.cell.key.cell_id for one in found.ranked]


def never(found: Recommendation) -> dict[str, str]:
    return {one.row.cell.key.cell_id: one.never for one in found.candidates if one.never}


def cell(document: ResultDocument, cell_id: str) -> CellResult:
    found = document.cell(cell_id)
    assert found is not None
    return found


def test_the_best_alone_where_nothing_else_is_shown_to_be_close(document: ResultDocument) -> None:
    found = recommend(document)
    assert found.margins == {"ndcg@10": DEFAULT_MARGIN}
    assert chosen(found) == E5_HYBRID == verdict(document).winner
    assert len(found.ranked) == 1


def test_the_fastest_of_those_within_the_margin(document: ResultDocument) -> None:
    """The bound decides, and it is the one that the verdict's sentence about margins reads."""
    cells = [one for one in document.cells if one.status == "ok"]
    pairs = all_pairs(sorted(cells, key=lambda one: -(one.mean("ndcg@10") or 0)), "ndcg@10")
    (pair,) = [p for p in pairs if (p.better, p.other) == (E5_HYBRID, E5_VECTOR)]
    bound = pair.difference.upper
    assert bound is not None
    cell(document, E5_VECTOR).speed["p95_s"] = 0.02
    assert margin_verdict(pair, bound * 1.001) in ("not worse", "equivalent")
    assert chosen(recommend(document, margins=[f"ndcg@10={bound * 1.001}"])) == E5_VECTOR
    assert chosen(recommend(document, margins=[f"ndcg@10={bound * 0.999}"])) == E5_HYBRID
    document.spec["margins"] = [f"ndcg@10={bound * 1.001}"]
    assert chosen(recommend(document)) == E5_VECTOR


def test_limits_leave_out_even_the_best(document: ResultDocument) -> None:
    wide = ["ndcg@10=0.9"]
    found = recommend(document, limits=limits_of({"p95": "1ms"}), margins=wide)
    assert ids(found) == [BM25]
    broken = {one.row.cell.key.cell_id: one.broken for one in found.candidates if one.broken}
    assert set(broken) == {
        E5_HYBRID,
        E5_VECTOR,
        "minilm/cpu/int8/flat/hybrid/-",
        "minilm/cpu/int8/flat/vector/-",
    }
    nothing = recommend(document, limits=limits_of({"p95": "1ms"}))
    assert nothing.chosen is None
    assert [limit.option for limit in nothing.binding] == ["--max-p95 1ms"]
    assert nothing.nearest is not None
    assert nothing.nearest.row.cell.key.cell_id == E5_HYBRID


def test_what_was_not_measured_keeps_no_limit(document: ResultDocument) -> None:
    cell(document, E5_HYBRID).speed["p95_s"] = None
    cell(document, E5_HYBRID).speed["peak_rss_bytes"] = float("nan")
    assert chosen(recommend(document)) == E5_HYBRID
    for most in ({"p95": "1min"}, {"rss": "1TB"}):
        found = recommend(document, limits=limits_of(most))
        assert found.chosen is None
        assert found.nearest is not None
        assert found.nearest.broken[0][1] is None


def test_a_minimum_of_another_metric(document: ResultDocument) -> None:
    value = cell(document, E5_VECTOR).mean("precision@5")
    cell(document, E5_VECTOR).speed["p95_s"] = 0.02
    limit = minimum(f"precision@5={value}", ["precision@5"])
    assert ids(recommend(document, limits=[limit], margins=["ndcg@10=0.9"])) == [E5_VECTOR, E5_HYBRID]


def test_a_second_margin_must_hold_as_well(document: ResultDocument) -> None:
    wide = ["ndcg@10=0.9"]
    assert E5_VECTOR in ids(recommend(document, margins=wide))
    both = recommend(document, margins=[*wide, "recall@10=0.001"])
    assert E5_VECTOR not in ids(both)
    assert list(both.margins) == ["ndcg@10", "recall@10"]


def test_baseline_stand_ins_doubted_and_failed_cells_are_never_recommended(document: ResultDocument) -> None:
    fake = cell(document, "fake/cpu/fp32/flat/hybrid/-")
    hybrid = cell(document, E5_HYBRID)
    document.cells += [
        replace(fake, key=replace(fake.key, provider="fake-e5-small", pipeline="vector")),
        replace(hybrid, key=replace(hybrid.key, pipeline="hybrid+rerank", reranker="noop")),
    ]
    document.parity = [
        {
            "kind": "embedder",
            "provider": "minilm",
            "target": "cpu",
            "verdict": "differs",
            "reason": "cosine 0.2",
        }
    ]
    found = recommend(document, margins=["ndcg@10=0.9"])
    left_out = never(found)
    assert left_out["fake/cpu/fp32/flat/hybrid/-"] == "the baseline"
    assert left_out["fake-e5-small/cpu/fp32/flat/vector/-"].startswith("a stand-in")
    assert left_out["e5-small/cpu/q4/flat/hybrid+rerank/noop"].startswith("a stand-in")
    assert left_out["minilm/cpu/int8/flat/hybrid/-"] == "cosine 0.2"
    assert "upside down" in left_out["broken/cpu/-/flat/vector/-"]
    assert set(ids(found)) == {BM25, E5_HYBRID, E5_VECTOR}


def test_a_baseline_that_scores_highest_is_not_the_yardstick(document: ResultDocument) -> None:
    fake = cell(document, "fake/cpu/fp32/flat/hybrid/-")
    fake.metrics["ndcg@10"] = MetricResult(1.0, 1.0, 1.0, [1.0] * 40)
    found = recommend(document)
    assert chosen(found) == E5_HYBRID
    assert found.best is found.chosen


def test_few_queries_show_nothing_of_any_other(factory: Callable[..., ResultDocument]) -> None:
    assert chosen(recommend(factory(29), margins=["ndcg@10=0.9"])) == E5_HYBRID
    assert chosen(recommend(factory(30), margins=["ndcg@10=0.9"])) == BM25


@pytest.mark.parametrize(
    ("prefer", "first"),
    [
        *((order, BM25) for order in ("latency", "memory", "throughput", "cost")),
        ("quality", E5_HYBRID),
    ],
)
def test_orders(document: ResultDocument, prefer: str, first: str) -> None:
    found = recommend(document, margins=["ndcg@10=0.9"], prefer=prefer)
    assert ids(found)[0] == first
    assert found.prefer == prefer


def test_cost_decides_where_a_service_takes_part(document: ResultDocument) -> None:
    paid = asdict(Usage("s", "m", "embed", True, True, 0.1, query_units=9, queries=1))
    cell(document, E5_VECTOR).cost = {"embed": paid}
    cell(document, E5_VECTOR).speed["p95_s"] = 1e-6
    found = recommend(document, margins=["ndcg@10=0.9"])
    assert found.prefer == "cost"
    assert ids(found)[0] == BM25
    assert ids(found)[-1] == E5_VECTOR
    assert ids(recommend(document, margins=["ndcg@10=0.9"], prefer="latency"))[0] == E5_VECTOR
    hours = recommend(document, limits=limits_of({"rss": "100MB"}), margins=["ndcg@10=0.9"], usd_per_hour=1.0)
    assert hours.prefer == "latency"


def test_without_a_p95_for_all_medians_are_compared(document: ResultDocument) -> None:
    cell(document, BM25).speed["p95_s"] = None
    found = recommend(document, margins=["ndcg@10=0.9"])
    assert found.figure == "p50"
    assert ids(found)[0] == BM25


def test_what_is_refused(document: ResultDocument) -> None:
    with pytest.raises(InvalidArgumentError, match="--prefer 'fun'; accepted: auto, latency"):
        recommend(document, prefer="fun")
    with pytest.raises(InvalidArgumentError, match="ndcg@3 was not measured; the result holds ndcg@10"):
        recommend(document, metric="ndcg@3")
    with pytest.raises(InvalidArgumentError, match="recall@3 was not measured"):
        recommend(document, margins=["recall@3=0.1"])


def test_nothing_measured(document: ResultDocument) -> None:
    document.cells = [one for one in document.cells if one.status != "ok"]
    found = recommend(document)
    assert (found.best, found.chosen, found.nearest, found.binding) == (None, None, None, [])


def test_a_worse_system_is_seldom_let_through() -> None:
    """One that is worse by exactly the margin, 300 simulated runs: 5 % and its error of sampling."""
    generator = np.random.default_rng(5)
    passed = 0
    for _ in range(300):
        best = np.clip(generator.normal(0.7, 0.2, 60), 0, None)
        other = best - 0.05 + generator.normal(0, 0.1, 60)
        cells = [
            CellResult(
                CellKey("d", name, "cpu", "-", "flat", "vector", "-"), "ok",
                metrics={"ndcg@10": MetricResult(float(np.mean(values)), None, None, values.tolist())},
                speed={"p95_s": speed, "p50_s": speed},
            )
            for name, values, speed in (("slow", best, 1.0), ("fast", other, 0.1))
        ]  # fmt: skip
        made = ResultDocument(
            "d", "complete", "", {}, "", {"query_ids": [str(i) for i in range(60)]}, {}, cells=cells
        )
        found = recommend(made, margins=["ndcg@10=0.05"])
        passed += found.chosen is not None and found.chosen.row.cell.key.provider == "fast"
    assert passed <= 300 * 0.05 + 3 * (300 * 0.05 * 0.95) ** 0.5
    assert passed > 0


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf")])
def test_a_price_of_the_machine_is_a_number_from_0(document: ResultDocument, usd: float) -> None:
    with pytest.raises(InvalidArgumentError, match=r"--usd-per-hour .*; accepted: a finite number from 0"):
        recommend(document, usd_per_hour=usd)


@pytest.mark.parametrize("prefer", ["auto", "latency", "throughput"])
def test_times_of_two_machines_do_not_decide(document: ResultDocument, prefer: str) -> None:
    vector = cell(document, E5_VECTOR)
    vector.speed |= {"p95_s": 0.001, "p50_s": 0.001, "docs_per_s": 1e6}
    assert ids(recommend(document, margins=["ndcg@10=0.2"], prefer=prefer))[0] == E5_VECTOR
    vector.environment = {"machine_fingerprint": "another"}
    found = recommend(document, margins=["ndcg@10=0.2"], prefer=prefer)
    assert (found.prefer, ids(found)[0]) == ("quality", E5_HYBRID)
    said = recommendation_sentences(found)
    assert any("several machines: their times are not compared" in line for line in said)

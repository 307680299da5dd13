"""Limits: what keeps them, and that what was not measured keeps none."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from harness.cost import Usage
from harness.limits import FIGURES, Limit, cold_start_s, limits_of, minimum, usd_per_1k
from harness.results import CellResult, ResultDocument, StageTimes
from harness.rows import Row, make_rows
from rag_core.errors import InvalidArgumentError, UnknownNameError


def row_of(document: ResultDocument, pipeline: str = "hybrid", provider: str = "e5-small") -> Row:
    return next(
        row
        for row in make_rows(document)
        if (row.cell.key.provider, row.cell.key.pipeline) == (provider, pipeline)
    )


def with_cell(row: Row, **changes: object) -> Row:
    return replace(row, cell=replace(row.cell, **changes))


def test_a_limit_is_kept_at_its_value_and_by_nothing_unknown() -> None:
    most = Limit("--max-p95 1s", FIGURES["p95"], 1.0)
    assert [most.keeps(value) for value in (0.5, 1.0, 1.001, None, math.nan, math.inf)] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    least = Limit("--min precision@5=0.5", FIGURES["p95"], 0.5, is_most=False)
    assert [least.keeps(value) for value in (0.5, 0.49, None)] == [True, False, False]
    assert most.excess(1.5) == pytest.approx(0.5)
    assert least.excess(0.4) == pytest.approx(0.2)
    assert most.excess(0.2) == 0
    assert most.excess(None) == math.inf
    assert Limit("--max-usd-per-1k 0", FIGURES["usd-per-1k"], 0.0).excess(0.1) == math.inf


def test_limits_are_read_from_the_options(document: ResultDocument) -> None:
    row = row_of(document)
    found = limits_of({"p50": "", "p95": "500ms", "rss": "2GB", "cold-start": "10s", "usd-per-1k": "$1"})
    assert [(limit.option, limit.value) for limit in found] == [
        ("--max-p95 500ms", 0.5),
        ("--max-rss 2GB", 2e9),
        ("--max-cold-start 10s", 10.0),
        ("--max-usd-per-1k $1", 1.0),
    ]
    assert found[0].figure.of(row) == row.cell.speed["p95_s"]
    assert found[1].figure.of(row) == 410e6
    assert found[3].figure.of(row) == 0
    assert limits_of({"usd-per-1k": "1"}, 3.6)[0].figure.of(row) == usd_per_1k(row, 3.6)
    with pytest.raises(InvalidArgumentError, match="--max-p95 '500'; accepted: a number above 0 with us"):
        limits_of({"p95": "500"})


def test_a_minimum_names_a_metric_of_the_result(document: ResultDocument) -> None:
    limit = minimum("precision@5=0.88", ["ndcg@10", "precision@5"])
    row = row_of(document)
    assert limit.figure.of(row) == row.cell.mean("precision@5")
    assert not limit.is_most
    for bad in ("precision@5", "precision@5=", "precision@5=2", "precision@5=x", "precision@5=nan"):
        with pytest.raises(InvalidArgumentError, match="accepted: metric=number"):
            minimum(bad, ["precision@5"])
    with pytest.raises(InvalidArgumentError, match="the result holds ndcg@10"):
        minimum("precision@3=0.5", ["ndcg@10"])
    with pytest.raises(UnknownNameError, match="unknown metric"):
        minimum("beauty=0.5", ["ndcg@10"])


def test_cold_start_counts_every_model(document: ResultDocument) -> None:
    row = row_of(document)
    assert cold_start_s(row) == pytest.approx(0.31 + 0.82 + 0.061)
    assert cold_start_s(with_cell(row, speed={**row.cell.speed, "load_s": None})) is None
    reranked = with_cell(
        row,
        key=replace(row.cell.key, pipeline="hybrid+rerank", reranker="fine"),
        stages={**row.cell.stages, "rerank": StageTimes([0.1], [0.4, 0.1])},
    )
    assert cold_start_s(reranked) is None  # an older result does not know how long it loaded
    loaded = with_cell(reranked, speed={**row.cell.speed, "rerank_load_s": 2.0})
    assert cold_start_s(loaded) == pytest.approx(0.31 + 0.82 + 0.061 + 2.0 + 0.4)
    bm25 = row_of(document, "bm25", "bm25")
    assert cold_start_s(bm25) == bm25.cell.stages["bm25"].warmup_s[0]
    assert cold_start_s(with_cell(bm25, stages={})) is None


def usage(kind: str, **changes: object) -> dict[str, object]:
    return asdict(Usage("s", "m", kind, True, True, 0.1, query_units=20_000, queries=1000)) | changes


def test_money_is_what_services_charge_and_what_the_machine_costs(document: ResultDocument) -> None:
    row = row_of(document)
    assert usd_per_1k(row) == 0
    paid = with_cell(row, cost={"embed": usage("embed")})
    assert usd_per_1k(paid) == pytest.approx(0.1 * 20 / 1e6 * 1000)
    both = with_cell(row, cost={"embed": usage("embed"), "rerank": usage("rerank", query_units=10_000)})
    assert usd_per_1k(both) == pytest.approx(0.1 * 30 / 1e6 * 1000)
    assert usd_per_1k(with_cell(row, cost={"embed": usage("embed", price_usd=None)})) is None
    own_server = with_cell(row, cost={"embed": usage("embed", is_paid=False)})
    assert usd_per_1k(own_server) == 0
    service: CellResult = replace(row.cell, key=replace(row.cell.key, target="api"), cost=None)
    assert usd_per_1k(replace(row, cell=service)) is None


def test_an_hour_of_the_machine_is_charged_for_local_stages_alone(document: ResultDocument) -> None:
    row = with_cell(
        row_of(document), stages={"embed": StageTimes([0.2, 0.1, 0.3]), "bm25": StageTimes([0.01, 0.03])}
    )
    assert usd_per_1k(row, 3.6) == pytest.approx((0.2 + 0.02) * 1000 * 3.6 / 3600)
    paid = with_cell(row, cost={"embed": usage("embed")})
    assert usd_per_1k(paid, 3.6) == pytest.approx(0.002 + 0.02)
    assert usd_per_1k(with_cell(row, stages={"embed": StageTimes([])}), 3.6) is None

"""The table of systems: what can be sorted, and prices that are known."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest

from harness.cost import Usage
from harness.limits import usd_per_1k
from harness.render.htmltable import scale, systems_table
from harness.results import ResultDocument
from harness.rows import Row, make_rows, metric_names

PAID = Usage("s", "m", "embed", True, True, 2.0, queries=10, query_units=100)


def with_cost(row: Row, **used: Usage) -> Row:
    return replace(row, cell=replace(row.cell, cost={kind: asdict(one) for kind, one in used.items()}))


def test_a_column_of_prices_only_where_one_is_known(document: ResultDocument) -> None:
    rows = make_rows(document)
    assert "USD" not in systems_table(rows, ["ndcg@10"], "ndcg@10", None)
    rows[2] = with_cost(rows[2], embed=PAID)
    html = systems_table(rows, ["ndcg@10"], "ndcg@10", None)
    assert 'data-v="0.02">0.0200</td>' in html
    assert 'data-v="0">0</td>' in html  # a local model without a price of the machine is not charged for


def test_the_price_is_the_one_that_a_recommendation_goes_by(document: ResultDocument) -> None:
    rows = make_rows(document)
    html = systems_table(rows, ["ndcg@10"], "ndcg@10", 3.6)
    known = [usd for row in rows if row.ok and (usd := usd_per_1k(row, 3.6))]
    assert known
    assert all(f'data-v="{usd:.6g}"' in html for usd in known)


def test_values_to_sort_by_are_numbers_or_nothing(document: ResultDocument) -> None:
    rows = make_rows(document)
    html = systems_table(rows, metric_names(document), "ndcg@10", None)
    for value in re.findall(r'<td[^>]* data-v="([^"]*)"', html):
        assert value == "" or float(value) == pytest.approx(float(value))
    assert html.count('aria-sort="descending"') == 1
    heads = re.search(r"<thead>.*?</thead>", html, re.S)
    assert heads
    n_shown = len(re.findall(r"<th ", heads[0])) - len(re.findall(r"<th [^>]*hidden", heads[0]))
    assert n_shown == 3 + 4  # system, metric, difference; two latencies, rate and memory


def test_rows_tell_provider_pipeline_and_status(document: ResultDocument) -> None:
    html = systems_table(make_rows(document), ["ndcg@10"], "ndcg@10", None)
    assert html.count('data-provider="broken" data-pipeline="vector" data-status="failed"') == 1
    assert html.count('class="chip best"') == 1
    assert html.count('<span class="chip">baseline</span>') == 1


def test_differences_of_the_other_metrics_have_no_interval(document: ResultDocument) -> None:
    html = systems_table(make_rows(document), ["ndcg@10", "recall@10"], "ndcg@10", None)
    cells = re.findall(r'<td data-m="1" hidden class="n" data-v="([^"]*)">(.*?)</td>', html)
    assert len(cells) == 6
    assert not [text for _, text in cells if " to " in text]


def test_the_scale_ends_at_the_next_tenth(document: ResultDocument) -> None:
    rows = make_rows(document)
    highest = max(found.high or 0 for row in rows if (found := row.cell.metrics.get("ndcg@10")))
    assert highest <= scale(rows, "ndcg@10") <= min(1.0, highest + 0.1)
    assert scale([], "ndcg@10") == 1.0

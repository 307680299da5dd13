"""Costs worked out by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from harness.cost import PER, Usage, break_even_queries, queries_per_month
from rag_core import prices

PAID = Usage(
    "cohere", "m", "embed", True, True, 0.10, "tokens", "2026-11-30",
    documents=200, document_units=40_000, document_s=8.0, queries=50, query_units=500, query_s=0.1,
)  # fmt: skip
SEARCH = Usage("cohere", "rerank", "rerank", True, True, 2.0, "searches", queries=40, query_units=60)
LOCAL = Usage("minilm", "m", "embed", False, False, documents=100, document_s=2.0, queries=10, query_s=0.036)


def test_list_prices() -> None:
    # 200 tokens a document, 0.1 USD a million: 10,000 documents are 2 million tokens
    assert PAID.usd_per_10k_documents == pytest.approx(0.20)
    # 10 tokens a query: 1,000 queries are 10,000 tokens
    assert PAID.usd_per_1k_queries == pytest.approx(0.001)
    # 1.5 searches a query, 2 USD a thousand
    assert SEARCH.usd_per_1k_queries == pytest.approx(3.0)
    assert SEARCH.usd_per_10k_documents is None
    assert PAID.texts_per_s == 25


def test_what_is_not_known_is_none_and_never_zero() -> None:
    for changed in ({"price_usd": None}, {"is_paid": False}, {"documents": 0, "queries": 0}):
        usage = replace(PAID, **changed)
        assert usage.usd_per_10k_documents is None
        assert usage.usd_per_1k_queries is None
    for seconds in (None, 0.0):
        assert replace(PAID, document_s=seconds).texts_per_s is None
        assert replace(LOCAL, document_s=seconds).machine_usd_per_10k_documents(1.0) is None
        assert replace(LOCAL, query_s=seconds).machine_usd_per_1k_queries(1.0) is None
        assert queries_per_month(seconds) is None
    assert break_even_queries(1.0, None) is None
    assert break_even_queries(1.0, 0.0) is None


def test_a_machine_by_the_hour() -> None:
    # 20 ms a document: 200 s for 10,000; 36 s for 1,000 queries, a hundredth of an hour
    assert LOCAL.machine_usd_per_10k_documents(1.8) == pytest.approx(0.1)
    assert LOCAL.machine_usd_per_1k_queries(2.0) == pytest.approx(0.02)
    assert PAID.machine_usd_per_10k_documents(1.8) is None
    assert PAID.machine_usd_per_1k_queries(1.8) is None


def test_break_even() -> None:
    # 0.5 USD an hour are 365 USD a month; at 0.002 USD a query that is 182,500 queries
    assert break_even_queries(0.5, 2.0) == pytest.approx(182_500)
    assert queries_per_month(0.5) == 730 * 7200


def test_the_units_are_those_of_the_price_table() -> None:
    assert prices.PER == PER
    price = prices.Price("x", "m", "embed", 0.3)
    assert replace(PAID, price_usd=price.usd).usd_per_10k_documents == pytest.approx(
        price.cost_usd(2_000_000)
    )


def test_from_plain_values_and_back() -> None:
    assert Usage.from_dict({**asdict(PAID), "of_a_later_version": 1}) == PAID

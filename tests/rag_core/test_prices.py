"""The table of prices, estimates, and a budget that is never passed."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core import get_embedder
from rag_core.errors import BudgetExceededError, InvalidArgumentError
from rag_core.prices import Budget, CostEstimate, Price, all_prices, cost_estimate, price_of, searches


def test_the_table_is_dated_and_each_line_stands_once() -> None:
    prices = all_prices()
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", price.date) for price in prices)
    keys = [(price.provider, price.model, price.kind) for price in prices]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "provider, model, kind, usd",
    [
        ("openai", "text-embedding-3-small", "embed", 0.02),
        ("openai", "text-embedding-3-large", "embed", 0.13),
        ("cohere", "embed-multilingual-v3.0", "embed", 0.10),
        ("voyage", "voyage-multilingual-2", "embed", 0.12),
        ("cohere", "rerank-v3.5", "rerank", 2.00),
        ("voyage", "rerank-2.5", "rerank", 0.05),
    ],
)
def test_known_prices(provider: str, model: str, kind: Any, usd: float) -> None:
    price = price_of(provider, model, kind)
    assert price is not None
    assert price.usd == usd


def test_a_price_of_another_kind_or_name_is_unknown() -> None:
    assert price_of("cohere", "rerank-v3.5", "embed") is None
    assert price_of("openai", "no-such-model") is None


def test_units() -> None:
    assert Price("a", "m", "embed", 0.02).cost_usd(50_000_000) == pytest.approx(1.0)
    assert Price("a", "m", "rerank", 2.0, "searches").cost_usd(500) == pytest.approx(1.0)
    assert [searches(n) for n in (0, 1, 100, 101, 250)] == [1, 1, 1, 2, 3]
    for usd, unit in ((-1, "tokens"), (float("nan"), "tokens"), (1, "pages")):
        with pytest.raises(InvalidArgumentError, match="accepted"):
            Price("a", "m", "embed", usd, unit)


def test_estimates(scripted: Any) -> None:
    local = cost_estimate(["one two", "", "three"], get_embedder("fake"))
    assert local == CostEstimate(3, 0.0)
    assert str(local) == "3 tokens, about 0 USD"
    paid = scripted("openai", "text-embedding-3-small")
    found = cost_estimate(["w " * 999] * 1000, paid)
    assert (found.tokens, found.usd) == (1_000_000, pytest.approx(0.02))
    assert str(found) == f"1,000,000 tokens, about 0.02 USD, list price of {found.price_date}"
    assert paid.asked == []
    unknown = cost_estimate(["a"], scripted("acme"))
    assert unknown.usd is None
    assert str(unknown) == "2 tokens at an unknown price"
    own = Price("acme", "", "embed", 500_000.0)
    assert cost_estimate(["a"], scripted("acme"), own).usd == 1.0


def test_a_budget_names_what_is_spent_the_next_cost_and_the_limit() -> None:
    budget = Budget(1)
    budget.reserve("a", 0.75)
    budget.settle(0.75, 0.5)
    budget.reserve("a", 0.5)
    with pytest.raises(
        BudgetExceededError, match=r"a: not sent.*1 USD, 1 USD.*0\.25 USD more; raise max_usd"
    ) as e:
        budget.reserve("a", 0.25)
    assert (e.value.spent_usd, e.value.next_usd, e.value.max_usd) == (1.0, 0.25, 1.0)
    budget.settle(0.5, 0.0)
    assert (budget.spent_usd, budget.left_usd) == (0.5, 0.5)
    assert repr(budget) == "Budget(max_usd=1, spent_usd=0.5)"


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True])
def test_a_budget_refuses_what_is_none(bad: float) -> None:
    with pytest.raises(InvalidArgumentError, match="max_usd"):
        Budget(bad)


@given(
    limit=st.integers(0, 64),
    calls=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16), st.booleans()), max_size=40),
)
def test_spending_never_passes_the_limit(limit: int, calls: list[tuple[int, int, bool]]) -> None:
    """Calls that reserve, of which some stay under way; sixteenths of a dollar add up exactly."""
    budget, open_calls = Budget(limit / 16), []
    for most, used, ends in calls:
        if most / 16 <= budget.left_usd:
            budget.reserve("a", most / 16)
            open_calls.append((most, min(used, most)))
        else:
            with pytest.raises(BudgetExceededError):
                budget.reserve("a", most / 16)
        if ends and open_calls:
            most, used = open_calls.pop(0)
            budget.settle(most / 16, used / 16)
        assert budget.spent_usd + sum(most for most, _ in open_calls) / 16 <= budget.max_usd


def test_threads_share_one_budget() -> None:
    budget, sent = Budget(1), []

    def work() -> None:
        for _ in range(50):
            try:
                budget.reserve("a", 1 / 64)
            except BudgetExceededError:
                return
            sent.append(1)
            budget.settle(1 / 64, 1 / 64)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent) == 64
    assert budget.spent_usd == 1.0

"""Counts, prices and budgets around one embedder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from providers._api import ApiEmbedder
from providers._http import Transport
from providers._pacing import Timers
from providers.openai import SERVICE
from rag_core import get_embedder
from rag_core.errors import (
    BudgetExceededError,
    InvalidArgumentError,
    PartialEmbedError,
    TransientError,
)
from rag_core.fingerprint import Fingerprint
from rag_core.metered import MeteredEmbedder
from rag_core.metrics import Metrics
from rag_core.prices import Budget, Price
from rag_core.testing import EmbedProviderConformance

Make = Callable[..., Any]
DOLLAR = Price("a", "", "embed", 1_000_000.0)  # a token


class TestConformance(EmbedProviderConformance):
    def make(self) -> Any:
        return MeteredEmbedder(get_embedder("fake-e5-small"), Metrics())


@dataclass
class Stats:
    requests: int = 0
    answered: int = 0
    retries: int = 0
    n_429: int = 0
    waited_s: float = 0.0
    tokens: int = 0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=3))


@dataclass
class Connection:
    stats: Stats = field(default_factory=Stats)


def counted(metrics: Metrics) -> dict[str, Any]:
    (found,) = metrics.snapshot().values()
    return found


def test_calls_of_a_provider_without_a_transport() -> None:
    metrics, ticks = Metrics(), iter([0.0, 0.2, 1.0, 1.0])
    metered = MeteredEmbedder(get_embedder("fake-e5-small"), metrics, clock=lambda: next(ticks))
    metered.embed(["one two", "", "three"])
    metered.embed([""])
    found = counted(metrics)
    assert (found["requests"], found["texts"], found["tokens"], found["cost_usd"]) == (1, 2, 5, 0)
    assert (found["latency_s"]["count"], found["latency_s"]["sum"]) == (1, 0.2)


def test_requests_waits_and_latencies_are_those_of_the_transport(scripted: Make) -> None:
    provider, metrics = scripted(), Metrics()
    provider.transport = Connection(Stats(requests=100, answered=90, tokens=1000, retries=7))
    metered = MeteredEmbedder(provider, metrics, price=DOLLAR)

    def answer(texts: Any) -> None:
        stats = provider.transport.stats
        stats.requests += 5
        stats.retries += 2
        stats.n_429 += 1
        stats.waited_s += 1.5
        stats.tokens += 30
        for seconds in (0.1, 0.2):
            stats.answered += 1
            stats.latency_s.append(seconds)

    provider.fail = answer
    for _ in range(3):
        metered.embed(["x"])
    found = counted(metrics)
    shown = {name: found[name] for name in ("requests", "retries", "rate_limited", "waited_s", "tokens")}
    assert shown == {"requests": 15, "retries": 6, "rate_limited": 3, "waited_s": 4.5, "tokens": 90}
    assert found["latency_s"]["count"] == 6
    assert found["latency_s"]["sum"] == pytest.approx(0.9)
    assert found["cost_usd"] == metrics.cost_usd == 90


def test_a_provider_that_counts_nothing_has_its_tokens_estimated(scripted: Make) -> None:
    metrics = Metrics()
    MeteredEmbedder(Plain(scripted()), metrics, price=DOLLAR).embed(["one two", "three"])
    assert (counted(metrics)["tokens"], counted(metrics)["cost_usd"]) == (5, 5)


def test_a_service_behind_the_transport_is_counted_as_it_counts_itself() -> None:
    replies: deque[tuple[int, dict[str, str], Any]] = deque(
        [
            (429, {"retry-after": "2"}, {"error": "slow down"}),
            (200, {}, {"data": [{"index": 0, "embedding": [3, 4]}], "usage": {"total_tokens": 7}}),
            (200, {}, {"data": [{"index": 0, "embedding": [4, 3]}], "usage": {"total_tokens": 5}}),
        ]
    )

    def send(method: str, url: str, headers: Any, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        status, names, answer = replies.popleft()
        return status, names, json.dumps(answer).encode()

    slept: list[float] = []
    timers = Timers(clock=lambda: sum(slept), sleep=slept.append, random=lambda: 0.0)
    fingerprint = Fingerprint("openai", "text-embedding-3-small", "1", 2, "fp32", "service")
    transport = Transport("openai", "https://api.openai.com/v1", send, timers=timers)
    provider = ApiEmbedder(fingerprint, SERVICE, transport, SERVICE.limits)
    metrics, budget = Metrics(), Budget(1)
    metered = MeteredEmbedder(provider, metrics, budget=budget)
    metered.embed(["one"])
    metered.embed(["two"])
    found = counted(metrics)
    shown = {name: found[name] for name in ("requests", "texts", "tokens", "retries", "rate_limited")}
    assert shown == {"requests": 3, "texts": 2, "tokens": 12, "retries": 1, "rate_limited": 1}
    assert found["waited_s"] == 2.0
    assert found["latency_s"]["count"] == 2
    assert metrics.cost_usd == budget.spent_usd == pytest.approx(12 * 0.02e-6)


class Plain:
    """The protocol and nothing more."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.name, self.model, self.dim = inner.name, inner.model, inner.dim
        self.target, self.is_local, self.max_tokens = inner.target, inner.is_local, inner.max_tokens
        self.fingerprint = inner.fingerprint
        self.is_available, self.embed = inner.is_available, inner.embed
        self.count_tokens = inner.count_tokens


def test_what_a_plain_provider_lacks_is_made_up_for(scripted: Make) -> None:
    metered = MeteredEmbedder(Plain(scripted()), Metrics())
    assert metered.is_ready
    assert metered.prepare("x", "query") == "q x"
    metered.warmup()
    metered.close()
    assert metered.is_available()


def test_warmup_and_close_reach_the_provider(scripted: Make) -> None:
    provider = scripted()
    metered = MeteredEmbedder(provider, Metrics())
    assert not metered.is_ready
    metered.warmup()
    metered.close()
    assert metered.is_ready
    assert provider.closed == 1


def test_a_budget_stops_before_the_call_that_might_pass_it(scripted: Make) -> None:
    provider, metrics, budget = scripted(), Metrics(), Budget(5)
    metered = MeteredEmbedder(provider, metrics, budget=budget, price=DOLLAR)
    metered.embed(["one two"])  # three tokens, the mark of the role included: 4 USD counted
    assert budget.spent_usd == 4
    asked = len(provider.asked)
    with pytest.raises(BudgetExceededError, match="4 USD of it are spent and the call may cost 2 USD more"):
        metered.embed(["one"])
    assert len(provider.asked) == asked
    assert not metered.embed([""]).any()
    assert counted(metrics)["errors"] == {"BudgetExceededError": 1}
    assert metrics.cost_usd == budget.spent_usd


def test_a_call_that_fails_gives_its_reservation_back(scripted: Make) -> None:
    provider, metrics, budget = scripted(), Metrics(), Budget(5)
    metered = MeteredEmbedder(provider, metrics, budget=budget, price=DOLLAR)
    provider.down(TransientError("down", 503))
    for _ in range(3):
        with pytest.raises(TransientError):
            metered.embed(["one two"])
    assert (budget.spent_usd, budget.left_usd) == (0, 5)
    found = counted(metrics)
    assert (found["errors"], found["texts"], found["requests"]) == ({"TransientError": 3}, 0, 3)
    assert found["latency_s"]["count"] == 0


def test_texts_of_a_partial_result_count(scripted: Make) -> None:
    provider, metrics = scripted(), Metrics()
    vectors = np.ones((3, provider.dim), np.float32)
    provider.down(PartialEmbedError("a", vectors, {2: "bad"}))
    with pytest.raises(PartialEmbedError):
        MeteredEmbedder(provider, metrics).embed(["x", "y", "z"])
    assert counted(metrics)["texts"] == 2


def test_a_budget_needs_a_price(scripted: Make) -> None:
    with pytest.raises(InvalidArgumentError, match=r'no price of acme:model-acme.*\[prices\] "acme" = 0\.1'):
        MeteredEmbedder(scripted("acme"), Metrics(), budget=Budget(1))
    MeteredEmbedder(scripted("acme"), Metrics(), budget=Budget(1), price=DOLLAR)
    free = MeteredEmbedder(scripted("acme", is_local=True), Metrics(), budget=Budget(0), price=DOLLAR)
    assert free.price is None
    assert free.embed(["x"]).any()
    known = MeteredEmbedder(scripted("openai", "text-embedding-3-small"), Metrics(), budget=Budget(1))
    assert known.price is not None

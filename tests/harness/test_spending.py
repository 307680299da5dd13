"""Meters, and the budget that paid providers are held to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.cost import Usage
from harness.spending import Spending, is_replayed
from rag_core.errors import BudgetExceededError, InvalidArgumentError, ProviderError


class Paid:
    """An embedder and reranker that counts a token a word, and a request a call."""

    def __init__(self, name: str, model: str, target: str = "api", is_local: bool = False) -> None:
        self.name, self.model, self.target, self.is_local = name, model, target, is_local
        self.stats = SimpleNamespace(tokens=0, searches=0)
        self.transport = SimpleNamespace(
            stats=SimpleNamespace(texts=0, requests=0, retries=2, n_429=1, waited_s=1.5, latency_s=[0.1, 0.3])
        )
        self.fails = False

    def count_tokens(self, *texts: Any) -> Any:
        if len(texts) == 2:
            return sum(len(f"{texts[0]} {text}".split()) for text in texts[1])
        return [len(text.split()) for text in texts[0]]

    def embed(self, texts: Sequence[str], *, role: str = "document") -> Any:
        if self.fails:
            raise ProviderError("no")
        self.stats.tokens += sum(len(text.split()) for text in texts)
        self.transport.stats.requests += 1
        return np.zeros((len(texts), 4), np.float32)

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.stats.searches += 1
        self.transport.stats.requests += 1
        return [0.0] * len(candidates)


@pytest.fixture(autouse=True)
def asked_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAG_REPLAY", raising=False)


MILLION = "word " * 1_000_000


def test_a_call_that_may_pass_the_budget_is_not_made() -> None:
    told: list[float] = []
    provider = Paid("cohere", "embed-multilingual-v3.0")
    spending = Spending(0.35, 0.0, told.append)
    meter, held = spending.watch(provider, "embed")
    assert held.model == provider.model
    for _ in range(3):
        held.embed([MILLION])
    with pytest.raises(BudgetExceededError, match=r"the budget is 0\.35 USD, 0\.3 USD of it are spent"):
        held.embed([MILLION], role="query")
    assert provider.transport.stats.requests == 3
    assert told == pytest.approx([0.1, 0.2, 0.3])
    assert spending.usd == meter.usd == pytest.approx(0.3)


def test_what_earlier_processes_spent_counts() -> None:
    spending = Spending(0.35, 0.3, lambda usd: None)
    _, held = spending.watch(Paid("cohere", "embed-multilingual-v3.0"), "embed")
    with pytest.raises(BudgetExceededError):
        held.embed([MILLION])
    held.embed(["a few words"])


def test_a_call_that_fails_gives_its_share_back() -> None:
    provider = Paid("cohere", "embed-multilingual-v3.0")
    _, held = Spending(0.15, 0.0, lambda usd: None).watch(provider, "embed")
    provider.fails = True
    with pytest.raises(ProviderError, match="no"):
        held.embed([MILLION])
    provider.fails = False
    held.embed([MILLION])


def test_rerankers_are_paid_by_the_search_or_the_token() -> None:
    spending = Spending(0.0065, 0.0, lambda usd: None)
    meter, held = spending.watch(Paid("cohere", "rerank-v3.5"), "rerank")
    assert meter.most_units(["a"] * 101, "q") == 2
    assert meter.most_units(["", " "], "q") == 0
    for _ in range(3):
        held.rerank("q", ["a", "b"])
    with pytest.raises(BudgetExceededError):
        held.rerank("q", ["a"])
    assert meter.usd == pytest.approx(0.006)
    by_token, _ = spending.watch(Paid("voyage", "rerank-2.5"), "rerank")
    assert by_token.most_units(["a b", "c"], "the query") == 7


def test_a_job_that_may_cost_too_much_is_not_begun() -> None:
    spending = Spending(1.0, 0.4, lambda usd: None)
    meter, _ = spending.watch(Paid("cohere", "embed-multilingual-v3.0"), "embed")
    assert spending.expect(meter, 5_000_000, "documents", 1_000) == ""
    line = spending.expect(meter, 5_000_000, "documents", 1_001)
    assert line == "cohere: 1,001 documents, 5,000,000 tokens, about 0.5 USD, list price of 2026-11-30"
    with pytest.raises(BudgetExceededError, match=r"0\.4 USD of it are spent and the call may cost 0\.7 USD"):
        spending.expect(meter, 7_000_000, "documents", 10)


def test_without_a_price_there_is_an_estimate_of_tokens_but_no_budget() -> None:
    unknown = Paid("jina", "jina-embeddings-v9")
    meter, held = Spending(None, 0.0, lambda usd: None).watch(unknown, "embed")
    held.embed(["a"])
    assert meter.usd is None
    assert meter.usage()["usd"] is None
    line = Spending(None, 0.0, lambda usd: None).expect(meter, 9, "documents", 2_000)
    assert line == "jina: 2,000 documents, 9 tokens, at an unknown price"
    with pytest.raises(InvalidArgumentError, match="no price of jina:jina-embeddings-v9 is known"):
        Spending(1.0, 0.0, lambda usd: None).watch(unknown, "embed")


@pytest.mark.parametrize(
    "free",
    [
        Paid("openai", "own-model", is_local=True),
        Paid("minilm", "all-MiniLM-L6-v2", "cpu", is_local=True),
        # named like one that a service sells, on this machine
        Paid("cohere", "embed-multilingual-v3.0", "cpu", is_local=True),
    ],
)
def test_what_runs_here_is_free_and_not_wrapped(free: Paid) -> None:
    spending = Spending(0.0, 0.0, lambda usd: None)
    meter, held = spending.watch(free, "embed")
    assert held is free
    assert meter.usd == 0
    assert spending.expect(meter, 10**9, "documents", 10**6) == ""


def test_a_gateway_on_this_machine_to_a_priced_model_is_paid() -> None:
    meter, _ = Spending(None, 0.0, lambda usd: None).watch(
        Paid("cohere", "embed-multilingual-v3.0", is_local=True), "embed"
    )
    assert meter.is_paid


def test_a_replay_spends_nothing_and_has_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_REPLAY", "kept")
    provider = Paid("cohere", "embed-multilingual-v3.0")
    meter, held = Spending(0.0, 0.0, lambda usd: None).watch(provider, "embed")
    assert is_replayed(provider)
    assert not is_replayed(Paid("minilm", "m", "cpu"))
    held.embed([MILLION])
    meter.document_s = meter.query_s = 1.0
    usage = Usage.from_dict(meter.usage())
    assert (usage.usd, usage.document_s, usage.query_s, usage.latency_s) == (0.0, None, None, None)
    assert usage.price_usd == 0.10


def test_usage_tells_what_the_transport_counted() -> None:
    provider = Paid("voyage", "voyage-3.5")
    meter, held = Spending(None, 0.0, lambda usd: None).watch(provider, "embed")
    held.embed(["two words"])
    usage = Usage.from_dict(meter.usage())
    assert (usage.requests, usage.retries, usage.n_429, usage.waited_s) == (1, 2, 1, 1.5)
    assert usage.latency_s == pytest.approx(0.2)
    assert usage.usd == pytest.approx(2 * 0.06e-6)
    assert (usage.price_date, usage.unit, usage.is_paid) == ("2026-11-30", "tokens", True)

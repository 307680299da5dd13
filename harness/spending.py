"""Inside a measuring process: what the models use, and the budget that paid ones are held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.cost import Usage
from harness.stages import Job, Timed
from harness.timing import percentile
from rag_core.errors import BudgetExceededError, InvalidArgumentError
from rag_core.prices import Budget, price_of, searches
from rag_core.protocols import Role, Vectors
from rag_core.recording import replay_from

__all__ = ["MANY_DOCUMENTS", "Held", "Meter", "Spending", "is_replayed"]

Kind = Literal["embed", "rerank"]
#: Documents for a paid provider beyond which the estimate is shown before they are sent.
MANY_DOCUMENTS = 1_000


def is_replayed(provider: Any) -> bool:
    """Whether what ``provider`` answers comes from recordings."""
    return provider.target == "api" and bool(replay_from())


@dataclass(frozen=True, slots=True)
class Mark:
    """What a provider had counted at one moment."""

    units: int
    texts: int
    requests: int
    retries: int
    n_429: int
    waited_s: float


class Meter:
    """What one embedder or reranker uses, read from its own counts."""

    def __init__(self, provider: Any, kind: Kind) -> None:
        self.provider, self.kind = provider, kind
        self.is_service = provider.target == "api"
        price = price_of(provider.name, provider.model, kind) if self.is_service else None
        # a server on this machine is one's own, unless it sells a model that only a service has
        self.is_paid = self.is_service and (price is not None or not getattr(provider, "is_local", False))
        self.price = price
        self.document_s: float | None = None
        self.documents = self.document_units = self.queries = self.query_units = 0
        self.query_s: float | None = None

    def now(self) -> Mark:
        """The counts of this moment."""
        own = getattr(self.provider, "stats", None)
        wire = getattr(getattr(self.provider, "transport", None), "stats", None)
        name = "searches" if self.price and self.price.unit == "searches" else "tokens"
        texts, requests, retries, n_429 = (
            int(getattr(wire, each, 0)) for each in ("texts", "requests", "retries", "n_429")
        )
        waited_s = float(getattr(wire, "waited_s", 0.0))
        return Mark(int(getattr(own, name, 0)), texts, requests, retries, n_429, waited_s)

    def note_queries(self, this: Job, made: Timed, before: Mark) -> None:
        """What a stage used for its queries since ``before``, and their median seconds."""
        self.queries = this.rounds * len(this.queries) + len(made.warmup_s)
        self.query_units = self.now().units - before.units
        self.query_s = percentile([s for row in made.samples_s for s in row if math.isfinite(s)], 50)

    @property
    def usd(self) -> float | None:
        """Spent at list prices so far; 0 of what is not charged for, None where no price is known."""
        if not self.is_paid or is_replayed(self.provider):
            return 0.0
        return self.price.cost_usd(self.now().units) if self.price else None

    def most_units(self, texts: Sequence[str], query: str | None = None) -> int:
        """Tokens or searches that a call may be charged for, rather too many than too few."""
        sent = [text for text in texts if text.strip()]
        if self.kind == "embed":
            return int(sum(self.provider.count_tokens(sent)))
        if self.price and self.price.unit == "searches":
            return searches(len(sent)) if sent else 0
        count: Callable[[str, Sequence[str]], int] | None = getattr(self.provider, "count_tokens", None)
        return count(query or "", sent) if count else sum(len(text) for text in sent)

    def usage(self) -> dict[str, Any]:
        """The values of :class:`harness.cost.Usage`."""
        now, timed = self.now(), not is_replayed(self.provider)
        wire = getattr(getattr(self.provider, "transport", None), "stats", None)
        price = self.price
        return asdict(
            Usage(
                self.provider.name,
                self.provider.model,
                self.kind,
                self.is_service,
                self.is_paid,
                price.usd if price else None,
                price.unit if price else "tokens",
                price.date if price else "",
                self.documents,
                self.document_units,
                self.document_s if timed else None,
                self.queries,
                self.query_units,
                self.query_s if timed else None,
                now.texts,
                now.requests,
                now.retries,
                now.n_429,
                now.waited_s,
                percentile(list(getattr(wire, "latency_s", ())), 50) if timed else None,
                self.usd,
            )
        )


class Spending:
    """All meters of a process, and its part of the budget.

    ``tell(usd)`` is called after each call to a paid provider with what the process has spent so far.
    """

    def __init__(self, max_usd: float | None, spent_usd: float, tell: Callable[[float], None]) -> None:
        """``max_usd``: of the whole run; ``spent_usd``: of it, spent by earlier processes.

        Raises:
            BudgetExceededError: as much as that was spent before.
        """
        self.meters: list[Meter] = []
        self._tell, self._budget = tell, None if max_usd is None else Budget(max_usd)
        if self._budget and spent_usd:
            self._budget.settle(0.0, spent_usd)

    @property
    def usd(self) -> float:
        """Spent so far by this process, at list prices where they are known."""
        return sum(meter.usd or 0.0 for meter in self.meters)

    def watch(self, provider: Any, kind: Kind) -> tuple[Meter, Any]:
        """A meter of ``provider``, and what to call in its place.

        Raises:
            InvalidArgumentError: there is a budget, and nobody knows what the provider costs.
        """
        meter = Meter(provider, kind)
        self.meters.append(meter)
        if not meter.is_paid or is_replayed(provider):
            return meter, provider
        if self._budget and meter.price is None:
            raise InvalidArgumentError(
                f"--max-usd is {self._budget.max_usd:g}, but no price of {provider.name}:{provider.model} is "
                "known; leave --max-usd out, or leave the provider out"
            )
        return meter, Held(provider, meter, self)

    def expect(self, meter: Meter, units: int, what: str, documents: int) -> str:
        """Look ahead at a job of ``units``; returns a line to show where it is large and paid, else nothing.

        Raises:
            BudgetExceededError: it may cost more than is left, so it is not begun.
        """
        if not meter.is_paid or is_replayed(meter.provider):
            return ""
        usd = meter.price.cost_usd(units) if meter.price else None
        if self._budget and usd is not None and usd > self._budget.left_usd:
            spent = self._budget.max_usd - self._budget.left_usd
            raise BudgetExceededError(meter.provider.name, spent, usd, self._budget.max_usd)
        if documents <= MANY_DOCUMENTS:
            return ""
        unit = meter.price.unit if meter.price else "tokens"
        cost = "at an unknown price" if usd is None else f"about {usd:.4g} USD"
        dated = f", list price of {meter.price.date}" if meter.price else ""
        return f"{meter.provider.name}: {documents:,} {what}, {units:,} {unit}, {cost}{dated}"

    def call(self, meter: Meter, units: Callable[[], int], call: Callable[[], Any]) -> Any:
        """``call()`` within the budget.

        Raises:
            BudgetExceededError: it might pass the budget; nothing is sent.
        """
        if self._budget is None or meter.price is None:
            try:
                return call()
            finally:
                self._tell(self.usd)
        most_usd = meter.price.cost_usd(units())
        self._budget.reserve(meter.provider.name, most_usd)
        before = meter.usd or 0.0
        try:
            return call()
        finally:
            self._budget.settle(most_usd, (meter.usd or 0.0) - before)
            self._tell(self.usd)


class Held:
    """A paid provider within the budget; everything else is the provider's own."""

    def __init__(self, provider: Any, meter: Meter, spending: Spending) -> None:
        self._provider, self._meter, self._spending = provider, meter, spending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """As the provider's; raises BudgetExceededError as :meth:`Spending.call`."""
        made: Vectors = self._spending.call(
            self._meter,
            lambda: self._meter.most_units(texts),
            lambda: self._provider.embed(texts, role=role),
        )
        return made

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """As the provider's; raises BudgetExceededError as :meth:`Spending.call`."""
        made: list[float] = self._spending.call(
            self._meter,
            lambda: self._meter.most_units(candidates, query),
            lambda: self._provider.rerank(query, candidates),
        )
        return made

"""What services charge, as dated data; what a job would cost; and a budget that is kept to.

The table is ``rag_core/data/prices.json``. It holds list prices: free allowances, discounts and taxes are not
counted.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from rag_core.errors import BudgetExceededError, InvalidArgumentError
from rag_core.protocols import EmbedProvider

__all__ = ["PER", "Budget", "CostEstimate", "Kind", "Price", "all_prices", "cost_estimate", "price_of"]

Kind = Literal["embed", "rerank"]
#: Unit -> how many of them a price is for.
PER: Mapping[str, int] = {"tokens": 1_000_000, "searches": 1_000}
#: Candidates of one billed search. Source: Cohere's pricing page, a query with up to 100 documents.
CANDIDATES_PER_SEARCH = 100


@dataclass(frozen=True, slots=True)
class Price:
    """What one model of one service costs.

    Attributes:
        usd: for :data:`PER` of the ``unit``: 1,000,000 tokens or 1,000 searches.
        unit: ``tokens`` or ``searches``.
        date: when the price was read, ``YYYY-MM-DD``.
        note: what to know about it.
    """

    provider: str
    model: str
    kind: Kind
    usd: float
    unit: str = "tokens"
    date: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.unit not in PER or not 0 <= self.usd < math.inf:
            raise InvalidArgumentError(
                f"price of {self.provider}:{self.model}: {self.usd!r} USD per {self.unit!r}; "
                f"accepted: from 0, per {' or '.join(PER)}"
            )

    def cost_usd(self, amount: float) -> float:
        """USD for ``amount`` tokens or searches, whichever is the ``unit``."""
        return self.usd * amount / PER[self.unit]


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a job may cost.

    Attributes:
        tokens: of all texts, as the provider counts or estimates them.
        usd: 0.0 for a local model; None where no price is known.
        price_date: when that price was read; empty for a local model and without a price.
    """

    tokens: int
    usd: float | None
    price_date: str = ""

    def __str__(self) -> str:
        if self.usd is None:
            return f"{self.tokens:,} tokens at an unknown price"
        of = f", list price of {self.price_date}" if self.price_date else ""
        return f"{self.tokens:,} tokens, about {self.usd:.4g} USD{of}"


@cache
def all_prices() -> tuple[Price, ...]:
    """Every price of the table."""
    table: dict[str, Any] = json.loads((files("rag_core") / "data" / "prices.json").read_text("utf-8"))
    return tuple(Price(**{"date": table["date"], **row}) for row in table["prices"])


def price_of(provider: str, model: str, kind: Kind = "embed") -> Price | None:
    """The price of ``model`` at the service of that registry name; None where the table has none."""
    found = (p for p in all_prices() if (p.provider, p.model, p.kind) == (provider, model, kind))
    return next(found, None)


def cost_estimate(texts: Sequence[str], embedder: EmbedProvider, price: Price | None = None) -> CostEstimate:
    """What it costs to embed ``texts``; asks no service.

    Args:
        price: in place of the table's.
    """
    tokens = sum(embedder.count_tokens([text for text in texts if text.strip()]))
    price = price or price_of(embedder.name, embedder.model)
    if embedder.is_local:
        return CostEstimate(tokens, 0.0)
    if price is None:
        return CostEstimate(tokens, None)
    return CostEstimate(tokens, price.cost_usd(tokens), price.date)


def searches(candidates: int) -> int:
    """Billed searches of one query with that many candidates."""
    return max(1, -(-candidates // CANDIDATES_PER_SEARCH))


class Budget:
    """A limit in USD that is asked before every call; safe for many threads.

    A call reserves the most it may cost, and is refused where that might pass the limit, together with all
    calls under way. Afterwards it is settled at what it cost. Spending stays below the limit as long as no
    call costs more than it reserved.
    """

    def __init__(self, max_usd: float) -> None:
        """Raises InvalidArgumentError unless ``max_usd`` is a number from 0."""
        if isinstance(max_usd, bool) or not 0 <= max_usd < math.inf:
            raise InvalidArgumentError(f"max_usd is {max_usd!r}; accepted: a finite number from 0")
        self.max_usd = float(max_usd)
        self._spent, self._reserved, self._lock = 0.0, 0.0, threading.Lock()

    @property
    def spent_usd(self) -> float:
        """Settled so far."""
        with self._lock:
            return self._spent

    @property
    def left_usd(self) -> float:
        """What may still be reserved."""
        with self._lock:
            return max(0.0, self.max_usd - self._spent - self._reserved)

    def reserve(self, name: str, usd: float) -> None:
        """Set ``usd`` aside for a call to the provider ``name``.

        Raises:
            BudgetExceededError: that might pass the limit; nothing is set aside.
        """
        with self._lock:
            committed = self._spent + self._reserved
            if committed + usd > self.max_usd:
                raise BudgetExceededError(name, committed, usd, self.max_usd)
            self._reserved += usd

    def settle(self, reserved_usd: float, used_usd: float) -> None:
        """A call that had ``reserved_usd`` set aside is over, and ``used_usd`` have been spent."""
        with self._lock:
            self._reserved = max(0.0, self._reserved - reserved_usd)
            self._spent += used_usd

    def __repr__(self) -> str:
        return f"Budget(max_usd={self.max_usd:g}, spent_usd={self.spent_usd:.6g})"

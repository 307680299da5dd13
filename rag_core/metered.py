"""An embedder whose calls are counted, priced and held to a budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rag_core.embedding import templated
from rag_core.errors import BudgetExceededError, InvalidArgumentError, PartialEmbedError
from rag_core.fingerprint import Fingerprint
from rag_core.metrics import Metrics
from rag_core.prices import Budget, Price, price_of
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.secrets import safe_repr

__all__ = ["MeteredEmbedder"]


@dataclass(slots=True)
class _Seen:
    """What the provider had counted when it was last looked at."""

    requests: int = 0
    answered: int = 0
    retries: int = 0
    n_429: int = 0
    waited_s: float = 0.0
    tokens: int = 0


class MeteredEmbedder:
    """An :class:`~rag_core.protocols.EmbedProvider` around another one.

    Requests, retries, waits and latency are those of the provider's transport where it has one, else those
    of its calls. Tokens are those that the provider has counted, else those of ``count_tokens``.

    Attributes:
        provider: the embedder inside.
        price: None for a local model, and where none is known.
    """

    def __init__(
        self,
        provider: EmbedProvider,
        metrics: Metrics,
        *,
        budget: Budget | None = None,
        price: Price | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``price``: in place of the table's.

        Raises:
            InvalidArgumentError: there is a budget, and nobody knows what the provider costs.
        """
        self.provider, self._metrics, self._budget, self._clock = provider, metrics, budget, clock
        self.name, self.model, self.dim = provider.name, provider.model, provider.dim
        self.target: Target = provider.target
        self.is_local, self.max_tokens = provider.is_local, provider.max_tokens
        self.price = None if provider.is_local else price or price_of(provider.name, provider.model)
        if budget is not None and self.price is None and not provider.is_local:
            raise InvalidArgumentError(
                f"max_usd is {budget.max_usd:g}, but no price of {provider.name}:{provider.model} is known; "
                f'give USD for 1,000,000 tokens, in rag.toml [prices] "{provider.name}" = 0.1, or .price(…)'
            )
        self._key, self._lock, self._seen = (provider.name, provider.model), threading.Lock(), _Seen()
        self._take()  # what was counted before is not ours

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors."""
        return self.provider.fingerprint

    @property
    def is_ready(self) -> bool:
        """Whether the provider has made its slow first call; True where it does not tell."""
        return bool(getattr(self.provider, "is_ready", True))

    def is_available(self) -> bool:
        """Whether the provider can be expected to answer."""
        return self.provider.is_available()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model would see it, before truncation."""
        return self.provider.count_tokens(texts)

    def prepare(self, text: str, role: Role) -> str:
        """The text as sent to the model."""
        own: Callable[[str, Role], str] | None = getattr(self.provider, "prepare", None)
        return templated(self.fingerprint, text, role) if own is None else own(text, role)

    def warmup(self, progress: Progress | None = None) -> None:
        """Warm the provider up; its first call is counted when the next one is."""
        inner = getattr(self.provider, "warmup", None)
        if inner is not None:
            inner(progress)

    def close(self) -> None:
        """Close the provider, where it has something to close."""
        getattr(self.provider, "close", lambda: None)()

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts``; see :class:`rag_core.protocols.EmbedProvider`.

        Raises:
            BudgetExceededError: before anything is sent, where the call might pass the budget.
            Exception: whatever the provider raises.
        """
        sent = [text for text in texts if isinstance(text, str) and text.strip()]
        reserved = 0.0
        if self._budget is not None and self.price is not None and sent:
            reserved = self.price.cost_usd(sum(self.provider.count_tokens(sent)))
            try:
                self._budget.reserve(self.name, reserved)
            except BudgetExceededError as error:
                self._metrics.error(self._key, type(error).__name__)
                raise
        started, answered = self._clock(), 0
        try:
            vectors = self.provider.embed(texts, role=role)
            answered = len(sent)
            return vectors
        except Exception as error:
            self._metrics.error(self._key, type(error).__name__)
            if isinstance(error, PartialEmbedError):
                answered = len(sent) - len(error.failed)
            raise
        finally:
            self._count(sent, answered, reserved, self._clock() - started)

    def _count(self, sent: list[str], answered: int, reserved_usd: float, seconds: float) -> None:
        grown, latencies_s = self._take()
        tokens = grown.tokens
        stats = self._stats()
        if not hasattr(stats, "tokens") and answered:
            tokens = sum(self.provider.count_tokens(sent))
        if not hasattr(stats, "requests"):
            grown.requests = int(bool(sent))
            latencies_s = [seconds] if answered else []
        cost = self.price.cost_usd(tokens) if self.price else 0.0
        self._metrics.observe(self._key, latencies_s)
        self._metrics.add(
            self._key,
            requests=grown.requests,
            texts=answered,
            tokens=tokens,
            retries=grown.retries,
            rate_limited=grown.n_429,
            waited_s=grown.waited_s,
            cost_usd=cost,
        )
        if self._budget is not None and self.price is not None:
            self._budget.settle(reserved_usd, cost)

    def _stats(self) -> Any:
        transport = getattr(self.provider, "transport", None)
        return getattr(transport, "stats", None) or getattr(self.provider, "stats", None)

    def _take(self) -> tuple[_Seen, list[float]]:
        """What the provider has counted since the last look, and the latencies of those requests, seconds.

        Calls of several threads may count for one another; the sums are right.
        """
        stats = self._stats()
        with self._lock:
            now = _Seen(**{name: getattr(stats, name, 0) for name in _Seen.__slots__})
            before, self._seen = self._seen, now
            kept = getattr(stats, "latency_s", ())
            new = now.answered - before.answered
            latencies_s = list(kept)[-new:] if new > 0 else []
        grown = {name: max(0, getattr(now, name) - getattr(before, name)) for name in _Seen.__slots__}
        return _Seen(**grown), latencies_s

    def __repr__(self) -> str:
        return safe_repr(self, provider=self.provider, price=self.price)

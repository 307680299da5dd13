"""The one object that an application builds to embed: providers, fallback, cache, budget and metrics.

::

    with (
        EmbeddingService.builder()
        .provider("cohere")
        .fallback("e5-small@cpu")
        .cache(dir="cache", max_bytes=2 << 30, ttl_s=30 * 86_400)
        .max_usd(5)
        .build()
    ) as service:
        index = service.build_with(lambda embedder: Index.build(folder, documents, embedder))
        index = Index.open(folder, service)     # held to the provider that built it
        print(service.metrics.prometheus())

A ``rag.toml`` says the same: see :mod:`rag_core.service_config`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from rag_core.cache import CachedEmbedder, CacheStats
from rag_core.chain import Member, Pauses, members
from rag_core.errors import InvalidArgumentError
from rag_core.factory import get_embedder
from rag_core.fallback import FallbackEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.metered import MeteredEmbedder
from rag_core.metrics import Key, Metrics
from rag_core.prices import Budget, CostEstimate, Price, cost_estimate
from rag_core.progress import Progress
from rag_core.protocols import EmbedProvider, Role, Target, Vectors
from rag_core.registry import EMBEDDERS
from rag_core.secrets import safe_repr
from rag_core.service_config import ServiceConfig, read_config

__all__ = ["EmbeddingService", "ServiceBuilder"]

T = TypeVar("T")


@dataclass(slots=True)
class _Shared:
    """What the views of one service have in common."""

    metrics: Metrics
    budget: Budget | None
    cache: Mapping[str, Any]
    caches: dict[str, CachedEmbedder] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def cached(self, chain: FallbackEmbedder) -> CachedEmbedder:
        """The cache of the chain's fingerprint: outside the chain, so that a hit needs no provider."""
        digest = chain.fingerprint.digest
        with self.lock:
            if digest not in self.caches:
                self.caches[digest] = CachedEmbedder(cast(EmbedProvider, chain), **self.cache)
            return self.caches[digest]

    def cache_counts(self) -> Iterator[tuple[Key, Mapping[str, float]]]:
        """For :meth:`rag_core.metrics.Metrics.watch`."""
        with self.lock:
            caches = list(self.caches.values())
        for cache in caches:
            stats = cache.stats
            counts = {"cache_hits": stats.texts_saved, "cache_misses": stats.misses}
            yield (cache.fingerprint.provider, cache.fingerprint.model), counts


class EmbeddingService:
    """An :class:`~rag_core.protocols.EmbedProvider` with all that belongs around one; safe for many threads.

    All vectors of a service have one fingerprint: see :class:`rag_core.fallback.FallbackEmbedder`, which also
    tells when the next provider of the chain is asked. What a call that fails has already paid for stays in
    the cache.

    Attributes:
        metrics: counts and latencies of every provider, cost so far; of all views of this service.
        budget: None without ``max_usd``.
    """

    def __init__(self, chain: FallbackEmbedder, shared: _Shared) -> None:
        """Use :meth:`builder` or :meth:`from_toml`."""
        self._chain, self._shared = chain, shared
        self.metrics, self.budget = shared.metrics, shared.budget

    @staticmethod
    def builder() -> ServiceBuilder:
        """Start building a service."""
        return ServiceBuilder()

    @classmethod
    def from_toml(cls, path: str | Path) -> EmbeddingService:
        """The service that a ``rag.toml`` describes; see :mod:`rag_core.service_config`.

        Raises:
            InvalidArgumentError: the file cannot be read, or holds what is not known.
            SpecStringError, UnknownNameError: a provider's name.
        """
        return ServiceBuilder(read_config(path)).build()

    @property
    def name(self) -> str:
        """Registry name of the provider that was decided for; until then, of the first one."""
        return self._chain.name

    @property
    def model(self) -> str:
        """Its model, likewise."""
        return self._chain.model

    @property
    def target(self) -> Target:
        """Its target, likewise."""
        return self._chain.target

    @property
    def is_local(self) -> bool:
        """Whether it needs no service, likewise."""
        return self._chain.is_local

    @property
    def dim(self) -> int:
        """Width of a vector; decides for a provider."""
        return self._chain.dim

    @property
    def max_tokens(self) -> int:
        """Longest input in tokens, 0 for no limit; decides for a provider."""
        return self._chain.max_tokens

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of all vectors; decides for a provider.

        Raises:
            NoFallbackError: none answered.
        """
        return self._chain.fingerprint

    @property
    def is_ready(self) -> bool:
        """Whether a provider is loaded and has embedded something."""
        return self._chain.is_ready

    @property
    def cache_stats(self) -> CacheStats:
        """Counts of the cache; decides for a provider."""
        return self._shared.cached(self._chain).stats

    def is_available(self) -> bool:
        """Whether a provider that may answer is at hand and not left alone just now; asks no service."""
        return self._chain.is_available()

    def warmup(self, progress: Progress | None = None) -> None:
        """Decide, load and make the first call; ``progress(stage, done, total)`` is told about it.

        Raises:
            NoFallbackError: no provider answered; it can be tried again.
        """
        self._chain.warmup(progress)

    def embed(self, texts: Sequence[str], *, role: Role = "document") -> Vectors:
        """Embed ``texts``; see :class:`rag_core.protocols.EmbedProvider`.

        Raises:
            NoFallbackError: no provider of the fingerprint can answer now.
            PartialEmbedError: some texts have vectors, which are kept here and in the cache; others do not.
            ProviderError: the input was refused.
            BudgetExceededError: before anything is sent, where the call might pass ``max_usd``.
        """
        return self._shared.cached(self._chain).embed(texts, role=role)

    def embed_query(self, text: str) -> Vectors:
        """The vector of one query, float32 ``(dim,)``; all zeros for a blank one. Raises as :meth:`embed`."""
        return cast(Vectors, self.embed([text], role="query")[0])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the first provider at hand counts them."""
        return self._chain.count_tokens(texts)

    def cost_estimate(self, texts: Sequence[str]) -> CostEstimate:
        """What embedding ``texts`` may cost, repeated ones once; what is cached already is not left out.

        The price is that of the provider that was decided for; until then, of the first one at hand. Asks no
        service.

        Raises:
            NoFallbackError: no provider is at hand.
        """
        provider = self._chain.at_hand()
        return cost_estimate(list(dict.fromkeys(texts)), provider, getattr(provider, "price", None))

    def choose(self) -> EmbedProvider:
        """The first provider of the chain that answers a probe now; it is counted, and not cached.

        Raises:
            NoFallbackError: none does.
        """
        return self._chain.choose()

    def build_with(self, build: Callable[[EmbedProvider], T]) -> T:
        """``build(embedder)``, again from the start with the next provider where one fails on the way.

        See :meth:`rag_core.fallback.FallbackEmbedder.build_with`.
        """
        return self._chain.build_with(lambda view: build(cast(EmbedProvider, self._around(view))))

    def for_identity(self, identity: Fingerprint) -> EmbeddingService:
        """This service, held to providers of one fingerprint; :meth:`rag_core.index.Index.open` asks for it.

        Raises:
            IdentityMismatchError: no provider of the chain can have that fingerprint.
        """
        return self._around(cast(EmbedProvider, self._chain.for_identity(identity)))

    def close(self) -> None:
        """Release the caches and close the providers, of all views."""
        with self._shared.lock:
            caches = list(self._shared.caches.values())
        for cache in caches:
            cache.close()
        self._chain.close()

    def __enter__(self) -> EmbeddingService:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _around(self, chain: EmbedProvider) -> EmbeddingService:
        return EmbeddingService(cast(FallbackEmbedder, chain), self._shared)

    def __repr__(self) -> str:
        return safe_repr(self, chain=self._chain, budget=self.budget)


class ServiceBuilder:
    """Collects what a service is made of; every method returns the builder."""

    def __init__(self, config: ServiceConfig | None = None) -> None:
        self._config = config or ServiceConfig()

    def provider(self, provider: str | EmbedProvider) -> ServiceBuilder:
        """The first of the chain: a spec string or an embedder."""
        self._config.chain.insert(0, provider)
        return self

    def fallback(self, *providers: str | EmbedProvider) -> ServiceBuilder:
        """The next ones, in order."""
        self._config.chain.extend(providers)
        return self

    def cache(
        self,
        dir: str | Path | None = None,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        ttl_s: float | None = None,
        bypass: bool = False,
    ) -> ServiceBuilder:
        """Where vectors are kept; without ``dir``, and without this call, in memory only.

        Args:
            dir: a folder, which several models and processes may share.
            max_bytes: bound of its files.
            memory_bytes: bound of the memory.
            ttl_s: seconds for which a vector is served; None: for ever.
            bypass: True for no cache at all.
        """
        given = {"folder": dir, "disk_bytes": max_bytes, "memory_bytes": memory_bytes, "ttl_s": ttl_s}
        kept = {name: value for name, value in given.items() if value is not None}
        self._config.cache = {**kept, "bypass": bypass}
        return self

    def max_usd(self, usd: float) -> ServiceBuilder:
        """The budget of all calls together."""
        self._config.max_usd = usd
        return self

    def pauses(self, **options: Any) -> ServiceBuilder:
        """Options of :class:`rag_core.chain.Pauses`."""
        self._config.pauses = options
        return self

    def price(self, provider: str, usd: float) -> ServiceBuilder:
        """USD for 1,000,000 tokens of ``provider`` (``name`` or ``name:model``), in place of the table's."""
        self._config.prices[provider] = usd
        return self

    def build(self) -> EmbeddingService:
        """The service. Nothing is loaded, and no service is asked.

        Raises:
            InvalidArgumentError: no provider, a bad bound, budget, price or pause.
            SpecStringError, UnknownNameError: a provider's name.
        """
        config, metrics = self._config, Metrics()
        budget = None if config.max_usd is None else Budget(config.max_usd)
        prices = {name: Price(name, "", "embed", usd) for name, usd in config.prices.items()}

        def metered(provider: EmbedProvider) -> EmbedProvider:
            price = prices.get(f"{provider.name}:{provider.model}", prices.get(provider.name))
            return cast(EmbedProvider, MeteredEmbedder(provider, metrics, budget=budget, price=price))

        if not config.chain:
            raise InvalidArgumentError("the service has no provider; call .provider(…) on the builder first")
        entries = [entry if isinstance(entry, str) else metered(entry) for entry in config.chain]
        chain: list[Member[EmbedProvider]] = members(
            entries, EMBEDDERS, lambda text: metered(get_embedder(text)), Pauses(**config.pauses)
        )
        shared = _Shared(metrics, budget, dict(config.cache))
        metrics.watch(shared.cache_counts)
        embedder = FallbackEmbedder(
            chain, on_stand_in=lambda provider: metrics.add((provider.name, provider.model), stand_ins=1)
        )
        CachedEmbedder(cast(EmbedProvider, embedder), **config.cache)  # refuses bad bounds now
        return EmbeddingService(embedder, shared)

"""What a model costs by what it was seen to use: list prices of services, hours of a machine.

Everything here is computed from the plain values of :func:`harness.spending.Meter.usage`, so that a report
can be made from the result document alone. Where a price is unknown the answer is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["HOURS_PER_MONTH", "Usage", "break_even_queries", "queries_per_month"]

#: A year of 8,760 hours, divided by 12.
HOURS_PER_MONTH = 730
#: Unit of a price -> how many of them it is for.
PER = {"tokens": 1_000_000, "searches": 1_000}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one embedder or reranker used in one measuring process.

    Attributes:
        kind: ``embed`` or ``rerank``.
        is_service: whether it is asked over the network.
        is_paid: whether somebody charges for it; False for a server of one's own.
        price_usd: for :data:`PER` of ``unit``; None where it is not known, and of a local model.
        unit: what is charged for: ``tokens`` or ``searches``.
        price_date: when the price was read.
        documents: embedded as the corpus.
        document_units: tokens of these.
        document_s: seconds that took, waits included; None where it was not measured.
        queries: queries asked, warm-ups and further rounds included.
        query_units: tokens or searches of these.
        query_s: median seconds of a query; None where it was not measured.
        texts: texts that were answered.
        requests, retries, n_429: requests sent, of which repeated, and refused by a limit.
        waited_s: seconds waited for limits and between tries, over all threads.
        latency_s: median seconds of an answered request, waits excluded; None without one.
        usd: spent at list prices, all calls included; None where no price is known.
    """

    name: str
    model: str
    kind: str
    is_service: bool
    is_paid: bool
    price_usd: float | None = None
    unit: str = "tokens"
    price_date: str = ""
    documents: int = 0
    document_units: int = 0
    document_s: float | None = None
    queries: int = 0
    query_units: int = 0
    query_s: float | None = None
    texts: int = 0
    requests: int = 0
    retries: int = 0
    n_429: int = 0
    waited_s: float = 0.0
    latency_s: float | None = None
    usd: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Usage:
        """The inverse of ``dataclasses.asdict``; fields of a later version are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    @property
    def usd_per_10k_documents(self) -> float | None:
        """At list price, from the units of the corpus; None without a price, or without documents."""
        return self._usd(self.document_units, self.documents, 10_000)

    @property
    def usd_per_1k_queries(self) -> float | None:
        """At list price, from the units of the queries that were asked; None without a price or a query."""
        return self._usd(self.query_units, self.queries, 1_000)

    @property
    def texts_per_s(self) -> float | None:
        """Documents a second while the corpus was embedded, limits and retries included."""
        return self.documents / self.document_s if self.document_s and self.documents else None

    def machine_usd_per_10k_documents(self, usd_per_hour: float) -> float | None:
        """Of a machine that does nothing else meanwhile; None where it was not timed."""
        if self.is_service or not self.document_s or not self.documents:
            return None
        return self.document_s / self.documents * 10_000 * usd_per_hour / 3600

    def machine_usd_per_1k_queries(self, usd_per_hour: float) -> float | None:
        """Of a machine that does nothing else meanwhile; None where it was not timed."""
        if self.is_service or not self.query_s:
            return None
        return self.query_s * 1_000 * usd_per_hour / 3600

    def _usd(self, units: int, of: int, wanted: int) -> float | None:
        if not self.is_paid or self.price_usd is None or not of:
            return None
        return self.price_usd / PER[self.unit] * units / of * wanted


def break_even_queries(usd_per_hour: float, usd_per_1k_queries: float | None) -> float | None:
    """Queries a month from which a machine that runs all month is cheaper than a service.

    ``usd_per_hour * 730 / USD per query``; None where the service's price is not known or 0. Documents are
    not counted: they are embedded once.
    """
    if not usd_per_1k_queries:
        return None
    return usd_per_hour * HOURS_PER_MONTH / (usd_per_1k_queries / 1_000)


def queries_per_month(query_s: float | None) -> float | None:
    """Queries that one machine answers in a month, one after the other; None where it was not timed."""
    return HOURS_PER_MONTH * 3600 / query_s if query_s else None

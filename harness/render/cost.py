"""The section of ``report.md`` on money: what services used and cost, and when a machine is cheaper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.cost import HOURS_PER_MONTH, Usage, break_even_queries, queries_per_month
from harness.naming import provider_name
from harness.render.format import MISSING, milliseconds, number, rate, seconds
from harness.results import ResultDocument
from harness.rows import Row
from harness.tables import pipe_table

__all__ = ["cost", "usages"]

NOT_MEASURED = "not measured"


def usages(rows: Sequence[Row]) -> list[tuple[str, Usage]]:
    """Every embedder and reranker of the measured rows once, with its name in the tables.

    A reranker is measured again beside each embedder: requests, waits and spending are the sums, and the
    figures of a document and a query those of the first.
    """
    found: dict[tuple[str, str, str], dict[tuple[str, str], Usage]] = {}
    for row in rows:
        if row.cell.status != "ok":
            continue
        for kind, values in (row.cell.cost or {}).items():
            key, used = row.cell.key, Usage.from_dict(values)
            name, target = (key.provider, key.target) if kind == "embed" else (key.reranker, "")
            by_process = found.setdefault((kind, name, target), {})
            # the counts of a process only grow, and its last cell tells them all
            earlier = by_process.setdefault((key.provider, key.target), used)
            if used.requests > earlier.requests:
                by_process[key.provider, key.target] = used
    return [
        (
            provider_name(name) if kind == "embed" else f"reranker {provider_name(name)}",
            summed(list(by_process.values())),
        )
        for (kind, name, _), by_process in sorted(found.items())
    ]


def summed(used: Sequence[Usage]) -> Usage:
    """The first of ``used`` with the requests, waits and spending of all."""
    known = [one.usd for one in used if one.usd is not None]
    return replace(
        used[0],
        texts=sum(one.texts for one in used),
        requests=sum(one.requests for one in used),
        retries=sum(one.retries for one in used),
        n_429=sum(one.n_429 for one in used),
        waited_s=sum(one.waited_s for one in used),
        usd=sum(known) if len(known) == len(used) else None,
    )


def cost(document: ResultDocument, rows: Sequence[Row]) -> str:
    """The section; nothing where no service took part and no price of the machine was given."""
    used = usages(rows)
    per_hour = document.spec.get("usd_per_hour")
    services = [(label, usage) for label, usage in used if usage.is_service]
    parts = []
    if services:
        parts += [_prices(services), _traffic(services)]
    if per_hour:
        local = [one for one in used if not one[1].is_service and one[1].query_s and not _is_stand_in(one[1])]
        parts += [_machine(local, per_hour), _break_even(services, local, per_hour)]
    parts = [part for part in parts if part]
    return "## Cost\n\n" + "\n".join(parts) if parts else ""


def _is_stand_in(usage: Usage) -> bool:
    """Whether nobody would run it: the baseline's embedder, the reranker that keeps the order."""
    return usage.name.startswith("fake") or usage.name == "noop"


def usd(value: float | None) -> str:
    """An amount with three significant digits; ``not measured`` where it is not known."""
    return NOT_MEASURED if value is None or not math.isfinite(value) else f"{number(float(value))} USD"


def _price(usage: Usage) -> str:
    if not usage.is_paid:
        return "one's own server"
    if usage.price_usd is None:
        return NOT_MEASURED
    per = "1M tokens" if usage.unit == "tokens" else "1,000 searches"
    return f"{number(usage.price_usd)} USD per {per} ({usage.price_date})"


def _prices(services: Sequence[tuple[str, Usage]]) -> str:
    body = [
        [
            label,
            _price(usage),
            _units(usage.document_units, usage.documents, usage.unit),
            _units(usage.query_units, usage.queries, usage.unit),
            usd(usage.usd_per_10k_documents) if usage.kind == "embed" and usage.is_paid else MISSING,
            usd(usage.usd_per_1k_queries) if usage.is_paid else MISSING,
            usd(usage.usd) if usage.is_paid else MISSING,
        ]
        for label, usage in services
    ]
    columns = ["service", "list price (read)", "for a document", "for a query"]
    columns += ["10,000 documents", "1,000 queries", "spent here"]
    return pipe_table(columns, body, numeric=5) + (
        "\nAt list prices, before free allowances, discounts and taxes. Not measured: no price is known.\n"
    )


def _units(units: int, of: int, unit: str) -> str:
    return f"{number(units / of)} {unit}" if of and units else MISSING


def _traffic(services: Sequence[tuple[str, Usage]]) -> str:
    body = [
        [
            label,
            rate(usage.texts_per_s),
            milliseconds(usage.latency_s),
            seconds(usage.waited_s),
            number(usage.requests),
            number(usage.retries),
            number(usage.n_429),
        ]
        for label, usage in services
    ]
    columns = ["service", "documents/s", "request ms (median)", "waited", "requests", "retries", "429"]
    return pipe_table(columns, body, numeric=6) + (
        "\nDocuments/s: under the service's limits, waits and retries included. Waited: for limits and "
        "between tries, over all threads; it is no part of a request's milliseconds.\n"
    )


def _machine(local: Sequence[tuple[str, Usage]], per_hour: float) -> str:
    if not local:
        return ""
    body = [
        [
            label,
            usd(usage.machine_usd_per_10k_documents(per_hour)) if usage.kind == "embed" else MISSING,
            usd(usage.machine_usd_per_1k_queries(per_hour)),
            number(float(queries_per_month(usage.query_s) or math.nan)),
        ]
        for label, usage in local
    ]
    columns = ["local model", "10,000 documents", "1,000 queries", "queries a month at most"]
    month_usd = per_hour * HOURS_PER_MONTH
    return pipe_table(columns, body, numeric=3) + (
        f"\nThis machine at {number(per_hour)} USD an hour, {number(month_usd)} USD a month of "
        f"{HOURS_PER_MONTH} hours. Amounts: of the hours that the work takes. Queries: one after the other.\n"
    )


def _break_even(
    services: Sequence[tuple[str, Usage]], local: Sequence[tuple[str, Usage]], per_hour: float
) -> str:
    body = []
    for label, paid in services:
        if not paid.is_paid:
            continue
        for own_label, own in local:
            if own.kind != paid.kind:
                continue
            even = break_even_queries(per_hour, paid.usd_per_1k_queries)
            most = queries_per_month(own.query_s)
            body.append(
                [label, own_label, NOT_MEASURED if even is None else number(even), _enough(even, most)]
            )
    if not body:
        return ""
    columns = ["service", "local model", "break-even, queries a month", "one machine answers as many"]
    return pipe_table(columns, body, numeric=2) + (
        "\nFrom that number of queries a month on, a machine that runs all month costs less than the "
        "service. Documents are not counted: they are embedded once.\n"
    )


def _enough(even: float | None, most: float | None) -> str:
    if even is None or most is None:
        return MISSING
    return "yes" if even <= most else "no"

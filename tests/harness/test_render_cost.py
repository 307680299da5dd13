"""The section on money, from a result alone."""

from __future__ import annotations

from dataclasses import asdict, replace

from harness.cost import Usage
from harness.render.cost import cost, usages
from harness.results import CellKey, CellResult, ResultDocument
from harness.rows import make_rows

PAID = Usage(
    "cohere", "m", "embed", True, True, 0.10, "tokens", "2026-11-30",
    documents=200, document_units=40_000, document_s=8.0, queries=50, query_units=500, query_s=0.1,
    texts=250, requests=60, retries=3, n_429=2, waited_s=1.5, latency_s=0.12, usd=0.00405,
)  # fmt: skip
SEARCH = replace(PAID, kind="rerank", price_usd=2.0, unit="searches", query_units=50, usd=0.1, documents=0)
LOCAL = Usage("minilm", "m", "embed", False, False, documents=100, document_s=2.0, queries=10, query_s=0.036)


def document(*cells: tuple[str, str, str, dict[str, Usage]], **spec: float) -> ResultDocument:
    made = [
        CellResult(
            CellKey(
                "town", name, target, "-", "flat", "hybrid+rerank" if reranker != "-" else "vector", reranker
            ),
            "ok",
            cost={kind: asdict(usage) for kind, usage in used.items()},
        )
        for name, target, reranker, used in cells
    ]
    return ResultDocument("town", "complete", "2026-12-01T00:00:00Z", dict(spec), "0" * 16, {}, {}, made)


def shown(made: ResultDocument) -> str:
    return cost(made, make_rows(made))


def test_prices_and_traffic_of_a_service() -> None:
    text = shown(document(("cohere", "api", "-", {"embed": PAID})))
    assert text.startswith("## Cost\n")
    assert (
        "| cohere | 0.100 USD per 1M tokens (2026-11-30) | 200 tokens | 10.0 tokens | 0.200 USD | "
        "0.00100 USD | 0.00405 USD |" in text
    )
    assert "| cohere | 25.0 | 120 | 1.50 s | 60 | 3 | 2 |" in text
    assert "break-even" not in text


def test_an_unknown_price_is_not_measured_and_never_zero() -> None:
    text = shown(
        document(("new", "api", "-", {"embed": replace(PAID, price_usd=None, usd=None)}), usd_per_hour=1.0)
    )
    assert (
        "| new | not measured | 200 tokens | 10.0 tokens | not measured | not measured | not measured |"
        in text
    )
    own = shown(document(("own", "api", "-", {"embed": replace(PAID, is_paid=False, price_usd=None)})))
    assert "| own | one's own server | 200 tokens | 10.0 tokens | – | – | – |" in own


def test_nothing_without_a_service_or_a_price_of_the_machine() -> None:
    assert shown(document(("minilm", "cpu", "-", {"embed": LOCAL}))) == ""
    assert shown(document(("bm25", "cpu", "-", {}))) == ""


def test_a_machine_and_the_break_even() -> None:
    made = document(
        ("cohere", "api", "cohere", {"embed": PAID, "rerank": SEARCH}),
        ("minilm", "cpu", "-", {"embed": LOCAL}),
        ("fake", "cpu", "-", {"embed": replace(LOCAL, name="fake")}),
        usd_per_hour=0.5,
    )
    text = shown(made)
    assert "| minilm | 0.0278 USD | 0.00500 USD | 73,000,000 |" in text
    assert "at 0.500 USD an hour, 365 USD a month" in text
    # 365 USD at a millionth of a USD a query: more than the machine answers
    assert "| cohere | minilm | 365,000,000 | no |" in text
    assert "| fake |" not in text
    assert "| reranker cohere | minilm |" not in text, "a reranker was compared with an embedder"


def test_sums_over_the_processes_that_asked_one_reranker() -> None:
    made = document(
        ("one", "cpu", "cohere", {"embed": LOCAL, "rerank": SEARCH}),
        ("one", "cpu", "cohere", {"embed": LOCAL, "rerank": replace(SEARCH, requests=70, usd=0.2)}),
        ("two", "cpu", "cohere", {"embed": LOCAL, "rerank": replace(SEARCH, requests=5, usd=0.4)}),
    )
    [(label, usage)] = [one for one in usages(make_rows(made)) if one[1].kind == "rerank"]
    assert label == "reranker cohere"
    assert usage.requests == 75
    assert abs((usage.usd or 0) - 0.6) < 1e-12
    made.cells[2].status = "failed"
    [(_, usage)] = [one for one in usages(make_rows(made)) if one[1].kind == "rerank"]
    assert usage.requests == 70

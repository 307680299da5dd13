"""The part of ``report.md`` that compares the variants of one model: agreement first, then speed."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agreement import Variant, variants
from harness.naming import provider_name
from harness.parity import DIFFERS, LEAST_DIFFERENCE, LEAST_OVERLAP, RULES
from harness.render.blocks import escape
from harness.render.format import MISSING, milliseconds, number, rate, score, signed
from harness.results import ResultDocument
from harness.tables import MARK, pipe_table

__all__ = ["agreement"]


COLUMNS = ("system", "target", "dtype", "reference", "verdict")
RESULTS = ("top-10 overlap", "Δ nDCG@10", "Δ 95 % interval")
LATENCY = ("p50 ms", "p50 ÷ reference")
VECTORS = ("min cosine", "1st percentile", *RESULTS, "docs/s", "docs/s ÷ reference", *LATENCY)
SCORES = ("min rank correlation", "mean", "same top 10", *RESULTS, *LATENCY)


def agreement(document: ResultDocument) -> str:
    """Every variant of a model beside its reference: vectors, results, then the speed; then rerankers."""
    parts = (_embedders(variants(document)), _rerankers(variants(document, "reranker")))
    return "\n".join(part for part in parts if part)


def _embedders(found: Sequence[Variant]) -> str:
    if not found:
        return ""
    body = [
        [
            *_names(v),
            *_cosines(v, "min_cosine", "p1_cosine"),
            *_results(v),
            rate(v.docs_per_s),
            number(v.docs_ratio),
            *_latency(v),
        ]
        for v in found
    ]
    rules = ", ".join(f"{dtype} {rule.least_cosine}" for dtype, rule in RULES.items())
    return (
        "## Agreement of variants\n\n"
        + pipe_table([*COLUMNS, *VECTORS], body, numeric=len(VECTORS))
        + f"\nSame: every text's cosine to the reference is high enough ({rules}); floats must reach it. "
        + _rest(found)
    )


def _rerankers(found: Sequence[Variant]) -> str:
    if not found:
        return ""
    body = [
        [
            *_names(v),
            *_cosines(v, "min_correlation", "mean_correlation"),
            score(v.figure("top_10_equal")),
            *_results(v),
            *_latency(v),
        ]
        for v in found
    ]
    rules = ", ".join(f"{dtype} {rule.least_correlation}" for dtype, rule in RULES.items())
    return (
        "## Agreement of rerankers\n\n"
        + pipe_table([*COLUMNS, *SCORES], body, numeric=len(SCORES))
        + "\nSame: the rank correlation (Spearman) of every query's scores with the reference's is high "
        + f"enough ({rules}); floats must reach it. p50: of a query, reranking included. "
        + _rest(found)
    )


def _rest(found: Sequence[Variant]) -> str:
    """What the other verdicts mean, and the reasons."""
    out = (
        f"Equivalent: quantised weights find {LEAST_OVERLAP:.0%} of the reference's first ten documents and "
        f"lose at most {-LEAST_DIFFERENCE} of nDCG@10 (lower end of the interval). What differs is marked "
        f"with {MARK} and never recommended, whatever its speed.\n"
    )
    lines = [f"- {escape(v.name)}: {escape(v.reason)}\n" for v in found if v.reason]
    compared = {v.reference for v in found}
    lines += [
        f"- no fp32 reference: {escape(v.name)} stands in for it\n"
        for v in found
        if v.name in compared and not v.entry.get("fp32_reference")
    ]
    return out + ("\n" + "".join(lines) if lines else "")


def _names(variant: Variant) -> list[str]:
    entry = variant.entry
    mark = f"{MARK} " if variant.verdict == DIFFERS else ""
    names = [f"{mark}{provider_name(entry['provider'])}", str(entry["target"]), str(entry["dtype"])]
    return [*names, variant.reference or MISSING, variant.verdict]


def _cosines(variant: Variant, *names: str) -> list[str]:
    """Five decimals: the limits lie at the fourth."""
    values = [variant.figure(name) for name in names]
    return [MISSING if value is None else f"{value:.5f}" for value in values]


def _results(variant: Variant) -> list[str]:
    gap = variant.entry.get("difference") or {}
    bounds = f"{signed(gap['low'])} to {signed(gap['high'])}" if gap else MISSING
    return [score(variant.figure("overlap_at_10")), signed(gap.get("mean")), bounds]


def _latency(variant: Variant) -> list[str]:
    return [milliseconds(variant.p50_s), number(variant.p50_ratio)]

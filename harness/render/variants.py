"""The part of ``report.md`` that compares the variants of one model: agreement first, then speed."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agreement import Variant, variants
from harness.parity import DIFFERS, LEAST_DIFFERENCE, LEAST_OVERLAP, RULES
from harness.render.blocks import escape
from harness.render.format import MISSING, milliseconds, number, rate, score, signed
from harness.results import ResultDocument
from harness.tables import MARK, pipe_table

__all__ = ["agreement"]


def agreement(document: ResultDocument) -> str:
    """Every variant of a model beside its reference: cosine, overlap, results, then the speed."""
    found = variants(document)
    if not found:
        return ""
    columns = ["system", "target", "dtype", "reference", "verdict"]
    figures = ["min cosine", "1st percentile", "top-10 overlap", "Δ nDCG@10", "Δ 95 % interval"]
    figures += ["docs/s", "docs/s ÷ reference", "p50 ms", "p50 ÷ reference"]
    table = pipe_table([*columns, *figures], [_variant(v) for v in found], numeric=len(figures))
    rules = ", ".join(f"{dtype} {rule.least_cosine}" for dtype, rule in RULES.items())
    out = "## Agreement of variants\n\n" + table
    out += (
        f"\nSame: every text's cosine to the reference is high enough ({rules}); floats must reach it. "
        f"Equivalent: quantised weights find {LEAST_OVERLAP:.0%} of the reference's first ten documents and "
        f"lose at most {-LEAST_DIFFERENCE} of nDCG@10 (lower end of the interval). What differs is marked "
        "with ! and never recommended, whatever its speed.\n"
    )
    lines = [f"- {escape(v.name)}: {escape(v.reason)}\n" for v in found if v.reason]
    without = [v.name for v in found if not v.reference and not v.entry.get("fp32_reference")]
    lines += [f"- no fp32 reference: {escape(name)} stands in for it\n" for name in _compared(found, without)]
    return out + ("\n" + "".join(lines) if lines else "")


def _compared(found: Sequence[Variant], names: Sequence[str]) -> list[str]:
    """Those of ``names`` that another variant was compared with."""
    return [name for name in names if any(v.reference == name for v in found)]


def _variant(variant: Variant) -> list[str]:
    entry, gap = variant.entry, variant.entry.get("difference") or {}
    mark = f"{MARK} " if variant.verdict == DIFFERS else ""
    cosines = [variant.figure(name) for name in ("min_cosine", "p1_cosine")]
    return [
        f"{mark}{entry['provider']}",
        str(entry["target"]),
        str(entry["dtype"]),
        variant.reference or MISSING,
        variant.verdict,
        *(MISSING if value is None else f"{value:.5f}" for value in cosines),
        score(variant.figure("overlap_at_10")),
        signed(gap.get("mean")),
        f"{signed(gap['low'])} to {signed(gap['high'])}" if gap else MISSING,
        rate(variant.docs_per_s),
        number(variant.docs_ratio),
        milliseconds(variant.p50_s),
        number(variant.p50_ratio),
    ]

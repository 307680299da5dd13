"""The section of ``report.md`` on reranking: what it changes on the frozen pool, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.economics import MAIN, METRICS
from harness.render.blocks import escape
from harness.render.format import MISSING, interval, milliseconds, number, p_value, score, signed
from harness.rerank_findings import Finding, findings
from harness.rows import Row, paired
from harness.significance import mean_interval
from harness.summary import metric_title
from harness.tables import pipe_table

__all__ = ["reranking"]

FATES = (
    ("relevant", "relevant"),
    ("missed by retrieval", "not_in_pool"),
    ("mis-ranked", "below_top"),
    ("found", "in_top"),
    ("pushed out", "pushed_out"),
    ("lifted in", "lifted_in"),
)


def reranking(rows: Sequence[Row], seed: int = 0) -> str:
    """The section, or nothing where no row was reranked with its pool kept."""
    chosen = [row for row in rows if row.cell.status == "ok" and row.cell.rerank]
    if not chosen:
        return ""
    sentences = [f"- {escape(one.sentence())}\n" for one in findings(chosen, MAIN, seed)]
    parts = [
        "## What reranking does\n\n" + "".join(sentences) + _before_threshold(chosen),
        "### Before and after, on the same pool\n\n" + _quality(chosen, seed),
        "### Where the relevant documents ended\n\n" + _fates(chosen),
        "### What it costs\n\n" + _costs(chosen),
        "### By depth\n\n" + _depths(chosen, seed),
    ]
    return "\n".join(part for part in parts if part)


def _before_threshold(rows: Sequence[Row]) -> str:
    least = next((row.cell.settings.get("score_threshold") for row in rows), None)
    if least is None:
        return ""
    return (
        f"\nThis section is of the reranker's order before the score threshold of {least:g}, which the "
        "rows of the results have behind them.\n"
    )


def _frozen(row: Row) -> Mapping[str, Any]:
    return row.cell.rerank or {}


def _quality(rows: Sequence[Row], seed: int) -> str:
    by_metric = {name: {one.row.label: one for one in findings(rows, name, seed)} for name in METRICS}
    body = []
    for row in rows:
        for name in METRICS:
            one = by_metric[name].get(row.label)
            if one is not None:
                body.append([row.label, metric_title(name), *_before_after(one)])
    columns = ["system", "metric", "before", "after", "Δ", "Δ 95 % interval", "corrected p", "ceiling"]
    return pipe_table(columns, body, numeric=6) + (
        "\nBefore: the fused order; after: the reranked one; Δ: paired by query, p values after Holm's "
        "correction over the systems of a metric. Ceiling: the pool ordered by the judgements, which no "
        "reranker can exceed.\n"
    )


def _before_after(one: Finding) -> list[str]:
    found = one.versus
    return [
        score(one.before),
        score(one.after),
        signed(found.mean),
        f"{signed(found.low)} to {signed(found.high)}",
        p_value(found.adjusted),
        score(_frozen(one.row).get("ceiling", {}).get(one.metric)),
    ]


def _fates(rows: Sequence[Row]) -> str:
    body = [
        [row.label, *(str(_frozen(row).get("fates", {}).get(name, MISSING)) for _, name in FATES)]
        for row in rows
    ]
    top = _frozen(rows[0]).get("top")
    return pipe_table(["system", *(title for title, _ in FATES)], body, numeric=len(FATES)) + (
        "\nRelevant documents of the judged queries. Missed by retrieval: not in the pool, so that no "
        f"reranker can help. Mis-ranked: in the pool, not among the first {top} afterwards; found: among "
        f"them. Pushed out of the first {top}, and lifted into them: by the reranker.\n"
    )


def _costs(rows: Sequence[Row]) -> str:
    body = []
    for row in rows:
        frozen = _frozen(row)
        share = frozen.get("share_of_p95")
        points = frozen.get("points_per_ms")
        body.append(
            [
                row.label,
                milliseconds(frozen.get("added_s")),
                milliseconds(row.speed("p95_s")),
                _share(share),
                _signed_number(points),
            ]
        )
    points_title = f"{metric_title(MAIN)} points per ms"
    columns = ["system", "added ms (median)", "p95 ms", "share of p95", points_title]
    return pipe_table(columns, body, numeric=4) + (
        "\nShare of p95: how much of it would go away without the reranker. A point is 0.01.\n"
    )


def _share(value: float | None) -> str:
    """A part of a whole; never ``100 %`` where something else takes time too."""
    if value is None:
        return MISSING
    return "over 99 %" if 0.995 <= value < 1 else f"{100 * value:.0f} %"


def _signed_number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number(abs(value))}"


def _depths(rows: Sequence[Row], seed: int) -> str:
    body = []
    for row in rows:
        frozen = _frozen(row)
        depths = frozen.get("depths", [])
        before = frozen.get("before", {}).get(MAIN, [])
        # the interval of each depth alone: which depth to take is no test of a hypothesis
        for at in depths:
            values = at["per_query"]
            [gap] = paired([(values, before)], seed)
            low, high = mean_interval(values, binary=False, seed=seed) if values else (None, None)
            body.append(
                [
                    row.label,
                    str(at["depth"]),
                    score(at["means"].get(MAIN)),
                    interval(low, high),
                    signed(gap.mean) if gap else MISSING,
                    f"{signed(gap.low)} to {signed(gap.high)}" if gap else MISSING,
                    milliseconds(at["median_s"]),
                    str(at["n_timed"]),
                ]
            )
    if not body:
        return ""
    columns = ["system", "depth", metric_title(MAIN), "95 % interval", "Δ", "Δ 95 % interval"]
    untimed = any(line[-1] == "0" for line in body)
    why = f" {MISSING}: not measured: the calls would be paid for, come from recordings or take too long."
    return pipe_table([*columns, "ms (median)", "queries timed"], body, numeric=7) + (
        "\nDepth: documents given to the reranker; those below follow in the order before. All depths read "
        "the same scores; the milliseconds are calls at that depth. Δ: from no reranking."
        f"{why if untimed else ''}\n"
    )

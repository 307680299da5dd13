"""The verdict on a run in sentences: who wins, how sure that is, what it costs, what to beware of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.agreement import agreement_sentences
from harness.audit_findings import audit_sentences
from harness.fusion_rows import fusion_rows
from harness.margins import parse_margins
from harness.metrics import Metric
from harness.naming import provider_name
from harness.pairwise import Pair, all_pairs
from harness.pairwise_findings import evidence, margin_sentences, rival_sentences, tally, would_tell
from harness.provenance import machine_name, machines, on_one_machine
from harness.render.format import count, interval, megabytes, percent, score, seconds
from harness.rerank_findings import rerank_sentences
from harness.results import ResultDocument
from harness.rows import Difference, Row, clean, main_metric, make_rows, once, strata
from harness.rows import winner as best_of
from harness.strata_findings import overlap_sentences
from harness.tag_findings import tag_sentences
from rag_core.errors import RagCoreError

__all__ = ["Verdict", "metric_title", "reasons", "verdict"]

#: Sentences about warnings beyond these only say how many more there are.
MOST_WARNINGS = 6
#: Below this a difference of two means is rounding, not a finding.
LEAST_DIFFERENCE = 1e-6


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says.

    A cell that is marked because it does not agree with its model's reference is neither winner, nor
    runner-up, nor among the equals.

    Attributes:
        sentences: for people, the most important first.
        metric: the metric they speak of.
        winner, runner_up: cell ids; None where there is none.
        against_baseline: the winner's difference from the baseline, corrected for all such comparisons.
        against_runner_up: from the runner-up, corrected for all pairs of cells.
        headline_change: relative change against the baseline on the headline queries.
        equals: ids of the cells that cannot be told apart from the winner, best first.
        cautions: the last of ``sentences``: what limits the verdict.
        details: those of ``sentences`` that tell of parts of the queries: for the report, which has tables
            of them; no warning is among them.
    """

    sentences: tuple[str, ...]
    metric: str
    winner: str | None = None
    runner_up: str | None = None
    against_baseline: Difference | None = None
    against_runner_up: Difference | None = None
    headline_change: float | None = None
    equals: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def lead(self) -> tuple[str, ...]:
        """For a terminal: all but the details, and where those stand."""
        left = len(self.details)
        more = f"{count(left, 'further finding stands', 'further findings stand')} in the report."
        return (*(one for one in self.sentences if one not in self.details), *([more] if left else []))


def metric_title(name: str) -> str:
    """``nDCG@10`` for ``ndcg@10``; the name itself where it is not one of ours."""
    try:
        return Metric.parse(name).title
    except RagCoreError:
        return name


def verdict(document: ResultDocument, metric: str | None = None) -> Verdict:
    """Judge ``document`` by ``metric``: ``ndcg@10``, or the run's first metric without it."""
    document = clean(document)
    main = metric or main_metric(document)
    return once(document, ("verdict", main), lambda: _judged(document, main))


def _judged(document: ResultDocument, metric: str) -> Verdict:
    rows = make_rows(document, metric)
    cautions = tuple(_cautions(document, rows, metric))
    best = best_of(rows)
    doubted = sorted((row for row in rows if row.ok and row.doubt), key=lambda r: -_mean(r))
    if best is None and doubted:
        first = f"Nothing can be recommended: {doubted[0].label} scores highest, but {doubted[0].doubt}."
        return Verdict((first, *agreement_sentences(document), *cautions), metric, cautions=cautions)
    if best is None:
        first = f"Not measured: no cell has a value of {metric_title(metric)}."
        return Verdict((first, *cautions), metric, cautions=cautions)
    others = sorted(
        (row for row in rows if row.ok and row is not best and not row.doubt), key=lambda r: -_mean(r)
    )
    seed = document.seed
    pairs = all_pairs([row.cell for row in (best, *others)], metric, seed)
    apart = {pair.other: pair for pair in pairs if pair.better == best.cell.key.cell_id}
    equals = [row for row in others if not (pair := apart.get(row.cell.key.cell_id)) or not pair.sure]
    baseline = next((row for row in rows if row.is_baseline and row.ok), None)
    change = _headline_change(best, baseline)
    details = (*overlap_sentences(document, rows, metric), *tag_sentences(document, rows, metric))
    sentences = [
        _winner_sentence(document, best, metric, doubted),
        *_baseline_sentences(best, baseline, rows, change, apart),
        *rival_sentences(others, apart, equals),
        *margin_sentences(others, apart, parse_margins(document.spec.get("margins") or ()).get(metric)),
        *rerank_sentences(rows, best, metric, seed),
        *details,
        *_cost_sentences(document, best, baseline, equals),
        *agreement_sentences(document),
        *audit_sentences(document, rows),
        *cautions,
    ]
    return Verdict(
        tuple(sentences),
        metric,
        winner=best.cell.key.cell_id,
        runner_up=others[0].cell.key.cell_id if others else None,
        against_baseline=best.versus,
        against_runner_up=_difference(apart, others[0]) if others else None,
        headline_change=change,
        equals=tuple(row.cell.key.cell_id for row in equals),
        cautions=cautions,
        details=details,
    )


def _difference(apart: Mapping[str, Pair], row: Row) -> Difference | None:
    pair = apart.get(row.cell.key.cell_id)
    return pair.difference if pair else None


def _mean(row: Row) -> float:
    return row.cell.mean(row.main) or 0.0


def _winner_sentence(document: ResultDocument, best: Row, metric: str, doubted: Sequence[Row]) -> str:
    """The winner; before it, what scores higher and is not recommended."""
    found = best.cell.metrics[metric]
    bounds = interval(found.low, found.high)
    n = len(document.dataset.get("query_ids", ()))
    judged = count(n, "judged query", "judged queries")
    own = f"{metric_title(metric)} {score(found.mean)} (95 % interval {bounds}, {judged})"
    if doubted and _mean(doubted[0]) > _mean(best):
        above = f"{doubted[0].label} scores highest ({score(_mean(doubted[0]))}) but is not recommended"
        return f"{above}: {doubted[0].doubt}. Next is {best.label}: {own}."
    return f"{best.label} scores highest: {own}."


def _headline_change(best: Row, baseline: Row | None) -> float | None:
    if baseline is None or best is baseline or not baseline.headline or best.headline is None:
        return None
    return best.headline / baseline.headline - 1


def _baseline_sentences(
    best: Row, baseline: Row | None, rows: Sequence[Row], change: float | None, apart: Mapping[str, Pair]
) -> list[str]:
    if baseline is None:
        return ["Nothing is compared with the baseline: it was not measured."]
    if best is baseline:
        return ["That is the baseline itself: nothing measured here scores higher."]
    name = f"the baseline ({baseline.label}, {score(_mean(baseline))})"
    out = []
    if best.versus is None:
        out.append(f"The difference from {name} was not measured: no query has both values.")
    elif best.versus.sure:
        out.append(f"It beats {name}: {evidence(best.versus)}.")
    else:
        out.append(f"It cannot be told apart from {name}: {evidence(best.versus)}.")
    compared = sum(row.versus is not None for row in rows)
    if out and best.versus is not None and compared > 1:
        out[-1] = out[-1][:-1] + f" (Holm, {compared} comparisons)."
    pair = apart.get(baseline.cell.key.cell_id)
    if pair is not None:
        more = "" if best.versus is None or best.versus.sure else would_tell(pair, compared)
        out[-1] = out[-1][:-1] + f"; {tally(pair)}" + (f": {more}." if more else ".")
    if best.headline is not None and baseline.headline is not None:
        relative = f" ({percent(change)})" if change is not None else ""
        out.append(
            f"On the {count(best.headline_n, 'headline query', 'headline queries')} it reaches "
            f"{score(best.headline)} against the baseline's {score(baseline.headline)}{relative}."
        )
    return out


def _cost(row: Row) -> str:
    parts = [
        f"p50 {seconds(row.speed('p50_s'))}" if row.speed("p50_s") is not None else "",
        f"p95 {seconds(row.speed('p95_s'))}" if row.speed("p95_s") is not None else "",
        f"{megabytes(row.speed('peak_rss_bytes'))} of memory at its peak"
        if row.speed("peak_rss_bytes") is not None
        else "",
    ]
    return ", ".join(part for part in parts if part) or "not measured"


def _cost_sentences(
    document: ResultDocument, best: Row, baseline: Row | None, equals: Sequence[Row]
) -> list[str]:
    line = f"It costs, per query and warm: {_cost(best)}"
    if baseline is not None and baseline is not best:
        here = on_one_machine(document, best.cell, baseline.cell)
        line += f"; the baseline{'' if here else ', on another machine'}: {_cost(baseline)}"
    equals = [row for row in equals if on_one_machine(document, best.cell, row.cell)]
    out = [line + "."]
    own = best.speed("p95_s")
    timed = [(p95, row) for row in equals if (p95 := row.speed("p95_s")) is not None]
    if own is not None and timed:
        p95, fastest = min(timed, key=lambda pair: pair[0])
        if p95 < own:
            out.append(
                f"Of those not told apart from it, {fastest.label} answers fastest: p95 {seconds(p95)} "
                f"against {seconds(own)}."
            )
    return out


def _cautions(document: ResultDocument, rows: Sequence[Row], metric: str) -> Iterable[str]:
    """What limits the verdict."""
    if document.status != "complete":
        yield f"The run is not complete ({document.status}): what follows may still change."
    without = document.dataset.get("n_without_relevant") or 0
    if without:
        yield f"{count(without, 'query has', 'queries have')} no relevant document and no part in the means."
    failed = [row for row in rows if row.cell.status == "failed"]
    skipped = [row for row in rows if row.cell.status == "skipped"]
    for what, chosen in (("failed", failed), ("could not run here", skipped)):
        if chosen:
            named = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons(chosen).items())
            yield f"{len(chosen)} of {len(rows)} cells {what}: {named.rstrip('.')}."
    yield from _machine_cautions(document)
    for row in rows:
        lost = row.cell.counts.get("n_failed", 0)
        if row.cell.status == "ok" and lost:
            yield f"{row.label}: {count(lost, 'query', 'queries')} failed and count 0."
    yield from _fusion_cautions(document, rows, metric)
    yield from _warnings(document, rows, metric)


def _machine_cautions(document: ResultDocument) -> Iterable[str]:
    found = machines(document)
    if len(found) > 1:
        named = "; ".join(f"{machine_name(environment)}: {len(cells)}" for environment, cells in found)
        yield (
            f"The cells were measured on {len(found)} machines ({named}): "
            "compare times within one machine only."
        )


def reasons(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Reason → labels of the cells that ended for it."""
    out: dict[str, list[str]] = {}
    for row in rows:
        out.setdefault(row.cell.reason or "no reason was recorded", []).append(row.label)
    return out


def _fusion_cautions(document: ResultDocument, rows: Sequence[Row], metric: str) -> Iterable[str]:
    """Hybrid cells that score below the better of their two legs; where surely so, the leg to use."""
    for one in fusion_rows(rows, metric, document.seed):
        gap = one.to_better
        # the baseline's vectors know nothing on purpose: that fusing them loses is no finding
        if one.row.is_baseline or gap is None or gap.mean > -LEAST_DIFFERENCE:
            continue
        told = f": take {one.better.label} alone" if one.lost else " (not told apart)"
        yield (
            f"Fusion does not pay for {provider_name(one.row.cell.key.provider)}: {one.row.label} "
            f"{score(_mean(one.row))} is below its better leg, "
            f"{one.better.label} {score(_mean(one.better))}: {evidence(gap)}{told}."
        )


def _warnings(document: ResultDocument, rows: Sequence[Row], metric: str) -> Iterable[str]:
    """Each different warning once; one about languages with the means by language."""
    first: dict[str, Row] = {}
    for row in rows:
        for text in row.cell.warnings:
            first.setdefault(text, row)
    by_language = strata(document, "lang", metric)
    for text, row in list(first.items())[:MOST_WARNINGS]:
        shown = ""
        if "languages" in text or " is made for " in text:
            means = [(part.value, part.means.get(row.cell.key.cell_id)) for part in by_language]
            shown = ", ".join(f"{value} {score(mean)}" for value, mean in means if mean is not None)
        detail = f" ({row.label}, {metric_title(metric)}: {shown})" if shown else ""
        yield f"Warning: {text.rstrip('.')}{detail}."
    if len(first) > MOST_WARNINGS:
        yield f"{len(first) - MOST_WARNINGS} further warnings stand in the report."

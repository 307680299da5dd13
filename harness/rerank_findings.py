"""Whether reranking pays: each reranked row against the same candidates in the order before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.config import RERANKED_PIPELINES
from harness.economics import MAIN
from harness.metrics import Metric
from harness.render.format import corrected_p, score, seconds, signed
from harness.rows import NONE, Difference, Row, paired
from rag_core.errors import RagCoreError

__all__ = ["Finding", "findings", "rerank_sentences"]

Values = Sequence[float | None]
#: Rows that get a sentence of their own in the verdict.
MOST_SENTENCES = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """A reranked row against no reranking.

    Attributes:
        row: the reranked row.
        plain: the row of the same provider, target, dtype and store without reranking, where measured.
        metric: what was compared.
        before, after: its means over the queries compared.
        versus: after minus before, corrected for the comparisons of all reranked rows.
    """

    row: Row
    plain: Row | None
    metric: str
    before: float
    after: float
    versus: Difference

    @property
    def outcome(self) -> str:
        """``helps``, ``hurts``, or ``unknown`` where the two cannot be told apart."""
        if not self.versus.sure:
            return "unknown"
        return "helps" if self.versus.mean > 0 else "hurts"

    @property
    def has_threshold(self) -> bool:
        """Whether the row's own figures also have a score threshold behind them."""
        return self.row.cell.settings.get("score_threshold") is not None

    def sentence(self) -> str:
        """One plain sentence, figures included."""
        said = {
            "helps": "reranking helps here",
            "hurts": "reranking hurts here",
            "unknown": "reranking cannot be told from no reranking",
        }[self.outcome] + (", before the score threshold" if self.has_threshold else "")
        out = (
            f"{self.row.label}: {said}: {_title(self.metric)} {score(self.before)} → {score(self.after)}, "
            f"{_evidence(self.versus)}"
        )
        added_s = (self.row.cell.rerank or {}).get("added_s")
        return f"{out}; it adds {seconds(added_s)} a query." if added_s is not None else f"{out}."


def findings(rows: Sequence[Row], metric: str, seed: int = 0) -> list[Finding]:
    """Every reranked row of ``rows`` that can be compared by ``metric``, in their order.

    The values before and after are those of the frozen pool where they hold ``metric``; else those of the
    reranked and the unreranked row.
    """
    chosen: list[tuple[Row, Row | None, Values, Values]] = []
    for row in rows:
        if row.cell.status != "ok" or row.cell.key.pipeline not in RERANKED_PIPELINES:
            continue
        key = replace(row.cell.key, pipeline="hybrid", reranker=NONE)
        plain = next((other for other in rows if other.ok and other.cell.key == key), None)
        before, after = _values(row, plain, metric)
        if before and after:
            chosen.append((row, plain, before, after))
    found = paired([(after, before) for _, _, before, after in chosen], seed)
    return [
        Finding(row, plain, metric, _mean(before, after), _mean(after, before), versus)
        for (row, plain, before, after), versus in zip(chosen, found)
        if versus is not None
    ]


def _values(row: Row, plain: Row | None, metric: str) -> tuple[Values, Values]:
    frozen = row.cell.rerank or {}
    if metric in frozen.get("before", {}) and metric in frozen.get("after", {}):
        return frozen["before"][metric], frozen["after"][metric]
    before = plain.cell.metrics.get(metric) if plain is not None else None
    after = row.cell.metrics.get(metric)
    return before.per_query if before else [], after.per_query if after else []


def _mean(values: Values, partners: Values) -> float:
    """The mean of the values that were compared: those whose partner is known too."""
    known = [value for value, other in zip(values, partners) if value is not None and other is not None]
    return sum(known) / len(known) if known else 0.0


def rerank_sentences(rows: Sequence[Row], best: Row, metric: str, seed: int = 0) -> list[str]:
    """What the verdict says about reranking: the winner's first, then what hurts, helps and cannot be told.

    A winner whose reranking cannot be told from none, or that was compared with nothing, is named as such.
    """
    found = findings(rows, metric, seed) or findings(rows, MAIN, seed)
    out = _winner(best, found)
    order = ("hurts", "helps", "unknown")
    others = sorted(
        (one for one in found if one.row is not best or one.outcome == "helps"),
        key=lambda one: order.index(one.outcome),
    )
    out += [one.sentence() for one in others[:MOST_SENTENCES]]
    if len(others) > MOST_SENTENCES:
        out.append(
            f"{len(others) - MOST_SENTENCES} further comparisons with no reranking stand in the report."
        )
    return out


def _winner(best: Row, found: Sequence[Finding]) -> list[str]:
    """The sentence on a winner that reranks without a sure gain."""
    if best.cell.key.pipeline not in RERANKED_PIPELINES:
        return []
    own = next((one for one in found if one.row is best), None)
    if own is None:
        return [f"Whether {best.label} gains by its reranking was not measured: nothing to compare with."]
    if own.outcome == "helps":
        return []
    name = own.plain.label if own.plain is not None else "the same candidates without reranking"
    what = "scores below" if own.outcome == "hurts" else "cannot be told apart from"
    out = (
        f"The winner reranks, and {what} {name}: {_title(own.metric)} {score(own.before)} → "
        f"{score(own.after)}, {_evidence(own.versus)}"
    )
    own_s, plain_s = best.speed("p95_s"), own.plain.speed("p95_s") if own.plain is not None else None
    if own_s is not None and plain_s is not None:
        out += f"; without reranking p95 is {seconds(plain_s)}, with it {seconds(own_s)}"
    return [out + "."]


def _evidence(found: Difference) -> str:
    if found.mean == found.low == found.high == 0:
        return "the same for every query"
    return f"{signed(found.low)} to {signed(found.high)} ({corrected_p(found.adjusted)})"


def _title(metric: str) -> str:
    try:
        return Metric.parse(metric).title
    except RagCoreError:
        return metric

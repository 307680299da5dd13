"""Gates: limits on how much worse a result may be than another, and the exit status that follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.compare import (
    CANNOT_BE_TOLD,
    NOT_COMPARABLE,
    OK,
    REGRESSED,
    SPEED,
    CellPair,
    Change,
    Comparison,
)
from harness.metrics import Metric
from harness.render.format import figure, percent, signed
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.registry import nearest

__all__ = ["Finding", "Gate", "GateOutcome", "evaluate", "exit_code", "figure_name", "gate_lines"]

ALIASES = {"latency_p50": "p50_s", "latency_p95": "p95_s", "latency_p99": "p99_s"}
EXAMPLES = "ndcg@10:-0.01, latency_p95:+10%, docs_per_s:-5%, peak_rss_bytes:+10%"
#: Differences of decimal fractions are off by this much at most: −0.01 must not fail −0.01.
SLACK = 1e-9
_LIMIT = re.compile(r"([+-])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")


@dataclass(frozen=True, slots=True)
class Gate:
    """How far a figure may move in its bad direction.

    Attributes:
        name: a metric, or a key of :data:`harness.compare.SPEED`.
        limit: not below 0: a difference, or a fraction of the old figure.
        is_relative: which of the two.
        text: as it was written.
    """

    name: str
    limit: float
    is_relative: bool
    text: str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """``NAME:-LIMIT`` for what is better high, ``NAME:+LIMIT`` for what is better low; ``%`` optional.

        Raises:
            UnknownNameError: no figure of that name.
            InvalidArgumentError: the limit is not a signed number, or its sign points the good way.
        """
        name, colon, limit = text.strip().rpartition(":")
        if not colon or not name:
            raise InvalidArgumentError(f"gate {text!r} has no limit; accepted: {EXAMPLES}")
        found = figure_name(name.strip(), f"gate {text!r}")
        match = _LIMIT.fullmatch(limit.strip())
        if match is None:
            raise InvalidArgumentError(
                f"gate {text!r} has limit {limit!r}; accepted: a number with its sign: {EXAMPLES}"
            )
        sign, digits, per_cent = match.groups()
        higher_is_better = SPEED.get(found, True)
        bad = "-" if higher_is_better else "+"
        value = float(digits) / (100 if per_cent else 1)
        if sign != bad and value:
            raise InvalidArgumentError(
                f"gate {text!r} limits a change for the better: {name} is better "
                f"{'higher' if higher_is_better else 'lower'}; write {name}:{bad}{digits}{per_cent}"
            )
        return cls(found, value, bool(per_cent), text.strip())

    def exceeded(self, change: Change) -> bool:
        """Whether the figure moved further in its bad direction than the limit allows."""
        assert change.old is not None
        assert change.delta is not None
        loss = -change.delta if SPEED.get(self.name, True) else change.delta
        allowed = self.limit * abs(change.old) if self.is_relative else self.limit
        return loss > allowed + SLACK * max(1.0, abs(change.old))


def figure_name(name: str, text: str) -> str:
    """The metric or figure of speed that ``name`` stands for; ``text`` is what an error quotes.

    Raises:
        UnknownNameError: no figure of that name.
    """
    lowered = name.lower()
    if lowered in SPEED or lowered in ALIASES:
        return ALIASES.get(lowered, lowered)
    try:
        return str(Metric.parse(name))
    except UnknownNameError as error:
        known = [*ALIASES, *SPEED]
        raise UnknownNameError(
            f"{text}: no metric and no figure {name!r}{nearest(lowered, known)}; for example {EXAMPLES}"
        ) from error


@dataclass(frozen=True, slots=True)
class Finding:
    """A gate on one cell: passed, or why not."""

    label: str
    passed: bool
    verdict: str
    reason: str
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """A gate on all cells."""

    gate: Gate
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether it was checked somewhere and failed nowhere."""
        return bool(self.findings) and all(finding.passed for finding in self.findings)

    @property
    def verdict(self) -> str:
        """``regressed``, ``not comparable``, ``cannot be told`` or ``ok``, in this order."""
        if not self.findings:
            return REGRESSED
        found = {finding.verdict for finding in self.findings}
        return next(v for v in (REGRESSED, NOT_COMPARABLE, CANNOT_BE_TOLD, OK) if v in found)


def evaluate(comparison: Comparison, gates: Sequence[Gate]) -> list[GateOutcome]:
    """Each gate on every cell that the old result measured.

    A figure that is missing or null in the new result fails. A change of speed or memory that exceeds
    the limit but stays within its noise does not fail: it cannot be told, and the lines say so. A mean
    is a plain number on the same queries: it fails by its value.
    """
    return [GateOutcome(gate, tuple(_findings(comparison, gate))) for gate in gates]


def _findings(comparison: Comparison, gate: Gate) -> Iterator[Finding]:
    mismatches = [*comparison.mismatches, *(comparison.speed_mismatches if gate.name in SPEED else ())]
    if mismatches:
        fields = ", ".join(m.field for m in mismatches)
        yield Finding("all cells", False, NOT_COMPARABLE, f"different {fields}")
        return
    for label in comparison.only_old_measured:
        yield Finding(label, False, REGRESSED, "missing: no such cell in the new result")
    for pair in comparison.cells:
        if pair.old.status == "ok":
            yield _finding(pair, gate)


def _finding(pair: CellPair, gate: Gate) -> Finding:
    if pair.new.status != "ok":
        reason = f"missing: {pair.new.status}: {pair.new.reason or 'no reason was recorded'}"
        return Finding(pair.label, False, REGRESSED, reason)
    if pair.mismatches:
        fields = ", ".join(m.field for m in pair.mismatches)
        return Finding(pair.label, False, NOT_COMPARABLE, f"different {fields}")
    if pair.machines and gate.name in SPEED:
        return Finding(pair.label, False, NOT_COMPARABLE, f"different machine: {pair.machines}")
    change = pair.change(gate.name)
    if change is None or change.missing:
        where = change.missing if change else "both"
        return Finding(pair.label, False, REGRESSED, f"missing: no value in {where}", change)
    if not gate.exceeded(change):
        return Finding(pair.label, True, OK, _moved(change), change)
    if change.noise is not None and change.verdict != REGRESSED:
        reason = f"{_moved(change)}, within the noise of {percent(change.noise).lstrip('+')}"
        return Finding(pair.label, True, CANNOT_BE_TOLD, reason, change)
    return Finding(pair.label, False, REGRESSED, _moved(change), change)


def _moved(change: Change) -> str:
    moved = percent(change.relative) if change.is_speed else signed(change.delta)
    return f"{figure(change.name, change.old)} → {figure(change.name, change.new)} ({moved})"


def gate_lines(outcomes: Sequence[GateOutcome]) -> list[str]:
    """The outcome of each gate for the terminal, 80 columns at most."""
    import textwrap

    lines: list[str] = []
    for outcome in outcomes:
        word = "passed" if outcome.passed else "FAILED"
        n = len(outcome.findings)
        detail = (
            f"{n} {'cell' if n == 1 else 'cells'}" if n else "nothing to check: no cell was measured before"
        )
        lines.append(f"gate {outcome.gate.text} {word}: {outcome.verdict} ({detail})")
        shown = [f for f in outcome.findings if not f.passed or f.verdict == CANNOT_BE_TOLD]
        lines += [f"  {f.label}: {f.reason}" for f in shown]
    return [part for line in lines for part in textwrap.wrap(line, 80, subsequent_indent="    ")]


def exit_code(comparison: Comparison, outcomes: Sequence[GateOutcome]) -> int:
    """0 when all is well, 1 when a gate failed, 2 when something asked for cannot be compared."""
    if comparison.verdict == NOT_COMPARABLE:
        return 2
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if any(outcome.verdict != NOT_COMPARABLE for outcome in failed):
        return 1
    return 2 if failed else 0

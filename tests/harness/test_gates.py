"""Gates and exit codes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from harness.compare import CANNOT_BE_TOLD, NOT_COMPARABLE, OK, REGRESSED, compare
from harness.gates import Gate, GateOutcome, evaluate, exit_code, gate_lines
from harness.results import CellResult, ResultDocument
from rag_core.errors import InvalidArgumentError, RagCoreError, UnknownNameError

Factory = Callable[..., ResultDocument]
E5 = "e5-small/cpu/q4/flat/hybrid/-"


@pytest.mark.parametrize(
    ("text", "name", "limit", "is_relative"),
    [
        ("ndcg@10:-0.01", "ndcg@10", 0.01, False),
        ("NDCG@10:-1%", "ndcg@10", 0.01, True),
        (" p@5 : -.5 % ", "precision@5", 0.005, True),
        ("latency_p95:+10%", "p95_s", 0.1, True),
        ("p95_s:+0.01", "p95_s", 0.01, False),
        ("docs_per_s:-5%", "docs_per_s", 0.05, True),
        ("peak_rss_bytes:+10%", "peak_rss_bytes", 0.1, True),
        ("ndcg@10:+0", "ndcg@10", 0.0, False),
    ],
)
def test_gates_are_read(text: str, name: str, limit: float, is_relative: bool) -> None:
    gate = Gate.parse(text)
    assert (gate.name, gate.is_relative) == (name, is_relative)
    assert gate.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("ndcg@10", InvalidArgumentError, "'ndcg@10' has no limit; accepted: ndcg@10:-0.01"),
        (":-0.01", InvalidArgumentError, "has no limit"),
        ("", InvalidArgumentError, "has no limit"),
        ("ndcg@10:0.01", InvalidArgumentError, "has limit '0.01'; accepted: a number with its sign"),
        ("ndcg@10:-nan", InvalidArgumentError, "has limit '-nan'"),
        ("ndcg@10:-", InvalidArgumentError, "has limit '-'"),
        ("ndcg@10:+0.01", InvalidArgumentError, "better higher; write ndcg@10:-0.01"),
        ("latency_p95:-10%", InvalidArgumentError, "better lower; write latency_p95:\\+10%"),
        ("latency_p96:+10%", UnknownNameError, "latency_p95"),
        ("ndgc@10:-0.01", UnknownNameError, "no metric and no figure 'ndgc@10'"),
        ("ndcg@0:-0.01", InvalidArgumentError, "cut-off '0'"),
    ],
)
def test_bad_gates_are_refused_clearly(text: str, kind: type[RagCoreError], words: str) -> None:
    with pytest.raises(kind, match=words):
        Gate.parse(text)


def cell(document: ResultDocument) -> CellResult:
    found = document.cell(E5)
    assert found is not None
    return found


def lower(target: CellResult, by: float) -> None:
    found = target.metrics["ndcg@10"]
    found.per_query = [v - by for v in found.per_query if v is not None]
    assert found.mean is not None
    found.mean -= by


def gate(old: ResultDocument, new: ResultDocument, text: str) -> tuple[GateOutcome, int]:
    comparison = compare(old, new)
    outcomes = evaluate(comparison, [Gate.parse(text)])
    return outcomes[0], exit_code(comparison, outcomes)


@pytest.mark.parametrize(
    ("by", "text", "code"),
    [
        (0.02, "ndcg@10:-0.01", 1),
        (0.01, "ndcg@10:-0.01", 0),
        (0.0101, "ndcg@10:-0.01", 1),
        (-0.5, "ndcg@10:-0", 0),
        (0.02, "ndcg@10:-2%", 1),
        (0.01, "ndcg@10:-2%", 0),
        (0.02, "map@100:-0", 0),
    ],
)
def test_quality_gates(factory: Factory, by: float, text: str, code: int) -> None:
    new = factory()
    lower(cell(new), by)
    outcome, status = gate(factory(), new, text)
    assert status == code
    assert outcome.passed is (code == 0)
    assert len(outcome.findings) == 6


def test_a_failing_gate_names_cell_and_figures(factory: Factory) -> None:
    new = factory()
    lower(cell(new), 0.02)
    outcome, _ = gate(factory(), new, "ndcg@10:-0.01")
    assert gate_lines([outcome]) == [
        "gate ndcg@10:-0.01 FAILED: regressed (6 cells)",
        "  e5-small · hybrid: 0.796 → 0.776 (−0.020)",
    ]


def timed(target: CellResult, median_s: float, spread: float, seed: int = 1) -> None:
    target.total_s = (median_s * np.random.default_rng(seed).lognormal(0, spread, 200)).tolist()
    target.speed["p95_s"] = float(np.percentile(target.total_s, 95))


def test_latency_beyond_limit_and_noise_fails(factory: Factory) -> None:
    old, new = factory(), factory()
    timed(cell(old), 0.05, 0.02)
    timed(cell(new), 0.08, 0.02, seed=2)
    outcome, status = gate(old, new, "latency_p95:+10%")
    assert (outcome.verdict, status) == (REGRESSED, 1)
    assert gate(old, new, "latency_p95:+80%")[1] == 0


def test_latency_beyond_the_limit_within_its_noise_cannot_be_told(factory: Factory) -> None:
    """O40: 8 % higher with 15 % spread fails no gate, and is not called ok either."""
    old, new = factory(), factory()
    timed(cell(old), 0.050, 0.15)
    timed(cell(new), 0.054, 0.15, seed=2)
    outcome, status = gate(old, new, "latency_p95:+1%")
    assert (outcome.verdict, outcome.passed, status) == (CANNOT_BE_TOLD, True, 0)
    assert "within the noise of" in " ".join(gate_lines([outcome]))


@pytest.mark.parametrize(
    ("name", "factor", "text", "code"),
    [
        ("docs_per_s", 0.7, "docs_per_s:-5%", 1),
        ("docs_per_s", 0.9, "docs_per_s:-5%", 0),
        ("docs_per_s", 0.96, "docs_per_s:-5%", 0),
        ("docs_per_s", 2.0, "docs_per_s:-5%", 0),
        ("peak_rss_bytes", 1.2, "peak_rss_bytes:+10%", 1),
        ("peak_rss_bytes", 1.1, "peak_rss_bytes:+10%", 0),
        ("peak_rss_bytes", 1.1, "peak_rss_bytes:+1000000", 1),
    ],
)
def test_figures_measured_once(factory: Factory, name: str, factor: float, text: str, code: int) -> None:
    new = factory()
    value = cell(new).speed[name]
    assert value is not None
    cell(new).speed[name] = value * factor
    assert gate(factory(), new, text)[1] == code


@pytest.mark.parametrize("where", ["new", "old", "both"])
def test_a_null_fails(factory: Factory, where: str) -> None:
    """O37, O40: missing or not a number is never a pass."""
    old, new = factory(), factory()
    for name, document in (("old", old), ("new", new)):
        if where in (name, "both"):
            cell(document).metrics["ndcg@10"].mean = math.nan
    outcome, status = gate(old, new, "ndcg@10:-0.5")
    assert status == 1
    (failed,) = [finding for finding in outcome.findings if not finding.passed]
    assert failed.reason == f"missing: no value in {where}"


def test_a_metric_that_was_not_measured_fails(factory: Factory) -> None:
    assert gate(factory(), factory(), "ndcg@7:-0.5")[1] == 1


def test_a_cell_that_is_gone_or_failed_fails(factory: Factory) -> None:
    gone, broken = factory(), factory()
    gone.cells.remove(cell(gone))
    cell(broken).status, cell(broken).reason = "failed", "out of memory"
    outcome, status = gate(factory(), gone, "ndcg@10:-0.5")
    assert status == 1
    assert "missing: no such cell in the new result" in gate_lines([outcome])[1]
    outcome, status = gate(factory(), broken, "ndcg@10:-0.5")
    assert status == 1
    assert "missing: failed: out of memory" in gate_lines([outcome])[1]


def test_what_never_ran_is_not_gated(factory: Factory) -> None:
    outcome, status = gate(factory(), factory(), "ndcg@10:-0.01")
    assert status == 0
    assert "broken · vector" not in [finding.label for finding in outcome.findings]


def test_a_gate_without_anything_to_check_fails(factory: Factory) -> None:
    old, new = factory(), factory()
    old.cells, new.cells = old.cells[-2:], new.cells[-2:]
    outcome, status = gate(old, new, "ndcg@10:-0.01")
    assert (outcome.verdict, status) == (REGRESSED, 1)
    assert "nothing to check" in gate_lines([outcome])[0]


def test_not_comparable_is_status_two(factory: Factory) -> None:
    new = factory()
    new.dataset["hash"]["qrels"] = "0" * 64
    outcome, status = gate(factory(), new, "ndcg@10:-0.01")
    assert (outcome.verdict, outcome.passed, status) == (NOT_COMPARABLE, False, 2)
    assert exit_code(compare(factory(), new), []) == 2


def test_a_cell_of_another_model_is_status_two(factory: Factory) -> None:
    new = factory()
    fingerprint = cell(new).fingerprint
    assert fingerprint is not None
    fingerprint["revision"] = "2"
    outcome, status = gate(factory(), new, "ndcg@10:-0.01")
    assert (outcome.verdict, status) == (NOT_COMPARABLE, 2)
    assert "different fingerprint revision" in gate_lines([outcome])[1]


def test_another_machine_is_status_two_for_speed_and_nothing_for_quality(factory: Factory) -> None:
    new = factory()
    new.environment["cpu_model"] = "Another CPU"
    outcome, status = gate(factory(), new, "latency_p95:+10%")
    assert (outcome.verdict, status) == (NOT_COMPARABLE, 2)
    assert gate(factory(), new, "ndcg@10:-0.01")[1] == 0
    lower(cell(new), 0.5)
    comparison = compare(factory(), new)
    both = evaluate(comparison, [Gate.parse("latency_p95:+10%"), Gate.parse("ndcg@10:-0.01")])
    assert exit_code(comparison, both) == 1  # a loss that is certain outweighs what is not known


def test_without_gates_a_regression_is_status_zero(factory: Factory) -> None:
    new = factory()
    lower(cell(new), 0.5)
    comparison = compare(factory(), new)
    assert comparison.verdict == REGRESSED
    assert exit_code(comparison, []) == 0


def test_lines_are_narrow(factory: Factory) -> None:
    old, new = factory(), factory()
    name = "a-provider-with-a-very-long-name?option=1234567890&another=abcdefghijklmnop"
    for document in (old, new):
        cell(document).key = replace(cell(document).key, provider=name)
    found = next(c for c in new.cells if c.key.provider == name)
    lower(found, 0.5)
    outcome, _ = gate(old, new, "ndcg@10:-0.01")
    assert max(cell_len(line) for line in gate_lines([outcome])) <= 80
    assert outcome.verdict != OK

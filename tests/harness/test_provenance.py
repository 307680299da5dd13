"""Cells of several machines: named, and never compared in speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from harness.agreement import variants
from harness.command import RunOptions, job_engine
from harness.compare import compare
from harness.config import RunSpec
from harness.gates import Gate, evaluate
from harness.provenance import machine_name, machines, on_one_machine
from harness.render import blocks
from harness.render.diff import diff_lines
from harness.results import ResultDocument, result_schema
from harness.summary import verdict
from rag_core.errors import InvalidArgumentError, UnknownNameError

Factory = Callable[..., ResultDocument]
E5 = "e5-small/cpu/q4/flat/hybrid/-"
OTHER = {"cpu_model": "Another Processor", "cpus_usable": 1, "os": "Linux", "machine_fingerprint": "beef"}


def elsewhere(document: ResultDocument, cell_id: str = E5) -> ResultDocument:
    cell = document.cell(cell_id)
    assert cell is not None
    cell.environment = {**document.environment, **OTHER}
    return document


def test_a_cell_says_where_it_was_measured(factory: Factory) -> None:
    document = elsewhere(factory())
    jsonschema.validate(document.as_dict(), result_schema())
    again = ResultDocument.from_dict(document.as_dict())
    assert [len(cells) for _, cells in machines(again)] == [5, 1]
    assert machine_name(OTHER) == "Another Processor, 1 CPU, #beef"
    assert machine_name({}) == "unknown processor"
    best, other = again.cell(E5), again.cell("minilm/cpu/int8/flat/hybrid/-")
    assert best is not None
    assert other is not None
    assert not on_one_machine(again, best, other)
    assert on_one_machine(again, other, again.cells[0])


def test_the_verdict_says_so_and_names_no_fastest_of_two_machines(factory: Factory) -> None:
    said = " ".join(verdict(elsewhere(factory())).sentences)
    assert "measured on 2 machines" in said
    assert "compare times within one machine only" in said
    assert "the baseline, on another machine: " in said
    assert "answers fastest" not in said
    assert "machines" not in " ".join(verdict(factory()).sentences)


def test_the_report_lists_the_cells_of_another_machine(factory: Factory) -> None:
    assert f"1 cells were measured on Another Processor, 1 CPU, #beef: {E5}." in blocks.machine(
        elsewhere(factory())
    ).replace("\\", "")
    assert "were measured on" not in blocks.machine(factory())


def test_times_of_another_machine_are_not_compared(factory: Factory) -> None:
    found = compare(factory(), elsewhere(factory()))
    measured = [pair for pair in found.cells if pair.old.status == "ok"]
    speed = {pair.label: [c for c in pair.changes if c.is_speed] for pair in measured}
    assert [label for label, changes in speed.items() if not changes] == ["e5-small · hybrid"]
    (note,) = [note for note in found.notes if "its times are not compared" in note]
    assert "Another Processor" in note
    assert any("Another Processor" in line for line in diff_lines(found))
    (outcome,) = evaluate(found, [Gate.parse("latency_p95:+20%")])
    assert outcome.verdict == "not comparable"
    same = compare(elsewhere(factory()), elsewhere(factory()))
    assert all(any(c.is_speed for c in pair.changes) for pair in same.cells if pair.old.status == "ok")


def test_no_ratio_of_speeds_of_two_machines(factory: Factory) -> None:
    document = factory()
    entry = {"kind": "embedder", "provider": "e5-small", "target": "cpu", "dtype": "q4"}
    document.parity = [
        {**entry, "reference": {"provider": "minilm", "target": "cpu", "dtype": "int8"}, "verdict": "same"}
    ]
    assert variants(document)[0].docs_ratio is not None
    assert variants(elsewhere(document, "e5-small/cpu/q4/flat/vector/-"))[0].docs_ratio is None


def test_engine_options(tmp_path: Path) -> None:
    options = RunOptions(
        ("fake",), (), (), (), (), "mini", None, False, False, "bm25", "raw", 10, 10, 60.0, "", "", 0, 1, 0, 0
    )
    spec = RunSpec("mini", ("fake",))
    with job_engine(options, spec) as engine:
        assert engine is None
    with (
        pytest.raises(UnknownNameError, match="did you mean 'ray'"),
        job_engine(replace(options, engine="rays"), spec),
    ):
        pass
    with (
        pytest.raises(InvalidArgumentError, match="add --engine ray"),
        job_engine(replace(options, address="here:1"), spec),
    ):
        pass

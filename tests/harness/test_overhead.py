"""The benchmark of the harness's own cost: what it measures is the provider that it names."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from rag_core.registry import EMBEDDERS

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"


@pytest.mark.skipif(not FILE.exists(), reason="benchmarks: only in a checkout")
def test_both_ways_measure_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_from_file_location("benchmark_overhead", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(EMBEDDERS, "_specs", dict(EMBEDDERS._specs))
    found = module.overheads(2, "mini", 0.001, 0.002)
    assert {name: len(values) for name, values in found.items()} == {"documents": 2, "query": 2, "whole": 2}
    assert all(value > 0 for value in found["whole"])  # something is done beside the calls
    assert all(value > -1 for values in found.values() for value in values)

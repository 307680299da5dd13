"""The promises of the statistics, simulated: `benchmarks/significance.py` with fewer repetitions.

Each bound is the exact binomial one for these repetitions, and the seed is fixed: the outcome never changes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "significance.py"
    spec = importlib.util.spec_from_file_location("benchmark_significance", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_no_difference_is_seldom_called_one(simulation: ModuleType) -> None:
    shares = simulation.false_positives(200, seed=0, sizes=(30,))
    assert [share.line() for share in shares if not share.kept] == []


def test_a_family_without_differences_seldom_has_one(simulation: ModuleType) -> None:
    baseline, together, alone = simulation.families(16, seed=0, n=60)
    assert baseline.kept
    assert together.kept
    # why all pairs are corrected together: the best seen is picked by its own luck
    assert alone.count > together.count


def test_intervals_hold_what_they_say(simulation: ModuleType) -> None:
    shares = simulation.coverage(100, seed=0, sizes=(200,))
    assert [share.line() for share in shares if not share.kept] == []


def test_planted_differences_are_found_as_often_as_the_formula_says(simulation: ModuleType) -> None:
    shares = simulation.powers(200, seed=0, planted=(0.15,))
    assert [share.line() for share in shares if not share.kept] == []


def test_a_margin_is_seldom_claimed_wrongly_and_often_enough_rightly(simulation: ModuleType) -> None:
    shares = simulation.margins(200, seed=0, sizes=(30,), margin=0.08)
    assert [share.line() for share in shares if not share.kept] == []


def test_the_planted_difference_is_the_true_one(simulation: ModuleType) -> None:
    shift = simulation.shift_for(0.08)
    values = simulation.drawn(np.random.default_rng(5), 200_000, 2, shift)
    gap = values[:, 0] - values[:, 1]
    assert gap.mean() == pytest.approx(0.08, abs=4 * gap.std() / np.sqrt(len(gap)))
    assert 0.3 < float(np.mean(gap == 0)) < 0.9  # ties, as real runs have them


def test_a_broken_promise_would_be_seen(simulation: ModuleType) -> None:
    assert not simulation.Share("too often", 40, 300, 0.05).kept
    assert not simulation.Share("too seldom", 200, 300, 0.8, "about").kept
    assert "NOT KEPT" in simulation.Share("too often", 40, 300, 0.05).line()
    low, high = simulation.Share("", 0, 300, 0.05).bounds
    assert low < 15 < high

"""The simulation behind `bench trend`'s promise, small: planted changes are caught, noise is not."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from harness.results import ResultDocument, load_result
from harness.significance import binomial_interval

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "reports" / "baseline.json"
pytestmark = pytest.mark.skipif(not BASE.exists(), reason="a measured result: only in a checkout")


@pytest.fixture(scope="module")
def nightlies() -> ModuleType:
    import sys

    spec = spec_from_file_location("benchmark_nightlies", ROOT / "benchmarks" / "nightlies.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    sys.modules[spec.name] = made  # a dataclass looks its own module up
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def base(nightlies: ModuleType) -> ResultDocument:
    """BM25, the baseline and one model, of the measured result."""
    made: ResultDocument = nightlies.slim(load_result(BASE))
    made.cells = made.cells[:3]
    return made


def test_noise_alone_raises_few_alarms(nightlies: ModuleType, base: ResultDocument) -> None:
    """40 nights: the rate is not above 1 % per system and night, as far as a binomial can tell."""
    world = nightlies.World(drift=0.04, flips=0.01)
    quiet = nightlies.simulate(base, 40, world, None, np.random.default_rng(1))
    for figure in (nightlies.METRIC, nightlies.SPEED):
        loud, n = nightlies.alarms(quiet, figure)
        assert n == 3 * 39
        assert binomial_interval(loud, n)[0] <= 0.01
    loud, n = nightlies.rank_alarms(quiet)  # why the samples alone are not asked
    assert binomial_interval(loud, n)[0] > 0.05


@pytest.mark.parametrize(
    ("ndcg", "p95", "figure", "before"), [(0.03, 0.0, "ndcg@10", 2), (0.0, 0.2, "p95_s", 12)]
)
def test_a_planted_regression_is_caught_within_three_nights(
    nightlies: ModuleType, base: ResultDocument, ndcg: float, p95: float, figure: str, before: int
) -> None:
    world = nightlies.World(drift=0.02, flips=0.0)  # of real runs every value of quality is the same
    planted = nightlies.Planted(before, ndcg=ndcg, p95=p95)
    first, three = nightlies.planted_rates(base, 12, world, planted, figure, seed=2)
    assert binomial_interval(three, 12)[0] > 0.5
    assert first <= three

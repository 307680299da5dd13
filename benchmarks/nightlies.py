"""Simulated nightlies: how often `bench trend` catches a planted regression, and how often it cries wolf.

Each night resamples a real result: the queries' values as they were measured (with --flips a share of them
becomes the value of another query, as unstable ties would make it), and the raw latencies redrawn from
those measured, times a factor of the night that all samples share and a small one of the system's own. A
night without samples of its own would be too quiet, a night with independent samples alone too loud: what
moves a nightly is the machine.

    python benchmarks/nightlies.py --nights 200 --drift 0.03

Prints, per kind of night: false alarms per system and night over nights without any change, and of planted
changes how many are caught on the first night and within three, each with Clopper and Pearson's interval.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from harness.compare import IMPROVED, REGRESSED
from harness.history import Night
from harness.mannwhitney import mann_whitney
from harness.results import CellResult, ResultDocument, load_result
from harness.rows import clean
from harness.significance import binomial_interval
from harness.trend import trend
from harness.trend_tracks import Trend

METRIC, SPEED = "ndcg@10", "p95_s"
START = datetime(2026, 1, 1, 3, 17, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """What moves a night: standard deviations of the logarithm of a time, and shares.

    ``drift``: of the machine, shared by all systems of a night; ``own``: of each system; ``busy``: share of
    nights on which everything takes 30 % longer; ``flips``: share of queries whose value becomes another's,
    none by default: real runs of one installation agree in every value.
    """

    drift: float = 0.03
    own: float = 0.01
    busy: float = 0.0
    flips: float = 0.0


@dataclass(frozen=True)
class Planted:
    """A change from night ``night`` on: ``ndcg`` off the mean of every ``systems``, ``p95`` added to it."""

    night: int
    ndcg: float = 0.0
    p95: float = 0.0


def slim(document: ResultDocument) -> ResultDocument:
    """What the simulation needs of a measured result: one metric, no stages."""
    made = clean(document)
    made.cells = [cell for cell in made.cells if cell.status == "ok" and METRIC in cell.metrics]
    for cell in made.cells:
        cell.metrics = {METRIC: cell.metrics[METRIC]}
        cell.stages, cell.attribution, cell.rerank, cell.thresholds = {}, None, None, None
    made.spec["metrics"] = [METRIC]
    return made


def night_of(
    base: ResultDocument, place: int, world: World, planted: Planted | None, rng: np.random.Generator
) -> Night:
    """One simulated run; the change is planted into the first system with vectors of its own."""
    made = ResultDocument(**{name: getattr(base, name) for name in ResultDocument.__slots__})
    made.created = (START + timedelta(days=place)).isoformat().replace("+00:00", "Z")
    shared = rng.normal(0, world.drift) + (np.log(1.3) if rng.random() < world.busy else 0.0)
    hit = planted is not None and place >= planted.night
    made.cells = []
    for which, cell in enumerate(base.cells):
        fresh = copy.copy(cell)
        mine = planted if hit and which == target(base) else None
        fresh.metrics = {METRIC: _flipped(cell, world, mine, rng)}
        factor = float(np.exp(shared + rng.normal(0, world.own))) * (1 + (mine.p95 if mine else 0.0))
        samples = rng.choice(np.asarray(cell.total_s), len(cell.total_s)) * factor
        fresh.total_s = samples.tolist()
        percentiles = zip(("p50_s", "p95_s", "p99_s"), np.percentile(samples, [50, 95, 99]).tolist())
        fresh.speed = {**cell.speed, **dict(percentiles)}
        made.cells.append(fresh)
    return Night(f"night-{place:03d}", made)


def target(base: ResultDocument) -> int:
    """The system that a change is planted into: the first with a model."""
    return next(i for i, c in enumerate(base.cells) if c.key.provider not in ("bm25", "fake"))


def _flipped(cell: CellResult, world: World, planted: Planted | None, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    found = copy.copy(cell.metrics[METRIC])
    values = np.array([np.nan if v is None else v for v in found.per_query])
    flips = rng.random(len(values)) < world.flips
    values[flips] = rng.choice(values, int(flips.sum()))
    if planted and planted.ndcg:
        # a worse model loses some queries wholly, not a little of each: the harder kind to be sure of
        order = rng.permutation(len(values))
        loss, wanted = 0.0, planted.ndcg * len(values)
        for place in order:
            if loss >= wanted:
                break
            cut = min(values[place] / 2, wanted - loss)
            values[place] -= cut
            loss += cut
    found.per_query = values.tolist()
    found.mean = float(values.mean())
    return found


def simulate(
    base: ResultDocument,
    nights: int,
    world: World,
    planted: Planted | None,
    rng: np.random.Generator,
    figures: Sequence[str] = (METRIC, SPEED),
) -> Trend:
    """The trend of so many simulated nights."""
    return trend([night_of(base, place, world, planted, rng) for place in range(nights)], figures)


def alarms(found: Trend, figure: str) -> tuple[int, int]:
    """Change points, and the nights of systems on which one could have been."""
    tracks = [track for track in found.tracks if track.figure == figure]
    return sum(len(t.change_points) for t in tracks), sum(len(t.points) - 1 for t in tracks)


def rank_alarms(found: Trend) -> tuple[int, int]:
    """What Mann and Whitney's test alone, night against night, would have said at the same level."""
    loud = n = 0
    for a, b in zip(found.nights, found.nights[1:]):
        for old, new in zip(a.document.cells, b.document.cells):
            loud += mann_whitney(old.total_s, new.total_s).p_value < 0.01
            n += 1
    return loud, n


def caught(found: Trend, figure: str, label: str, night: int, within: int) -> bool:
    """Whether the planted change was told for the worse at most ``within`` nights after it came."""
    for track in found.tracks:
        if track.figure == figure and track.label == label:
            for place, point in enumerate(track.points[night : night + within]):
                told = point.change is not None and point.change.verdict == REGRESSED
                if told or any(
                    c.night == night + place and c.change.verdict == REGRESSED for c in track.change_points
                ):
                    return True
    return False


def improved(found: Trend) -> int:
    """Changes told for the better: none is ever planted."""
    return sum(c.change.verdict == IMPROVED for track in found.tracks for c in track.change_points)


def rate(successes: int, n: int) -> str:
    low, high = binomial_interval(successes, n)
    return f"{successes} of {n}: {100 * successes / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def planted_rates(
    base: ResultDocument, trials: int, world: World, planted: Planted, figure: str, seed: int
) -> tuple[int, int]:
    """Of ``trials`` histories with a change: told on its first night, and within three."""
    first = three = 0
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial])
        found = simulate(base, planted.night + 3, world, planted, rng, (figure,))
        label = found.tracks[target(base)].label
        first += caught(found, figure, label, planted.night, 1)
        three += caught(found, figure, label, planted.night, 3)
    return first, three


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--result", type=Path, default=Path("reports/baseline.json"))
    parser.add_argument("--nights", type=int, default=200)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--before", type=int, default=14)
    parser.add_argument("--drift", type=float, action="append")
    parser.add_argument("--busy", type=float, default=0.0)
    parser.add_argument("--flips", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    base = slim(load_result(asked.result))
    for drift in asked.drift or (0.03, 0.06):
        world = World(drift=drift, busy=asked.busy, flips=asked.flips)
        started = time.perf_counter()
        quiet = simulate(base, asked.nights, world, None, np.random.default_rng([asked.seed, 1]))
        print(f"{world}, {asked.nights} nights, {len(base.cells)} systems")
        for figure in (METRIC, SPEED):
            print(f"  false alarms, {figure}, per system and night: {rate(*alarms(quiet, figure))}")
        print(f"  false alarms of Mann and Whitney's test alone: {rate(*rank_alarms(quiet))}")
        for what, planted, figure in (
            ("-0.03 ndcg@10", Planted(5, ndcg=0.03), METRIC),
            ("+20 % p95", Planted(asked.before, p95=0.2), SPEED),
        ):
            first, three = planted_rates(base, asked.trials, world, planted, figure, asked.seed)
            print(f"  {what} after {planted.night} nights, on its first night: {rate(first, asked.trials)}")
            print(f"  {what} after {planted.night} nights, within three: {rate(three, asked.trials)}")
        print(f"  {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

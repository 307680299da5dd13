"""Speed from run to run: the newest runs against the ones before, judged by how far runs drift apart.

Two questions must both be answered: whether the figure moved further than it moves from run to run
(:mod:`harness.drift`), and whether the raw latencies of the newest runs lie above or below the earlier ones
(Mann and Whitney's test). The second alone alarms whenever a machine is busy for a night; the first alone
knows nothing of the shape of the latencies.

Where enough systems ran, what they share of a night (the median of their changes: the machine was busy) is
taken out first. A slowness that all share is told when it stays for three runs, each of them beyond the
drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from harness.compare import (
    CANNOT_BE_TOLD,
    IMPROVED,
    OK,
    PERCENTILES,
    REGRESSED,
    SPEED,
    Change,
    speed_change,
)
from harness.drift import LEAST_RUNS, Step, step
from harness.mannwhitney import mann_whitney
from harness.significance import holm
from harness.trend_pairs import Pairs
from harness.trend_tracks import ChangePoint, Track

__all__ = ["TREND_SURE", "WINDOW", "follow_speed"]

#: Corrected p value below which a trend speaks of a change: it is asked every night, so one in a hundred.
TREND_SURE = 0.01
#: Earlier runs that the newest is held against, at most.
WINDOW = 14
#: A relative change up to this is rounding.
ROUNDING = 1e-9
#: How many of the newest runs are taken together: one tells at once, three tell what one cannot.
NEWEST = (1, 3)
#: Systems from which on what they share of a night is known.
LEAST_SYSTEMS = 4
#: Ways to ask: (how many of the newest runs, whether what all systems share is taken out).
ALONE = tuple((newest, False) for newest in NEWEST)
TOGETHER = (*((newest, True) for newest in NEWEST), (max(NEWEST), False))


@dataclass(slots=True)
class _State:
    """What is known of one track while its runs go by.

    ``level``: runs since the last change; ``segment``: since the last break; ``steady``: the last runs of
    one level that are enough to tell the spread from run to run.
    """

    level: list[int] = field(default_factory=list)
    segment: list[int] = field(default_factory=list)
    steady: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    step: Step
    p_value: float
    rank_p: float | None


def follow_speed(tracks: list[Track], pairs: Pairs, n_nights: int, reference: int | None) -> None:
    """Fill in changes, obstacles and change points of ``tracks``, all of the same figure of speed.

    ``reference``: place in ``pairs`` of the result that the newest run is held against; None for the first
    run that it can be compared with.
    """
    states = [_State() for _ in tracks]
    for night in range(n_nights):
        found: dict[int, _Found] = {}
        present = [(t, s) for t, s in zip(tracks, states) if t.points[night].value is not None]
        for track, state in present:
            _break(track, state, pairs, night)
        asked = TOGETHER if _share(present, night) else ALONE
        for place, (track, state) in enumerate(zip(tracks, states)):
            if track.points[night].value is None:
                continue
            step_found = _test(track, state, pairs, night, asked)
            if step_found:
                found[place] = step_found
            elif state.level:
                track.points[night].change = _by_two(track, pairs, state.level[-1], night)
        corrected = holm([item.p_value for item in found.values()])
        for (place, item), p in zip(found.items(), corrected):
            point = tracks[place].points[night]
            point.change, point.rank_p = _change(tracks[place].figure, item.step, p), item.rank_p
        for place, (track, state) in enumerate(zip(tracks, states)):
            if track.points[night].value is not None:
                _advance(track, state, night, found.get(place))
    for track, state in zip(tracks, states):
        if track.newest.value is not None:
            _versus_first(track, state, pairs, n_nights - 1, reference)
    _correct_first(tracks)


def _break(track: Track, state: _State, pairs: Pairs, night: int) -> None:
    if state.segment:
        obstacle = pairs.obstacle(state.segment[-1], night, track.key, is_speed=True)
        if obstacle:
            track.points[night].obstacle = obstacle
            state.level, state.segment, state.steady = [], [], []


def _share(present: list[tuple[Track, _State]], night: int) -> bool:
    """Note at each point what all systems share of this night; whether there are enough of them."""
    moved = []
    for track, state in present:
        before, now = _values(track, state.level[-WINDOW:], True), track.points[night].value
        if len(before) >= LEAST_RUNS and now and now > 0 and min(before) > 0:
            moved.append(math.log(now) - math.fsum(map(math.log, before)) / len(before))
    if len(moved) < LEAST_SYSTEMS:
        return False
    for track, _ in present:
        track.points[night].shared = median(moved)
    return True


def _values(track: Track, nights: list[int], is_own: bool = False) -> list[float]:
    """The figure of each run; ``is_own``: without what all systems share of its night."""
    points = (track.points[night] for night in nights)
    return [p.value * math.exp(-p.shared if is_own else 0.0) for p in points if p.value is not None]


def _test(
    track: Track, state: _State, pairs: Pairs, night: int, asked: Sequence[tuple[int, bool]]
) -> _Found | None:
    """The clearest of the tests ``asked``, its p value times their number for having looked so often."""
    made: list[_Found] = []
    for newest, is_own in asked:
        runs = [*state.level, night]
        before, after = runs[:-newest][-WINDOW:], runs[-newest:]
        steady = before if len(before) >= LEAST_RUNS else state.steady
        if not before or len(steady) < LEAST_RUNS:
            continue
        old, new, others = (_values(track, nights, is_own) for nights in (before, after, steady))
        if min([*old, *new, *others]) <= 0:
            continue
        found = step(old, new, others)
        p_value = found.p_value
        if asked is TOGETHER and not is_own:  # one busy night among three is no change
            each = [step(old, [value], others) for value in new]
            same = len({one.change > 0 for one in each}) == 1
            p_value = max(one.p_value for one in each) if same else 1.0
        rank_p = _rank_p(track, pairs, before, after, is_own) if track.figure in PERCENTILES else None
        made.append(_Found(found, max(p_value, rank_p or 0.0), rank_p))
    if not made:
        return None
    best = min(made, key=lambda item: item.p_value)
    return replace(best, p_value=min(1.0, len(made) * best.p_value))


def _rank_p(
    track: Track, pairs: Pairs, before: list[int], after: list[int], is_own: bool = False
) -> float | None:
    """Of the raw latencies, all runs of a side together; None where one has none."""
    sides: list[list[float]] = [[], []]
    for side, nights in zip(sides, (before, after)):
        for night in nights:
            cell = pairs.cell(night, track.key)
            is_run = is_own and night < len(track.points)
            factor = math.exp(-track.points[night].shared) if is_run else 1.0
            side += [s * factor for s in (cell.total_s if cell else ()) if s is not None]
    return mann_whitney(*sides).p_value if all(sides) else None


def _change(figure: str, found: Step, p_value: float) -> Change:
    reach = (found.high - found.low) / 2
    verdict = OK if abs(found.change) < ROUNDING else CANNOT_BE_TOLD
    if p_value < TREND_SURE:
        verdict = IMPROVED if (found.change > 0) == SPEED[figure] else REGRESSED
    delta = found.new - found.old
    return Change(
        figure, found.old, found.new, delta, found.change, found.low, found.high, p_value, reach, verdict
    )


def _by_two(track: Track, pairs: Pairs, old: int, new: int) -> Change | None:
    a, b = pairs.cell(old, track.key), pairs.cell(new, track.key)
    assert a is not None
    assert b is not None
    return speed_change(a, b, track.figure, 0)


def _advance(track: Track, state: _State, night: int, found: _Found | None) -> None:
    change = track.points[night].change
    state.segment.append(night)
    runs = [*state.level, night]
    if change is not None and change.verdict in (REGRESSED, IMPROVED):
        n_new = found.step.n_new if found else 1
        if len(runs) - n_new >= LEAST_RUNS:
            state.steady = runs[:-n_new][-WINDOW:]
        state.level = runs[-n_new:]
        track.change_points.append(ChangePoint(state.level[0], change))
        return
    state.level = runs[-(WINDOW + max(NEWEST)) :]
    if len(state.level) >= LEAST_RUNS:
        state.steady = state.level[-WINDOW:]


def _versus_first(track: Track, state: _State, pairs: Pairs, night: int, reference: int | None) -> None:
    if reference is None:
        old, track.first_night = state.segment[0], state.segment[0]
        # as the newest: without what all systems share of its night, where that is known
        value = next(iter(_values(track, [old], True)), None)
        if old == night:
            track.first_night = None
            return
    else:
        old, cell = reference, pairs.cell(reference, track.key)
        value = cell.speed.get(track.figure) if cell else None
        track.first_obstacle = (
            pairs.obstacle(reference, night, track.key, is_speed=True) if cell else "no such cell"
        )
        if track.first_obstacle:
            return
    new = next(iter(_values(track, [night], True)), None)
    others = _values(track, state.steady, True)
    if value is None or new is None or min(value, new, *others) <= 0 or len(others) < LEAST_RUNS:
        track.first = _by_two(track, pairs, old, night)
        return
    found = step([value], [new], others)
    rank_p = _rank_p(track, pairs, [old], [night], True) if track.figure in PERCENTILES else None
    track.first = _change(track.figure, found, max(found.p_value, rank_p or 0.0))


def _correct_first(tracks: list[Track]) -> None:
    firsts = [(track, track.first, track.first.p_value) for track in tracks if track.first is not None]
    known = [(track, change, p) for track, change, p in firsts if p is not None]
    for (track, change, _), p in zip(known, holm([p for _, _, p in known])):
        untold = change.verdict in (REGRESSED, IMPROVED) and p >= TREND_SURE
        verdict = CANNOT_BE_TOLD if untold else change.verdict
        track.first = replace(change, p_value=p, verdict=verdict)

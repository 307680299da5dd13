"""Trends of nightly results: what changed when, what cannot be compared, and what cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.compare import CANNOT_BE_TOLD, IMPROVED, NOT_COMPARABLE, OK, REGRESSED
from harness.gates import Gate, evaluate, exit_code
from harness.results import ResultDocument
from harness.trend import trend
from harness.trend_tracks import Track, Trend

Factory = Callable[..., ResultDocument]
E5, LABEL = "e5-small/cpu/q4/flat/hybrid/-", "e5-small · hybrid"


def track(found: Trend, figure: str, label: str = LABEL) -> Track:
    return next(t for t in found.tracks if (t.label, t.figure) == (label, figure))


def test_equal_nights_are_ok_and_have_no_change_point(factory: Factory, nights: Any) -> None:
    found = trend(nights.history(factory, 3, drift=0.0))
    assert found.verdict == OK
    assert not any(t.change_points for t in found.tracks if t.newest.status == OK)
    assert {t.figure for t in found.tracks} == {"ndcg@10", "p95_s"}


def test_a_drop_of_quality_is_told_on_its_night_and_against_the_first(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night >= 4:
            nights.worsen(document, 0.03)

    found = track(trend(nights.history(factory, 7, move)), "ndcg@10")
    assert [(c.night, c.change.verdict, c.is_creep) for c in found.change_points] == [(4, REGRESSED, False)]
    assert found.change_points[0].change.delta == pytest.approx(-0.03)
    assert found.before is not None
    assert found.before.verdict == OK
    assert found.first is not None
    assert (found.first.verdict, found.first_night) == (REGRESSED, 0)
    assert found.verdict == REGRESSED


def test_small_steps_add_up(factory: Factory, nights: Any) -> None:
    """Each night alone is not told from none; the sum is."""

    def move(night: int, document: ResultDocument) -> None:
        cell = document.cell(E5)
        assert cell is not None
        found = cell.metrics["ndcg@10"]
        for place in range(2 * night):  # two more queries lose a little each night
            found.per_query[place] -= 0.2  # type: ignore[operator]
        found.mean = sum(v for v in found.per_query if v is not None) / len(found.per_query)

    found = track(trend(nights.history(factory, 7, move)), "ndcg@10")
    first, *_ = found.change_points
    assert (first.is_creep, first.since, first.change.verdict) == (True, 0, REGRESSED)
    assert 2 <= first.night <= 6


def test_twenty_per_cent_of_p95_is_told_by_the_drift_of_the_nights(factory: Factory, nights: Any) -> None:
    """Two runs alone allow 20 %; a history that moves by 2 % does not."""

    def move(night: int, document: ResultDocument) -> None:
        if night >= 8:
            nights.slow(document, 1.2)

    found = trend(nights.history(factory, 9, move))
    mine = track(found, "p95_s")
    assert [(c.night, c.change.verdict) for c in mine.change_points] == [(8, REGRESSED)]
    assert mine.newest.rank_p is not None
    assert mine.newest.rank_p < 1e-6
    assert mine.before is not None
    assert mine.before.noise is not None
    assert mine.before.noise < 0.1
    assert not any(t.change_points for t in found.tracks if t is not mine)
    assert found.latest is not None
    gate = evaluate(found.latest, [Gate.parse("latency_p95:+10%")])
    assert exit_code(found.latest, gate) == 1
    assert [f.label for f in gate[0].findings if f.verdict == REGRESSED and "→" in f.reason] == [LABEL]


def test_after_a_change_the_known_drift_stands(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night in (8, 9):
            nights.slow(document, 1.3)

    mine = track(trend(nights.history(factory, 12, move)), "p95_s")
    assert [(c.night, c.change.verdict) for c in mine.change_points] == [(8, REGRESSED), (10, IMPROVED)]


def test_few_nights_fall_back_on_what_two_runs_can_tell(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night == 2:
            nights.slow(document, 1.15)

    mine = track(trend(nights.history(factory, 3, move, drift=0.001)), "p95_s")
    assert mine.before is not None
    assert mine.before.verdict == CANNOT_BE_TOLD
    assert mine.before.noise == pytest.approx(0.2)


def test_another_machine_breaks_the_times_and_not_the_quality(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night >= 2:
            document.environment |= {"cpu_model": "Other CPU", "machine_fingerprint": "0" * 12}

    runs = nights.history(factory, 4, move)
    found = trend(runs[:3])
    assert track(found, "p95_s").newest.obstacle == "cpu_model"
    assert track(found, "p95_s").verdict == NOT_COMPARABLE
    assert track(found, "ndcg@10").verdict == OK
    assert found.verdict != NOT_COMPARABLE
    later = track(trend(runs), "p95_s")
    assert (later.newest.obstacle, later.first_night) == ("", 2)
    allowed = track(trend(runs, allow_other_machine=True), "p95_s")
    assert [point.obstacle for point in allowed.points] == [""] * 4


def test_other_data_is_marked_and_named(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night >= 1:
            document.dataset["hash"]["corpus"] = "9" * 64

    runs = nights.history(factory, 3, move)
    assert trend(runs[:2]).verdict == NOT_COMPARABLE
    found = track(trend(runs), "ndcg@10")
    assert found.points[1].obstacle == "data set: hash of corpus"
    assert (found.first_night, found.verdict) == (1, OK)


def test_another_dtype_of_the_same_provider_is_not_comparable(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night == 1:
            cell = document.cell(E5)
            assert cell is not None
            cell.key = replace(cell.key, dtype="fp32")

    found = track(trend(nights.history(factory, 2, move)), "ndcg@10")
    assert found.newest.obstacle == "dtype"


def test_a_lost_system_is_a_regression_and_a_left_out_one_is_told(factory: Factory, nights: Any) -> None:
    def fail(night: int, document: ResultDocument) -> None:
        cell = document.cell(E5)
        assert cell is not None
        if night == 1:
            cell.status, cell.reason = "failed", "broken"

    assert track(trend(nights.history(factory, 2, fail)), "ndcg@10").verdict == REGRESSED

    def drop(night: int, document: ResultDocument) -> None:
        if night == 1:
            document.cells = [cell for cell in document.cells if cell.key.cell_id != E5]

    found = trend(nights.history(factory, 2, drop))
    assert track(found, "ndcg@10").verdict == CANNOT_BE_TOLD
    assert found.latest is not None
    assert exit_code(found.latest, evaluate(found.latest, [Gate.parse("ndcg@10:-0.01")])) == 1


def test_against_a_given_result(factory: Factory, nights: Any) -> None:
    runs = nights.history(factory, 2, lambda night, document: nights.worsen(document, 0.04), drift=0.0)
    found = trend(runs, ["ndcg@10"], against=factory())
    assert track(found, "ndcg@10").before is not None
    assert track(found, "ndcg@10").verdict == REGRESSED
    other = factory()
    other.spec["k"] = 10
    unlike = trend(runs, ["ndcg@10", "p95_s"], against=other)
    assert track(unlike, "ndcg@10").first_obstacle == "setting k"
    assert unlike.verdict == NOT_COMPARABLE
    empty = factory()
    empty.cells = empty.cells[:1]
    assert track(trend(runs, ["p95_s"], against=empty), "p95_s").first_obstacle == "no such cell"


def test_speed_against_a_given_result_uses_the_drift_of_the_nights(factory: Factory, nights: Any) -> None:
    runs = nights.history(factory, 8, lambda night, document: nights.slow(document, 1.18), drift=0.01)
    found = track(trend(runs, ["p95_s"], against=factory()), "p95_s")
    assert found.change_points == []
    assert found.first is not None
    assert found.first.verdict == REGRESSED


def test_a_single_run_has_nothing_to_compare(factory: Factory, nights: Any) -> None:
    found = trend(nights.history(factory, 1))
    assert found.latest is None
    assert {t.verdict for t in found.tracks} == {CANNOT_BE_TOLD}


def test_memory_and_throughput_are_figures_too(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        cell = document.cell(E5)
        assert cell is not None
        if night == 7:
            cell.speed["peak_rss_bytes"] = int((cell.speed["peak_rss_bytes"] or 0) * 1.2)

    found = trend(nights.history(factory, 8, move), ["peak_rss_bytes", "docs_per_s"])
    mine = track(found, "peak_rss_bytes")
    assert [(c.night, c.change.verdict) for c in mine.change_points] == [(7, REGRESSED)]
    assert mine.newest.rank_p is None
    assert track(found, "docs_per_s").verdict == OK  # it stayed the same


def all_slower(nights: Any, document: ResultDocument, factor: float) -> None:
    for cell in document.cells:
        if cell.total_s:
            nights.slow(document, factor, cell.key.cell_id)


def test_a_busy_night_of_all_systems_is_no_change(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night == 8:
            all_slower(nights, document, 1.4)

    runs = nights.history(factory, 10, move)
    found = trend(runs[:9])
    assert not any(t.change_points for t in found.tracks)
    assert track(found, "p95_s").newest.shared == pytest.approx(0.336, abs=0.06)  # log 1.4
    assert not any(t.change_points for t in trend(runs).tracks)


def test_a_change_of_one_system_is_told_on_a_busy_night(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night == 8:
            all_slower(nights, document, 1.4)
            nights.slow(document, 1.25)

    found = trend(nights.history(factory, 9, move, drift=0.01))
    assert [t.label for t in found.tracks if t.change_points] == [LABEL]


def test_slowness_that_all_share_is_told_when_it_stays(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night >= 8:
            all_slower(nights, document, 1.4)

    runs = nights.history(factory, 11, move)
    assert not any(t.change_points for t in trend(runs[:10]).tracks)
    mine = track(trend(runs), "p95_s")
    assert [(c.night, c.change.verdict) for c in mine.change_points] == [(8, REGRESSED)]


def test_a_system_that_came_on_a_busy_night_has_not_become_faster(factory: Factory, nights: Any) -> None:
    def move(night: int, document: ResultDocument) -> None:
        if night < 6:
            document.cells = [cell for cell in document.cells if cell.key.cell_id != E5]
        if night == 6:
            all_slower(nights, document, 1.5)

    runs = nights.history(factory, 14, lambda night, document: many(document) or move(night, document))
    mine = track(trend(runs), "p95_s")
    assert mine.points[6].shared == pytest.approx(0.405, abs=0.06)  # log 1.5
    assert mine.first is not None
    assert mine.first_night == 6
    assert abs(mine.first.relative or 0.0) < 0.1


def many(document: ResultDocument) -> None:
    """One system more, so that enough are left where one is missing."""
    cell = document.cell("e5-small/cpu/q4/flat/vector/-")
    assert cell is not None
    document.cells.append(replace(cell, key=replace(cell.key, store="lancedb")))

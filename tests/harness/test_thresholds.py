"""Score thresholds: the curve against counting by hand, the choice, its honesty, and every verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.results import CellKey, CellResult
from harness.significance import binomial_interval
from harness.thresholds import LEAST_KEPT, MOST_LEAK, MOST_POINTS, Thresholds, record, thresholds


def found(relevant: Any, unanswerable: Any, other: Any = None, seed: int = 0) -> Thresholds:
    kept = [None if s is None else float(s) for s in relevant]
    values = {
        "of": "rerank",
        "relevant": kept,
        "other": [None] * len(kept) if other is None else [float(s) for s in other],
        "unanswerable": [float(s) for s in unanswerable],
        "n_unjudged": 0,
    }
    key = CellKey("d", "p", "cpu", "fp32", "flat", "hybrid+rerank", "r")
    made = thresholds(CellResult(key, "ok", thresholds=values), seed)
    assert made is not None
    return made


def normal(n: int, middle: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(middle, 1, n)


def test_the_curve_counts_and_its_intervals_are_exact() -> None:
    wanted, false = np.arange(1, 41) / 10, np.arange(-9, 21) / 10
    made = found(wanted, false)
    assert (made.n_kept, made.n_leak, made.leak_of, made.scores) == (40, 30, "unanswerable", "rerank")
    for point in made.points:
        kept, leak = int((wanted >= point.threshold).sum()), int((false >= point.threshold).sum())
        assert (point.kept, point.leak) == (kept / 40, leak / 30)
        assert (point.kept_low, point.kept_high) == binomial_interval(kept, 40)
        assert (point.leak_low, point.leak_high) == binomial_interval(leak, 30)
    at = [point.threshold for point in made.points]
    assert at == sorted(set(at))
    assert made.points[0].kept == made.points[0].leak == 1.0
    assert made.points[-1].kept > 0  # some score is at or above every threshold


def test_the_choice_has_the_greatest_gain_among_those_that_keep_enough() -> None:
    made = found(normal(150, 1.5, 1), normal(60, 0, 2))
    assert made.best is not None
    enough = [p for p in made.points if p.kept_low >= LEAST_KEPT]
    assert made.best.kept - made.best.leak == max(p.kept - p.leak for p in enough)
    # a higher threshold would gain more, and lose too many answers
    assert max(p.kept - p.leak for p in made.points) > made.best.kept - made.best.leak


def test_scores_far_apart_separate() -> None:
    made = found(normal(80, 8, 1), normal(40, 0, 2))
    assert made.separates
    assert made.best is not None
    assert made.low is not None
    assert made.high is not None
    assert made.low <= made.best.threshold <= made.high
    assert (made.best.kept, made.best.leak) == (1.0, 0.0)
    assert made.gain == pytest.approx(1.0, abs=0.03)  # a resample may draw no score near the edge
    assert made.reason == (
        "it keeps 100 % of the answers (95 % to 100 %) and lets 0 % of the false ones through (0 % to 9 %)"
    )


@pytest.mark.parametrize("distance", [0.0, 0.5])
def test_scores_that_overlap_do_not(distance: float) -> None:
    made = found(normal(180, distance, 1), normal(40, 0, 2))
    assert made.verdict == "no clean separation"
    assert made.best is not None
    assert made.best.leak_high > MOST_LEAK
    assert "of the false ones leak" in made.reason


def test_too_few_queries_give_no_curve_and_say_so() -> None:
    made = found(normal(12, 8, 1), normal(40, 0, 2))
    assert (made.verdict, made.points, made.best) == ("too few queries", (), None)
    assert made.reason == "12 queries on a side, 20 needed"


def test_few_answers_are_never_surely_kept() -> None:
    made = found([*normal(20, 8, 1), *[None] * 9], normal(40, 0, 2))
    assert made.n_out == 9
    assert made.separates  # 20 of 20: its interval begins at 0.83
    assert made.best is not None
    assert made.best.kept == 1.0


def test_without_unanswerable_queries_other_candidates_stand_in_pair_by_pair() -> None:
    relevant, other = normal(60, 5, 1), normal(60, 0, 2)
    made = found(relevant, normal(19, 0, 3), other)
    assert (made.leak_of, made.n_kept, made.n_leak) == ("others", 60, 60)
    assert made.separates


def test_the_optimism_is_taken_off() -> None:
    """On scores that mean nothing the gain of the best of many thresholds is above 0, and should be 0."""
    raw, corrected = [], []
    for seed in range(60):
        made = found(normal(60, 0, 2 * seed), normal(60, 0, 2 * seed + 1), seed=seed)
        assert made.best is not None
        assert made.gain is not None
        raw.append(made.best.kept - made.best.leak)
        corrected.append(made.gain)
        assert not made.separates
    assert np.mean(raw) > 0.03
    assert abs(np.mean(corrected)) < abs(np.mean(raw)) / 2


def test_the_interval_covers_the_best_threshold_of_the_population() -> None:
    """Two normal distributions 4 apart: the true optimum lies in the middle."""
    hits = 0
    for seed in range(40):
        made = found(normal(120, 4, 2 * seed), normal(120, 0, 2 * seed + 1), seed=seed)
        assert made.low is not None
        assert made.high is not None
        hits += made.low <= 2.0 <= made.high
    assert hits >= 34


def test_many_scores_are_read_at_quantiles() -> None:
    made = found(normal(5000, 3, 1), normal(5000, 0, 2))
    assert 100 < len(made.points) <= MOST_POINTS
    assert made.separates


def test_ties_and_a_single_score() -> None:
    made = found([1.0] * 40, [1.0] * 40)
    assert made.verdict == "no clean separation"
    assert len(made.points) == 1


def test_the_same_seed_gives_the_same_figures() -> None:
    assert found(normal(50, 2, 1), normal(50, 0, 2)) == found(normal(50, 2, 1), normal(50, 0, 2))


def test_a_cell_without_scores_has_no_threshold() -> None:
    assert thresholds(CellResult(CellKey("d", "p", "cpu", "-", "-", "bm25", "-"), "ok")) is None


def test_a_record_keeps_the_best_of_each_kind() -> None:
    inf, nan = float("inf"), float("nan")
    relevance = {"b": {"x": 1, "y": 0}, "a": {"x": 2}, "none": {"x": 0}, "lost": {"x": 1}}
    scored = {
        "a": [("x", 0.5), ("y", 0.75), ("z", nan)],
        "b": [("y", -1.0), ("z", -3.0), ("x", -inf)],
        "none": [("x", 0.1), ("y", 0.2)],
        "new": [("x", 0.3)],
        "empty": [],
    }
    assert record(scored, relevance, ["a", "b", "none", "lost", "new", "empty"], "vector") == {
        "of": "vector",
        "relevant": [0.5, None, None],
        "other": [0.75, -1.0, None],
        "unanswerable": [0.2, 0.3],
        "n_unjudged": 1,
    }

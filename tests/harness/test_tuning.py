"""Tuning on lists of both legs."""

from __future__ import annotations

import numpy as np
import pytest

from harness.leg_lists import LegLists
from harness.tune_grid import DEFAULT, Setting, grid, values_of
from harness.tuning import LEAST, distinct, tune
from rag_core.errors import InvalidArgumentError
from rag_core.fusion import Leg, fuse, rrf
from rag_core.types import Ranking

METRIC = "ndcg@10"


def lists(n: int, near: float, words: float, seed: int = 0) -> tuple[LegLists, dict[str, dict[str, int]]]:
    """``n`` queries with one relevant document each, which a leg lists first with that probability."""
    random = np.random.default_rng(seed)
    vector, bm25, grades = {}, {}, {}
    for number in range(n):
        query_id, docs = f"q{number:03}", [f"d{number}-{i}" for i in range(30)]
        grades[query_id] = {docs[0]: 1}
        for found, chance, shift in ((vector, near, 0), (bm25, words, 7)):
            order = docs[1 + shift :] + docs[1 : 1 + shift]
            place = 0 if random.random() < chance else int(random.integers(5, 25))
            order.insert(place, docs[0])
            found[query_id] = Ranking.from_scores({d: 1 - i / 50 for i, d in enumerate(order)})
    return LegLists(100, vector, bm25, {}), grades


def texts(n: int) -> dict[str, str]:
    return {f"q{number:03}": f"question {number} of its own words w{number}" for number in range(n)}


def test_where_one_leg_knows_nothing_that_leg_is_left_out() -> None:
    found, grades = lists(60, 0.8, 0.0)
    tuned = tune(found, texts(60), grades, METRIC)
    assert tuned.sure
    assert tuned.choice.gain.low > 0
    assert tuned.vector > tuned.default.mean() > tuned.bm25
    assert tuned.setting.method == "vector" or tuned.setting.weights[0] > tuned.setting.weights[1]
    assert tune(found, texts(60), grades, METRIC).choice.gain == tuned.choice.gain


def test_where_no_setting_changes_anything_the_default_stays() -> None:
    found, grades = lists(40, 1.0, 1.0)
    tuned = tune(found, texts(40), grades, METRIC)
    assert (tuned.setting, tuned.sure, tuned.needed, tuned.choice.gain.mean) == (DEFAULT, False, None, 0.0)


def test_too_few_queries_are_refused_with_how_many_it_takes() -> None:
    found, grades = lists(LEAST - 1, 0.8, 0.3)
    message = rf"{LEAST - 1} different judged queries are too few .* {LEAST} or more; .* about [\d,]+ tell"
    with pytest.raises(InvalidArgumentError, match=message):
        tune(found, texts(LEAST - 1), grades, METRIC)
    # the same question asked many times is no more than one
    asked = {query_id: f"Where is the town hall, number {i % 20}?" for i, query_id in enumerate(texts(29))}
    with pytest.raises(InvalidArgumentError, match=r"^20 different judged queries"):
        tune(found, asked, grades, METRIC)


def test_nearly_equal_texts_are_one_query() -> None:
    asked = {
        "a": "When does the night ferry leave the old port?",
        "b": "what is the tax on dogs",
        "c": "when does the night ferry leave the old port",
        "d": "",
        "e": "",
    }
    assert distinct(asked) == [["a", "c"], ["b"], ["d"], ["e"]]


def test_values_are_those_of_the_library_and_a_group_counts_its_mean() -> None:
    found, grades = lists(4, 0.5, 0.5)
    settings = [Setting("adaptive", (2.0, 1.0), 20), Setting("bm25"), Setting(pool=20)]
    values = values_of(found, [["q000", "q002"], ["q001"], ["q003"]], grades, METRIC, settings)
    single = values_of(found, [["q000"], ["q002"]], grades, METRIC, settings)
    assert values[0] == pytest.approx(single.mean(axis=0))
    legs = (
        Leg("vector", found.vector["q000"], depth=100, floor=-1.0),
        Leg("bm25", found.bm25["q000"], depth=100),
    )
    by_ranks = rrf([leg.ranking.top(20) for leg in legs])
    for column, ranking in ((0, fuse(legs, "adaptive", weights=(2.0, 1.0)).ranking), (2, by_ranks)):
        place = ranking.doc_ids.index("d0-0") + 1
        assert single[0, column] == pytest.approx(1 / np.log2(place + 1) if place <= 10 else 0.0)


def test_a_query_that_failed_counts_zero() -> None:
    found, grades = lists(2, 1.0, 1.0)
    short = LegLists(100, {"q000": found.vector["q000"]}, {"q000": found.bm25["q000"]}, {})
    assert values_of(short, [["q000"], ["q001"]], grades, METRIC, [DEFAULT])[:, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("depth", [10, 50, 100, 200])
def test_the_grid_begins_with_the_default_and_widens(depth: int) -> None:
    settings, widths = grid(depth)
    assert settings[0] == DEFAULT
    assert len(set(settings)) == len(settings)
    assert [width[0] for width in widths] == [0, 0, 0]
    assert len(widths[0]) < len(widths[1]) <= len(widths[2]) == len(settings)
    assert all(s.pool <= depth for s in settings[1:])
    read = [(s.method, s.weights, s.k, min(s.depth, depth)) for s in settings if not s.is_leg]
    assert len(set(read)) == len(read)
    assert {"vector", "bm25"} <= {settings[place].method for place in widths[0]}


def test_settings_as_people_and_files_read_them() -> None:
    assert str(Setting("rrf", (2.0, 1.0), 20, 10.0)) == "rrf, pool 20, weights 2:1, k 10"
    assert str(Setting("adaptive", pool=100)) == "adaptive, pool 100"
    assert str(Setting("vector")) == "vector alone"
    assert Setting("vector").as_search() == {"pipeline": "vector", "candidate_pool": 50}
    assert Setting("adaptive", (1.0, 2.0), 100).as_search() == {
        "fusion": "adaptive",
        "candidate_pool": 100,
        "weights": [1.0, 2.0],
    }
    assert DEFAULT.as_search() == {"fusion": "rrf", "candidate_pool": 50, "rrf_k": 60.0}

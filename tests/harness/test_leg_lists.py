"""Both legs' lists on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.reading import DataError
from harness.leg_lists import LegLists, legs_file
from harness.results import CellKey
from rag_core.fusion import Evidence
from rag_core.types import EMPTY_RANKING, Ranking

NEAR = {
    "q1": Ranking.from_scores({"a": 0.9, "b c": 0.9, "d": -0.25}),
    "q2": EMPTY_RANKING,
    "q3": EMPTY_RANKING,
}
WORDS = {"q1": Ranking.from_scores({"a": 1 / 3}), "q2": EMPTY_RANKING}
LISTS = LegLists(5, NEAR, WORDS, {"q1": Evidence(0.5, 7)})


def test_scores_and_ties_survive_and_the_bytes_are_the_same_each_time(tmp_path: Path) -> None:
    path = legs_file(tmp_path, CellKey("d", "e5", "cpu", "fp32", "flat", "vector", "-"))
    LISTS.write(path)
    read = LegLists.read(path)
    # a query that failed in one leg has no lists
    assert read == LegLists(5, {q: NEAR[q] for q in WORDS}, WORDS, LISTS.evidence)
    before = path.read_bytes()
    read.write(path)
    assert path.read_bytes() == before


def test_legs_are_cut_to_the_pool_and_know_its_depth() -> None:
    near, words = LISTS.legs("q1", 2)
    assert (near.ranking.doc_ids, near.depth, near.floor, near.evidence) == (("b c", "a"), 2, -1.0, None)
    assert (words.depth, words.evidence) == (2, Evidence(0.5, 7))
    assert LISTS.legs("q2", 2)[0].ranking == EMPTY_RANKING


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "bench run --fresh"), (b"\x1f\x8b12", "not lists of a run"), (b"{}", "not lists of a run")],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, data: bytes | None, message: str) -> None:
    path = tmp_path / "x.legs.json.gz"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        LegLists.read(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "x.legs.json.gz"
    path.write_bytes(gzip.compress(b'{"legs_version": 9}'))
    with pytest.raises(DataError, match="version 9; accepted: 1"):
        LegLists.read(path)


def test_an_id_may_hold_what_utf8_cannot(tmp_path: Path) -> None:
    path = tmp_path / "x.legs.json.gz"
    lists = LegLists(1, {"q\ud800": Ranking.from_scores({"d\udfff": 1.0})}, {"q\ud800": EMPTY_RANKING}, {})
    lists.write(path)
    assert LegLists.read(path) == lists

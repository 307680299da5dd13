"""The first documents of each query, read without the rest of the lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.reading import DataError
from harness.formats.tops import read_tops
from harness.formats.trec import read_run, write_run
from rag_core.types import Ranking, Run


@pytest.mark.parametrize("lengths", [(1, 1, 1), (3, 100, 7), (10, 11, 9), (64, 65, 63), (0, 5, 0)])
def test_as_the_whole_reader_finds_them(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    rankings = {
        f"q{i}": Ranking.from_scores({f"d {i}-{j}": float(-j) for j in range(n)})
        for i, n in enumerate(lengths)
    }
    write_run(Run("x", rankings), tmp_path / "x.run")
    expected = {q: r.doc_ids[:10] for q, r in read_run(tmp_path / "x.run").rankings.items()}
    assert read_tops(tmp_path / "x.run") == expected


def test_a_query_id_that_begins_another_one(tmp_path: Path) -> None:
    rankings = {q: Ranking.from_scores({f"{q}-d": 1.0}) for q in ("1", "11", "111")}
    write_run(Run("x", rankings), tmp_path / "x.run")
    assert read_tops(tmp_path / "x.run", 3) == {q: (f"{q}-d",) for q in ("1", "11", "111")}


def test_an_empty_file_has_no_queries(tmp_path: Path) -> None:
    (tmp_path / "x.run").write_text("")
    assert read_tops(tmp_path / "x.run") == {}


def test_errors_name_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "x.run").write_text("q Q0 d 1 1.0 x\nq Q0\n")
    with pytest.raises(DataError, match=r"x\.run.*2.*columns"):
        read_tops(tmp_path / "x.run")
    (tmp_path / "x.run").write_bytes(b"q Q0 \xff 1 1.0 x\n")
    with pytest.raises(DataError, match="accepted: the run files"):
        read_tops(tmp_path / "x.run")
    with pytest.raises(DataError, match="No such file"):
        read_tops(tmp_path / "y.run")

"""What the BM25 process hands to the hybrid cells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.fusing import Lexical, fuse_lists, keep_legs
from harness.leg_lists import LegLists, legs_file
from harness.results import CellKey
from harness.stages import Job, Timed
from rag_core.analysis import Analyser
from rag_core.fusion import READ, Leg, fuse, rrf
from rag_core.lexical import get_lexical
from rag_core.types import Document, Query, Ranking

DOCUMENTS = [Document("a", "the ferry leaves"), Document("b", "a ferry, a bus"), Document("c", "tax")]
QUERIES = (Query("q1", "ferry bus zebra"), Query("q2", "nothing"))


def job(*fusions: str) -> Any:
    made = object.__new__(Job)
    made.spec = SimpleNamespace(fusions=fusions, candidate_pool=2, rrf_k=60.0, weights=None, warmup=0)  # type: ignore[assignment]
    made.queries, made.rounds = QUERIES, 2
    made.where = lambda query: None  # type: ignore[method-assign]
    return made


def found(engine: Any) -> Timed:
    return Timed(engine.search(QUERIES, 5).rankings, {}, [[0.1, 0.1]] * 2, [])


def near() -> Timed:
    rankings = {q.query_id: Ranking.from_scores({"c": 0.9, "a": 0.5, "b": 0.1}) for q in QUERIES}
    return Timed(rankings, {}, [[0.1, 0.1]] * 2, [])


@pytest.mark.parametrize("engine_name", ["bm25", "rank_bm25"])
def test_lists_survive_the_file(tmp_path: Path, engine_name: str) -> None:
    engine = get_lexical(engine_name, DOCUMENTS, Analyser.raw())
    lexical = Lexical.of(job("rrf", "adaptive"), engine, found(engine))
    lexical.write(tmp_path / "lexical.json")
    assert Lexical.read(tmp_path / "lexical.json") == lexical
    assert set(lexical.evidence) == ({"q1", "q2"} if engine_name == "bm25" else set())


def test_evidence_is_worked_out_whatever_the_methods_because_tuning_reads_it() -> None:
    engine = get_lexical("bm25", DOCUMENTS, Analyser.raw())
    lexical = Lexical.of(job("rrf"), engine, found(engine))
    assert set(lexical.evidence) == {"q1", "q2"}
    assert len(lexical.evidence_s) == 2


def test_both_lists_are_left_beside_the_runs(tmp_path: Path) -> None:
    engine = get_lexical("bm25", DOCUMENTS, Analyser.raw())
    this = job("rrf")
    this.runs, this.depth = tmp_path, 5
    key = CellKey("d", "fake", "cpu", "fp32", "flat", "vector", "-")
    lexical = Lexical.of(this, engine, found(engine))
    keep_legs(this, key, near(), lexical)
    read = LegLists.read(legs_file(tmp_path, key))
    assert (read.depth, read.vector, read.evidence) == (5, near().rankings, lexical.evidence)
    assert read.bm25 == found(engine).rankings


def test_fused_lists_are_those_of_the_library_and_pay_for_the_evidence() -> None:
    this, engine = job("adaptive"), get_lexical("bm25", DOCUMENTS, Analyser.raw())
    lexical = Lexical.of(this, engine, found(engine))
    lexical.evidence_s = [10.0, 20.0]
    out = fuse_lists(this, near(), lexical, "adaptive")
    legs = (
        Leg("vector", near().rankings["q1"], depth=READ, floor=-1.0),
        Leg("bm25", lexical.timed.rankings["q1"], lexical.evidence["q1"], READ),
    )
    assert out.timed.rankings["q1"] == fuse(legs, "adaptive").ranking
    assert [[int(s) for s in row] for row in out.timed.samples_s] == [[10, 20], [10, 20]]
    assert set(out.settings["mean_weights"]) == {"vector", "bm25"}
    by_ranks = fuse_lists(this, near(), lexical, "rrf").timed.rankings["q1"]
    assert by_ranks == rrf([near().rankings["q1"].top(2), lexical.timed.rankings["q1"].top(2)])


def test_a_query_that_failed_in_a_leg_fails() -> None:
    this, engine = job("zscore"), get_lexical("bm25", DOCUMENTS, Analyser.raw())
    timed = found(engine)
    timed.failed["q2"] = "too long"
    del timed.rankings["q2"]
    out = fuse_lists(this, near(), Lexical.of(this, engine, timed), "zscore")
    assert out.timed.failed == {"q2": "too long"}
    assert set(out.timed.rankings) == {"q1"}

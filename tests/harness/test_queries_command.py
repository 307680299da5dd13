"""`bench queries`: which queries, which systems, which texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import RunSpec
from harness.datasets import load_dataset
from harness.formats.reading import DataError
from harness.formats.trec import write_run
from harness.queries_command import find_cell, query_lines, worst
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, file_name
from harness.runner import dataset_record
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.types import Ranking, Run

BM25 = CellKey("town", "bm25", "cpu", "-", "-", "bm25", "-")
VECTOR = CellKey("town", "e5-small", "cpu", "q4", "flat", "vector", "-")
TEXTS = {
    "old port": "The ferry leaves at nine.",
    "bus": "The night bus " + "rolls " * 60,
    "tax": "Pay in May.",
}
QUERIES = {"#1": "when does the boat go", "q2": "how to pay", "q3": "last ride"}
VALUES = {BM25: [0.0, 1.0, 0.5], VECTOR: [0.63, 0.0, 0.0]}
LISTS = {
    BM25: {"#1": ["tax"], "q2": ["tax", "bus"], "q3": []},
    VECTOR: {"#1": ["tax", "old port"], "q2": ["old port"], "q3": ["tax"]},
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A run's folder over three queries; ids with a blank and a hash, which run files escape."""
    data = tmp_path / "town"
    (data / "qrels").mkdir(parents=True)
    corpus = [{"_id": d, "title": "", "text": text} for d, text in TEXTS.items()]
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (data / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": q, "text": text}) for q, text in QUERIES.items())
    )
    (data / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n#1\told port\t1\n#1\tbus\t1\nq2\ttax\t2\nq2\tbus\t1\nq3\tbus\t1\n"
    )
    spec = RunSpec(data="town", providers=("e5-small",))
    document = ResultDocument(
        "town", "complete", "", spec.as_dict(), spec.digest, dataset_record(load_dataset(str(data))), {}
    )
    for key, values in VALUES.items():
        found = MetricResult(sum(values) / 3, 0.0, 1.0, list(values))
        document.put(CellResult(key, "ok", metrics={"ndcg@10": found}))
        lists = {
            q: Ranking.from_scores((d, -float(i)) for i, d in enumerate(ids)) for q, ids in LISTS[key].items()
        }
        write_run(Run("x", lists), tmp_path / "out" / "runs" / f"{file_name(key)}.run")
    document.write(tmp_path / "out" / "result.json")
    return tmp_path / "out"


def lines(out: Path, system: str, against: str = "", n: int = 10, **more: str) -> list[str]:
    return query_lines(out, system, against, n, data=str(out.parent / "town"), **more)


def test_the_worst_first_and_of_equal_ones_where_the_other_does_best(out: Path) -> None:
    made = lines(out, "e5-small/vector", n=2)
    assert made[0] == "nDCG@10, the 2 lowest of 3 queries: e5-small · vector against bm25"
    assert [line for line in made if line and not line.startswith((" ", "nDCG"))] == [
        "q2: how to pay",
        "q3: last ride",
    ]


def test_texts_ranks_and_values_side_by_side(out: Path) -> None:
    made = lines(out, "e5-small/vector")
    assert made[2:6] == [
        "q2: how to pay",
        "  e5-small · vector 0.000: old port: The ferry leaves at nine.",
        "  bm25 1.000 (+1.000): tax: Pay in May.",
        "  relevant tax (grade 2; e5-small · vector not found, bm25 rank 1): Pay in May.",
    ]
    assert made[9].startswith("  bm25 0.500 (+0.500): found nothing")
    long = made[10].split(": ", 1)[1]
    assert len(long) <= 160
    assert long.endswith("…")


def test_ids_that_the_run_file_escapes_are_found(out: Path) -> None:
    made = lines(out, "e5-small/vector")
    assert made[12] == "#1: when does the boat go"
    assert made[13] == "  e5-small · vector 0.630: tax: Pay in May."
    # of two relevant ones the one that the system ranks best, not the one that it lacks
    assert made[15] == (
        "  relevant old port (grade 1; e5-small · vector rank 2, bm25 not found): The ferry leaves at nine."
    )


def test_bm25_itself_stands_alone_unless_told_otherwise(out: Path) -> None:
    assert lines(out, "bm25", n=1)[0].endswith("queries: bm25")
    assert lines(out, "bm25", "e5-small/vector", n=1)[0].endswith("bm25 against e5-small · vector")


def test_queries_without_a_value_are_left_out(out: Path, document: ResultDocument) -> None:
    cell = document.cells[0]
    cell.metrics["ndcg@10"].per_query[:] = [0.5] * 38 + [None, 0.25]
    assert worst(document, cell, None, "ndcg@10", 2) == [39, 0]
    assert len(worst(document, cell, None, "ndcg@10", 99)) == 39


def test_systems_by_id_label_or_parts(document: ResultDocument) -> None:
    wanted = "e5-small/cpu/q4/flat/hybrid/-"
    for name in (wanted, "e5-small · hybrid", "hybrid/e5-small", "q4/hybrid"):
        assert find_cell(document, name).key.cell_id == wanted
    with pytest.raises(InvalidArgumentError, match="'hybrid' fits 3 systems; accepted: fake/cpu"):
        find_cell(document, "hybrid")
    with pytest.raises(UnknownNameError, match="no measured system 'broken/vector'; accepted: bm25/cpu"):
        find_cell(document, "broken/vector")
    with pytest.raises(UnknownNameError):
        find_cell(document, "")


def test_what_does_not_fit_is_said(out: Path) -> None:
    with pytest.raises(UnknownNameError, match="has no metric 'map'; accepted: ndcg@10"):
        lines(out, "bm25", metric="map")
    with pytest.raises(InvalidArgumentError, match="is not the data of this run: other corpus"):
        query_lines(out, "bm25", data="mini")
    (out / "runs" / f"{file_name(BM25)}.run").unlink()
    with pytest.raises(DataError, match="no such run file"):
        lines(out, "e5-small/vector")


def test_a_reranked_cell_is_told_from_its_hybrid(document: ResultDocument) -> None:
    plain = find_cell(document, "e5-small/hybrid")
    key = replace(plain.key, pipeline="hybrid+rerank", reranker="fine")
    document.cells.append(replace(plain, key=key))
    assert find_cell(document, "e5-small/hybrid") is plain
    assert find_cell(document, "fine").key == key


def test_a_metric_may_be_named_as_it_is_printed(out: Path) -> None:
    assert lines(out, "bm25", metric="nDCG@10") == lines(out, "bm25", metric="ndcg@10")

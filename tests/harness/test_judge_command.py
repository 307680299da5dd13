from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.judge_command import judge_lines
from rag_core.errors import InvalidArgumentError, UnknownNameError

from .test_cli import bench

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
GENERATED = SHARED / "trec_eval_reference" / "generated"
NAMES = {
    "ndcg@10": "ndcg_cut_10", "ndcg@5": "ndcg_cut_5", "ndcg@100": "ndcg_cut_100", "map": "map",
    "mrr": "recip_rank", "precision@5": "P_5", "precision@10": "P_10", "recall@5": "recall_5",
    "recall@10": "recall_10", "recall@100": "recall_100",
    "success@1": "success_1", "success@10": "success_10",
}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    (tmp_path / "q.qrels").write_text("1 0 a 2\n1 0 b 1\n2 0 c 1\n3 0 d 0\n")
    (tmp_path / "one.run").write_text("1 Q0 b 1 2.5 mine\n1 Q0 a 2 2.5 mine\n")
    (tmp_path / "two.run").write_text("1 Q0 a 1 9 other\n2 Q0 c 1 9 other\n9 Q0 x 1 9 other\n")
    return tmp_path / "q.qrels", tmp_path / "one.run", tmp_path / "two.run"


@pytest.mark.skipif(not GENERATED.is_dir(), reason="needs the reference data beside the checkout")
@pytest.mark.parametrize(
    "name", ["adi-en.bm25", "cranfield-en.bm25", "cranfield-en.bm25.ties", "faquad-pt.bm25"]
)
def test_equal_to_the_reference_under_the_metrics_own_names(name):
    expected = json.loads((GENERATED / f"{name}.expected.json").read_text())
    qrels, run = GENERATED / f"{name.partition('.')[0]}.qrels", GENERATED / f"{name}.run"
    (line,) = judge_lines(qrels, [run], list(NAMES), "json", per_query=True)
    found = json.loads(line)
    for ours, theirs in NAMES.items():
        assert found[ours] == pytest.approx(expected["mean"][theirs], abs=1e-9), ours
        for query_id, values in expected["per_query"].items():
            assert found["per_query"][query_id][ours] == pytest.approx(values[theirs], abs=1e-9)


def test_json_has_an_object_a_line_for_each_run(files):
    lines = judge_lines(files[0], files[1:], ["ndcg_cut@10", "success@1"])
    one, two = map(json.loads, lines)
    assert (one["run"], one["file"]) == ("mine", str(files[1]))
    # equal scores: b stands before a; query 2 is missing and counts 0; query 3 has nothing to find
    assert one["success@1"] == 0.5
    assert 0 < one["ndcg@10"] < 0.5
    assert two["success@1"] == 1.0
    assert one["counts"]["n_evaluated"] == 2
    assert one["counts"]["n_missing"] == 2
    assert "per_query" not in one


def test_tsv_has_the_names_as_heads(files):
    lines = judge_lines(files[0], files[1:], ["success@1", "precision@2"], "tsv", per_query=True)
    assert [line.split("\t") for line in lines] == [
        ["run", "query", "success@1", "precision@2"],
        ["mine", "1", "1.0", "1.0"],
        ["mine", "2", "0.0", "0.0"],
        ["mine", "all", "0.5", "0.5"],
        ["other", "1", "1.0", "0.5"],
        ["other", "2", "1.0", "0.5"],
        ["other", "all", "1.0", "0.5"],
    ]


def test_judgements_of_three_columns_give_the_same(files):
    qrels, run, _ = files
    table = qrels.with_name("test.tsv")
    table.write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t1\n2\tc\t1\n")
    ours, theirs = (json.loads(judge_lines(file, [run], ["map"])[0]) for file in (table, qrels))
    assert ours["map"] == theirs["map"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"one.run": "1 Q0 a 1 2.5\n"}, r"one\.run:1: 5 columns"),
        ({"one.run": "\n1 Q0 a 1 nan t\n"}, r"one\.run:2: score 'nan'"),
        ({"one.run": "1 Q0 a 1 1 t\n1 Q0 a 2 1 t\n"}, r"one\.run:2: document 'a' of query '1' stands"),
        (
            {"one.run": "x Q0 a 1 1 t\n"},
            r"none of its queries is judged .*it has 'x', the judgements have '1'",
        ),
        ({"q.qrels": "1 0 a one\n"}, r"q\.qrels:1: grade 'one'"),
        ({"q.qrels": "1 0 a 0\n"}, "no grade of 1 or more"),
        ({"q.qrels": ""}, "no grade of 1 or more"),
    ],
)
def test_faults_name_file_and_line(files, change, says):
    for name, text in change.items():
        files[0].with_name(name).write_text(text)
    with pytest.raises(InvalidArgumentError, match=says):
        judge_lines(files[0], [files[1]])


def test_unknown_names_are_refused(files):
    with pytest.raises(InvalidArgumentError, match="--format is 'xml'; accepted: json, tsv"):
        judge_lines(files[0], [files[1]], format="xml")
    with pytest.raises(UnknownNameError, match="unknown metric 'ndgc@10'"):
        judge_lines(files[0], [files[1]], ["ndgc@10"])
    with pytest.raises(InvalidArgumentError, match="no run"):
        judge_lines(files[0], [])


def test_the_command_and_its_exit_codes(files):
    qrels, one, _ = map(str, files)
    done = bench("judge-run", "--qrels", qrels, "--run", one, "--metric", "map", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["map"]) == (0, 0.5)
    done = bench("judge-run", "--qrels", qrels, "--run", f"{one}.none")
    assert done.returncode == 2
    assert done.stderr.startswith(f"bench: {one}.none: cannot be read")
    assert bench("judge-run", "--qrels", qrels).returncode == 2

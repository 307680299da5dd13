"""`bench tune` as typed: from a result, from data and a provider, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.leg_lists import legs_file
from harness.results import load_result
from harness.thresholds import LEAST_QUERIES
from harness.tune_command import TuneOptions, tune_lines
from rag_core.errors import InvalidArgumentError, RagCoreError
from rag_core.service_config import read_config

WORDS = [
    "ferry",
    "bus",
    "tax",
    "dog",
    "bin",
    "school",
    "library",
    "garden",
    "market",
    "museum",
    "port",
    "tower",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty questions whose words only BM25 reads; the vectors of ``fake`` mean nothing."""
    folder = tmp_path_factory.mktemp("town")
    (folder / "qrels").mkdir()
    texts = [f"{a} {b} notice {i}" for i, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS if a < b)]
    documents = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i:02}", "text": f"where is {texts[i]}"} for i in range(40)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = [f"q{i:02}\td{i}\t1" for i in range(40)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def measured(data: Path) -> Path:
    """The run that `bench tune --data --provider` makes."""
    folder = data / "run"
    options = TuneOptions(data=str(data), provider="fake", folder=folder, out=data / "first.toml")
    lines = tune_lines(options, lambda *_, **__: None)
    assert lines[0].startswith("town")
    return folder


def test_words_that_only_bm25_reads_win_and_are_written(data: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "rag.toml"
    out.write_text('[embedding]\nprovider = "fake"\n')
    found = CliRunner().invoke(app, ["tune", str(measured), "--data", str(data), "--out", str(out)])
    assert found.exit_code == 0, found.output
    values = tomllib.loads(out.read_text())
    assert values["embedding"] == {"provider": "fake"}
    assert tomllib.loads((data / "first.toml").read_text())["search"] == values["search"]
    shown = found.output
    assert "40 judged queries, 40 different" in shown
    assert "on lists of" in shown
    assert "tuned, on queries left out of the choice" in shown
    assert "no part in the choice" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_metric_that_nothing_changes_leaves_the_default(data: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "rag.toml"
    lines = tune_lines(TuneOptions(measured, str(data), metric="recall@100", out=out), print)
    assert any(line.startswith("The default stays") for line in lines)
    assert lines[-1] == f"Nothing is written: {out} stays as it is."
    assert not out.exists()


def test_what_cannot_be_tuned_says_what_is_accepted(data: Path, measured: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: a result, or --data with --provider"):
        tune_lines(TuneOptions(provider="fake"), print)
    with pytest.raises(InvalidArgumentError, match="no measured hybrid cell of e5-small; accepted"):
        tune_lines(TuneOptions(measured, str(data), "e5-small"), print)
    with pytest.raises(InvalidArgumentError, match="not the data of this run"):
        tune_lines(TuneOptions(measured, "mini", out=tmp_path / "x.toml"), print)
    with pytest.raises(RagCoreError, match="unknown metric"):
        tune_lines(TuneOptions(measured, str(data), metric="beauty@3", out=tmp_path / "x.toml"), print)


def test_a_result_without_lists_names_the_command(data: Path, measured: Path, tmp_path: Path) -> None:
    document = load_result(measured)
    document.write(tmp_path / "result.json")
    with pytest.raises(RagCoreError, match="no lists of both legs were kept"):
        tune_lines(TuneOptions(tmp_path, str(data)), print)
    hybrid = next(cell.key for cell in document.cells if cell.key.pipeline == "hybrid")
    assert not legs_file(tmp_path / "runs", hybrid).exists()


def test_of_several_vector_legs_one_is_to_be_named(data: Path, measured: Path, tmp_path: Path) -> None:
    document = load_result(measured)
    for cell in list(document.cells):
        if cell.key.pipeline == "hybrid":
            document.put(replace(cell, key=replace(cell.key, provider="other")))
            document.put(replace(cell, key=replace(cell.key, provider="third")))
    document.write(tmp_path / "result.json")
    with pytest.raises(
        InvalidArgumentError, match="2 vector legs; accepted: --provider with one of other@cpu"
    ):
        tune_lines(TuneOptions(tmp_path, str(data)), print)


@pytest.mark.parametrize(("lowest", "written"), [(0.6, True), (0.1, False)])
def test_a_threshold_is_written_where_the_rerankers_scores_separate(
    data: Path, measured: Path, tmp_path: Path, lowest: float, written: bool
) -> None:
    """Of 40 answers all score 0.6 or more, or as little as queries without an answer do."""
    document = load_result(measured)
    hybrid = next(cell for cell in document.cells if cell.key.pipeline == "hybrid")
    scores = [lowest + (0.9 - lowest) * i / 39 for i in range(40)]
    kept = {
        "of": "rerank",
        "relevant": scores,
        "other": [0.1] * 40,
        "unanswerable": [0.1 + 0.8 * (not written) * i / 40 + i / 1000 for i in range(2 * LEAST_QUERIES)],
        "n_unjudged": 0,
    }
    key = replace(hybrid.key, pipeline="hybrid+rerank", reranker="noop")
    document.put(replace(hybrid, key=key, thresholds=kept))
    document.write(tmp_path / "result.json")
    (tmp_path / "runs").symlink_to(measured / "runs")
    out = tmp_path / "rag.toml"
    lines = tune_lines(TuneOptions(tmp_path, str(data), metric="recall@100", out=out), print)
    (said,) = [line for line in lines if "the scores of noop" in line]
    assert said.startswith("Threshold" if written else "No threshold")
    if written:
        assert 0.1 < tomllib.loads(out.read_text())["search"]["score_threshold"] < 0.6
    else:
        assert not out.exists()


def test_the_lists_of_the_first_store_serve_and_a_target_may_be_named(
    data: Path, measured: Path, tmp_path: Path
) -> None:
    document = load_result(measured)
    hybrid = next(cell for cell in document.cells if cell.key.pipeline == "hybrid")
    document.put(replace(hybrid, key=replace(hybrid.key, store="other")))
    document.write(tmp_path / "result.json")
    (tmp_path / "runs").symlink_to(measured / "runs")
    options = TuneOptions(tmp_path, str(data), "fake@cpu", metric="recall@100", out=tmp_path / "rag.toml")
    assert tune_lines(options, print)[0].startswith("town")
    with pytest.raises(InvalidArgumentError, match="no measured hybrid cell of fake@mlx"):
        tune_lines(replace(options, provider="fake@mlx"), print)


def test_an_index_understands_the_file(data: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "rag.toml"
    tune_lines(TuneOptions(measured, str(data), out=out), print)
    assert read_config(out, needs_provider=False).search == tomllib.loads(out.read_text())["search"]

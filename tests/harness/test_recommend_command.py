"""The whole way: run, recommend, rag.toml, an index that answers as it was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.config import RunSpec
from harness.datasets import load_dataset
from harness.ragtoml import settings_of
from harness.recommend_command import RecommendOptions, recommend_command
from harness.results import ResultDocument, file_name, load_result
from harness.runner import run
from rag_core import EmbeddingService, Index, get_embedder, get_reranker
from rag_core.app.settings import analyser_for, search_options
from rag_core.errors import InvalidArgumentError
from rag_core.registry import EMBEDDERS
from rag_core.service_config import ServiceConfig, read_config

PLUGIN = """
from providers.fake import load as load_fake
from rag_core.registry import Spec

def load(spec, **options):
    return load_fake(spec, **options)

def register(registries):
    registries.embedders.add(Spec("town-model", "town", "cpu", 64, "townmodel:load"))
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A local provider of another name than the stand-in's; the environment that has it."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "townmodel.py").write_text(PLUGIN)
    variables = {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "RAG_PLUGINS": "providers:register,townmodel:register",
    }
    patch = pytest.MonkeyPatch()
    for name, value in variables.items():
        patch.setenv(name, value)
    patch.syspath_prepend(str(folder))
    patch.setattr("rag_core.registry._loaded", set())
    patch.setattr(EMBEDDERS, "_specs", dict(EMBEDDERS._specs))
    yield variables
    patch.undo()
    sys.modules.pop("townmodel", None)


@pytest.fixture(scope="module")
def measured(plugin: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("measured") / "out"
    spec = RunSpec(
        data="mini",
        providers=("fake", "town-model"),
        rerankers=("fake-overlap",),
        pipelines=("vector", "bm25", "hybrid", "hybrid+rerank", "hybrid+rerank+rrf"),
        fusions=("rrf", "convex"),
        baseline_only=True,
        candidate_pool=20,
    )
    run(spec, out)
    return out


def keep_only(folder: Path, cell_id: str, to: Path) -> Path:
    document = load_result(folder)
    document.cells = [cell for cell in document.cells if cell.key.cell_id == cell_id]
    document.write(to / "result.json")
    return to


@pytest.mark.parametrize(
    ("cell_id", "source"),
    [
        ("town-model/cpu/fp32/flat/vector/-", "vector"),
        ("town-model/cpu/fp32/flat/hybrid/-", "hybrid"),
        ("town-model/cpu/fp32/flat/hybrid/-/convex", "hybrid"),
        ("bm25/cpu/-/-/bm25/-", "bm25"),
    ],
)
def test_the_index_of_the_file_answers_as_was_measured(
    measured: Path, tmp_path: Path, cell_id: str, source: str
) -> None:
    said: list[str] = []
    result = keep_only(measured, cell_id, tmp_path / "result")
    assert recommend_command(RecommendOptions(result), said.append) == 0
    path = result / "rag.toml"
    assert f"written: {path}" in said
    config = read_config(path)
    data = load_dataset("mini")
    runs: dict[str, list[str]] = {}
    (cell,) = load_result(result).cells
    for line in (measured / "runs" / f"{file_name(cell.key)}.run").read_text().splitlines():
        query, _, doc_id, *_ = line.split()
        runs.setdefault(query, []).append(doc_id)
    with EmbeddingService.from_toml(path) as service:
        index = Index.build(
            tmp_path / "index",
            data.documents,
            cast(Any, service),
            store=config.index["store"],
            analyser=analyser_for(config),
        )
        # a run is told the language of a query; an index reads it off the text
        told = [q for q in data.queries if index.bm25.analyser.language_of(q.text) == q.metadata["lang"]]
        assert len(told) >= 7
        for query in told:
            found = index.hybrid_search(query.text, rerank=False, **search_options(config))
            assert [hit.document.doc_id for hit in found] == runs.get(query.query_id, [])[:10], query
            assert {hit.source for hit in found} <= {source}
        index.close()


@pytest.mark.parametrize("pipeline", ["hybrid+rerank", "hybrid+rerank+rrf"])
def test_settings_with_a_reranker_answer_as_was_measured(
    measured: Path, tmp_path: Path, pipeline: str
) -> None:
    document = load_result(measured)
    cell = document.cell(f"town-model/cpu/fp32/flat/{pipeline}/fake-overlap")
    assert cell is not None
    assert cell.speed["rerank_load_s"] is not None
    tables = settings_of(cell, document)
    config = ServiceConfig(index=tables["index"], search=tables["search"])
    config.rerank = {name: value for name, value in tables["rerank"].items() if name == "mix"}
    runs: dict[str, list[str]] = {}
    for line in (measured / "runs" / f"{file_name(cell.key)}.run").read_text().splitlines():
        query, _, doc_id, *_ = line.split()
        runs.setdefault(query, []).append(doc_id)
    data = load_dataset("mini")
    index = Index.build(
        tmp_path / "index",
        data.documents,
        get_embedder(tables["embedding"]["provider"]),
        reranker=get_reranker(tables["rerank"]["provider"]),
        analyser=analyser_for(config),
    )
    told = [q for q in data.queries if index.bm25.analyser.language_of(q.text) == q.metadata["lang"]]
    for query in told:
        found = index.hybrid_search(query.text, **search_options(config))
        assert [hit.document.doc_id for hit in found] == runs.get(query.query_id, [])[:10], query
        assert {hit.source for hit in found} <= {"hybrid+rerank"}
    index.close()


def test_the_commands_take_the_file(measured: Path, tmp_path: Path, plugin: dict[str, str]) -> None:
    def typed(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        code = f"from {module}.cli import main; main()"
        env = {**os.environ, **plugin, "CI": "true", "TERM": "dumb"}
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip

    result = keep_only(measured, "town-model/cpu/fp32/flat/hybrid/-/convex", tmp_path / "result")
    done = typed("harness", "recommend", result, "--max-p95", "10s", "--out", "rag.toml")
    assert done.returncode == 0, done.stderr
    assert "Recommended: town-model · hybrid · convex" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "/" not in line)
    assert f"# Command: bench recommend {result} --max-p95 10s\n" in (tmp_path / "rag.toml").read_text()
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "ferry.txt").write_text("The ferry leaves the old port at nine.")
    assert typed("rag_core.app", "ingest", texts, "--index", "index").returncode == 0
    found = typed("rag_core.app", "search", "ferry", "--index", "index", "--json")
    assert found.returncode == 0, found.stderr
    assert [hit["source"] for hit in json.loads(found.stdout)["hits"]] == ["hybrid"]
    (tmp_path / "bm25.toml").write_text('[embedding]\nprovider = "town-model"\n[search]\npipeline = "bm25"\n')
    words = typed("rag_core.app", "search", "ferry", "--index", "index", "--json", "--config", "bm25.toml")
    assert [hit["source"] for hit in json.loads(words.stdout)["hits"]] == ["bm25"]
    refused = typed("harness", "recommend", result, "--max-p95", "1us", "--out", "rag.toml")
    assert refused.returncode == 1
    assert "--max-p95 1us binds" in refused.stdout
    assert "not changed: rag.toml" in refused.stdout
    wrong = typed("harness", "recommend", result, "--max-rss", "2")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("bench: --max-rss '2'; accepted: a number above 0 with B, kB")


def test_a_file_of_another_hand_is_refused_before_anything_is_done(
    document: ResultDocument, tmp_path: Path
) -> None:
    document.write(tmp_path / "result.json")
    (tmp_path / "rag.toml").write_text("# mine\n")
    said: list[str] = []
    with pytest.raises(InvalidArgumentError, match="another hand"):
        recommend_command(RecommendOptions(tmp_path), said.append)
    assert said == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rag.toml", "result.json"]
    assert recommend_command(RecommendOptions(tmp_path / "result.json", force=True), said.append) == 0
    assert (tmp_path / "rag.toml").read_text().startswith("# Written by: bench recommend")


def test_the_plots_mark_the_choice_or_are_left_out_with_one_note(
    document: ResultDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document.write(tmp_path / "result.json")
    said: list[str] = []
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert recommend_command(RecommendOptions(tmp_path), said.append) == 0
    assert len([line for line in said if line.startswith("plots skipped: ")]) == 1
    assert (tmp_path / "rag.toml").exists()


def test_the_command_in_the_header_is_the_one_typed() -> None:
    options = RecommendOptions(
        Path("a b"),
        {"p95": "500ms", "rss": ""},
        ("precision@5=0.8",),
        ("ndcg@10=0.02",),
        "ndcg@10",
        "cost",
        0.5,
    )
    assert options.command() == (
        "bench recommend 'a b' --max-p95 500ms --min precision@5=0.8 --margin ndcg@10=0.02 --metric ndcg@10 "
        "--prefer cost --usd-per-hour 0.5"
    )

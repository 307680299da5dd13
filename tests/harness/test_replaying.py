"""Runs against services: recorded, answered from the recordings, within a budget."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.command import RunOptions, run_command
from harness.config import RunSpec
from harness.render.markdown import render
from harness.replaying import REPLAYED, begin, recorded_run, unclocked, wire_environment
from harness.results import CellKey, CellResult, ResultDocument, StageTimes, result_schema
from harness.runner import Event, run
from rag_core.errors import InvalidArgumentError
from rag_core.testing.server import Fault, FaultServer, Request

pytest.importorskip("httpx", reason="needs pip install 'rag-core-bench[api]'")

KEY = "Zq7vKp2mXw9rTb4nYc6hLd8s"
N_DOCUMENTS = 30


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    with FaultServer(1024) as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> str:
    folder = tmp_path / "town"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "title": "", "text": f"notice {i} of the town"} for i in range(N_DOCUMENTS)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    queries = [{"_id": f"q{i}", "text": f"which notice is {i}"} for i in range(4)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    rows = "".join(f"q{i}\td{i}\t1\n" for i in range(4))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return str(folder)


def spec_of(server: FaultServer, data: str, **settings: object) -> RunSpec:
    spec = RunSpec(
        data=data,
        providers=(f"cohere?base_url={server.url('cohere')}",),
        rerankers=(f"voyage?base_url={server.url('voyage')}",),
        metrics=("ndcg@10", "recall@5"),
        warmup=1,
        min_samples=1,
        candidate_pool=10,
    )
    return replace(spec, **settings)


def quality(document: ResultDocument) -> dict[str, object]:
    return {
        cell.key.pipeline: (cell.status, {m: found.per_query for m, found in cell.metrics.items()})
        for cell in document.cells
    }


def test_a_replay_gives_the_same_figures_without_network_and_keys(
    server: FaultServer, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "kept")
    monkeypatch.delenv("RAG_REPLAY", raising=False)
    spec = spec_of(server, data)
    recorded = run(replace(spec, record=kept), tmp_path / "first")
    assert {cell.status for cell in recorded.cells} == {"ok"}, [cell.reason for cell in recorded.cells]
    n_requests = len(server.requests)
    server.choose = lambda request: Fault(500, "nobody may ask")
    for name in ("COHERE_API_KEY", "VOYAGE_API_KEY"):
        monkeypatch.delenv(name)
    replayed = run(replace(spec, replay=kept), tmp_path / "second")
    assert quality(replayed) == quality(recorded)
    assert len(server.requests) == n_requests
    assert replayed.spec_digest == recorded.spec_digest
    assert (recorded.spec["record"], replayed.spec["replay"]) == (kept, kept)

    by_pipeline = {cell.key.pipeline: cell for cell in replayed.cells}
    for pipeline in ("vector", "hybrid", "hybrid+rerank"):
        cell = by_pipeline[pipeline]
        stages = ["embed", "rerank"] if "rerank" in pipeline else ["embed"]
        assert cell.settings[REPLAYED] == stages
        assert not set(stages) & set(cell.stages)
        assert cell.total_s == []
        assert all(cell.speed[name] is None for name in ("p50_s", "p95_s", "docs_per_s", "embed_s"))
    assert by_pipeline["bm25"].speed["p50_s"] is not None
    used = by_pipeline["hybrid+rerank"].cost
    assert used is not None
    assert used["embed"]["usd"] == used["rerank"]["usd"] == 0
    assert used["embed"]["document_units"] > 0
    assert not replayed.notes
    report = render(replayed)
    assert "latency (embed and rerank answered from recordings)" in report
    assert "## Cost" in report
    for document in (recorded, replayed):
        jsonschema.validate(document.as_dict(), result_schema())

    for file in [*Path(kept).rglob("*"), *(tmp_path / "first").rglob("*")]:
        if file.is_file():
            text = file.read_bytes().decode("utf-8", "replace")
            assert not [i for i in range(len(KEY) - 7) if KEY[i : i + 8] in text], file
            if file.is_relative_to(kept):
                json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    server.choose = lambda request: None
    again = run(replace(spec, record=kept), tmp_path / "first")
    assert again.notes == ["kept cells were not measured again, so they are not recorded; --fresh does"]
    timed = run(spec, tmp_path / "second")
    assert len(server.requests) > n_requests
    assert not any(
        cell.resumed for cell in timed.cells if REPLAYED in by_pipeline[cell.key.pipeline].settings
    )


def test_what_was_recorded_is_replayed_without_naming_it(
    server: FaultServer, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "kept")
    spec = spec_of(server, data, record=kept)
    run(spec, tmp_path / "first")
    monkeypatch.delenv("COHERE_API_KEY")
    monkeypatch.delenv("VOYAGE_API_KEY")
    options = RunOptions(
        providers=(), rerankers=(), stores=("flat",), pipelines=(), metrics=("ndcg@10", "recall@5"), data="",
        out=tmp_path / "second", fresh=False, baseline=True, lexical="bm25", analyser="language", k=100,
        pool=10, rrf_k=60.0, weights="", scope="", warmup=1, repeats=1, threads=0, seed=0, replay=kept,
    )  # fmt: skip
    found = options.spec()
    assert found == replace(spec, record="", replay=kept)
    lines: list[str] = []
    status = run_command(options, lambda *words, **_: lines.append(" ".join(map(str, words))))
    assert status == 0, "\n".join(lines)
    assert any("ok" in line and "hybrid+rerank" in line for line in lines)


def test_a_request_that_was_not_recorded_fails_its_cells(
    server: FaultServer, data: str, tmp_path: Path
) -> None:
    kept = str(tmp_path / "kept")
    spec = replace(spec_of(server, data), pipelines=("vector",), rerankers=())
    run(replace(spec, record=kept), tmp_path / "first")
    other = replace(spec, providers=(spec.providers[0] + "&batch=7",), replay=kept)
    [cell] = run(other, tmp_path / "second").cells
    assert cell.status == "failed"
    assert cell.reason is not None
    assert "POST /cohere/v2/embed of embed-multilingual-v3.0 with 7 texts" in cell.reason
    assert f"bench run --record {kept}" in cell.reason


def test_a_folder_without_recordings_is_refused_before_anything_is_written(
    server: FaultServer, data: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match="holds no recordings"):
        run(spec_of(server, data, replay=str(tmp_path / "nothing")), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidArgumentError, match="record and replay exclude each other"):
        spec_of(server, data, replay="a", record="b")


def test_the_budget_ends_a_run_before_it_is_passed(server: FaultServer, data: str, tmp_path: Path) -> None:
    reranker = f"cohere?base_url={server.url('cohere')}"  # paid by the search, and dearer
    spec = replace(spec_of(server, data), pipelines=("vector", "hybrid+rerank"), rerankers=(reranker,))
    whole = run(spec, tmp_path / "whole")
    cost = whole.cells[-1].cost
    assert cost is not None
    embed_usd, rerank_usd = cost["embed"]["usd"], cost["rerank"]["usd"]
    assert embed_usd > 0
    assert rerank_usd > 0
    assert whole.notes == [f"spent {embed_usd + rerank_usd:.4g} USD at list prices"]

    server.requests.clear()
    nothing = run(replace(spec, max_usd=1e-9), tmp_path / "nothing")
    assert {cell.status for cell in nothing.cells} == {"failed"}
    assert all("the budget is 1e-09 USD" in (cell.reason or "") for cell in nothing.cells)
    assert server.requests == [], "something was sent although the estimate passes the budget"

    limit = embed_usd * 4  # estimates are high: for the embedder enough, not for the reranker as well
    half = run(replace(spec, max_usd=limit), tmp_path / "half")
    status = {cell.key.pipeline: cell.status for cell in half.cells}
    assert status == {"vector": "ok", "hybrid+rerank": "failed"}
    assert not [request for request in server.requests if "rerank" in request.path]


def test_the_budget_ends_a_run_whose_estimate_was_too_low(
    server: FaultServer, data: str, tmp_path: Path
) -> None:
    """A service that counts more tokens than expected, call after call."""
    spec = replace(spec_of(server, data), pipelines=("vector",), rerankers=(), warmup=0)
    honest = server.routes["/cohere/v2/embed"]

    def dear(request: Request) -> object:
        answer = honest(request)

        def write(rows: list) -> object:
            written = answer.write(rows)
            written["meta"]["billed_units"]["input_tokens"] = 1_000_000
            return written

        return answer._replace(write=write)

    server.routes["/cohere/v2/embed"] = dear  # type: ignore[assignment]
    [cell] = run(replace(spec, max_usd=0.15), tmp_path / "out").cells
    assert cell.status == "failed"
    assert "the budget is 0.15 USD, 0.2 USD of it are spent" in (cell.reason or "")
    assert len(server.requests) == 2  # each of 0.1 USD: the first call, and the documents


def test_an_unknown_price_is_no_budget(server: FaultServer, data: str, tmp_path: Path) -> None:
    provider = f"cohere:embed-unknown?base_url={server.url('cohere').replace('127.0.0.1', 'localhost.test')}"
    spec = replace(
        spec_of(server, data), providers=(f"{provider}&dim=8",), pipelines=("vector",), rerankers=()
    )
    [cell] = run(replace(spec, max_usd=5.0), tmp_path / "out").cells
    assert cell.status == "failed"
    assert "no price of cohere:embed-unknown is known; leave --max-usd out" in (cell.reason or "")


def test_an_estimate_is_shown_before_many_documents_are_sent(
    server: FaultServer, data: str, tmp_path: Path
) -> None:
    documents = [{"_id": f"d{i}", "title": "", "text": f"notice {i} of the town"} for i in range(1_001)]
    Path(data, "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    spec = replace(spec_of(server, data), pipelines=("vector",), rerankers=())
    shown: list[str] = []
    was_shown, waited = threading.Event(), []
    route = server.routes["/cohere/v2/embed"]

    def answer(*request: Any) -> Any:
        # nothing is answered before the estimate has been seen: one that came later would never come
        waited.append(was_shown.wait(20))
        return route(*request)

    server.routes["/cohere/v2/embed"] = answer

    def note(event: Event) -> None:
        if event.kind == "note":
            shown.append(event.stage)
            was_shown.set()

    run(spec, tmp_path / "out", on_event=note)
    assert all(waited)
    [line] = shown
    assert line.startswith("cohere: 1,001 documents, ")
    assert " tokens, about 0.00" in line
    assert line.endswith("USD, list price of 2026-11-30")


def test_the_variables_of_a_process(tmp_path: Path) -> None:
    spec = RunSpec("mini", ("fake",))
    assert wire_environment(spec) == {}
    kept = str(Path("kept").resolve())
    assert wire_environment(replace(spec, record="kept")) == {"RAG_RECORD": kept, "RAG_REPLAY": ""}
    made = wire_environment(replace(spec, replay=str(tmp_path)))
    assert made == {"RAG_RECORD": "", "RAG_REPLAY": str(tmp_path)}


def test_a_folder_tells_what_was_recorded(tmp_path: Path) -> None:
    begin(RunSpec("mini", ("fake", "cohere"), rerankers=("jina",), record=str(tmp_path)))
    assert recorded_run(str(tmp_path)) == RunSpec("mini", ("fake", "cohere"), rerankers=("jina",))
    for text in ("{", "[]", '{"data": "mini", "colour": 1}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(InvalidArgumentError, match="does not tell what was recorded"):
            recorded_run(str(tmp_path))


def test_only_the_replayed_stages_lose_their_times() -> None:
    stages = {name: StageTimes([0.1, math.nan], [0.2]) for name in ("embed", "vector", "rerank")}
    speed: dict[str, float | int | None] = {"load_s": 1.0, "p50_s": 2.0, "import_s": 3.0, "peak_rss_bytes": 4}
    rerank = {
        "added_s": 1.0,
        "share_of_p95": 0.5,
        "points_per_ms": 1.0,
        "depths": [{"depth": 3, "median_s": 1.0, "n_timed": 2}],
    }
    cell = CellResult(CellKey(*"abcdefg"), "ok", speed=speed, stages=stages, total_s=[1.0], rerank=rerank)
    assert unclocked(cell, embed=False, rerank=False) is cell
    embedder = unclocked(cell, embed=True, rerank=False)
    assert sorted(embedder.stages) == ["rerank", "vector"]
    assert embedder.speed == {"load_s": None, "p50_s": None, "import_s": 3.0, "peak_rss_bytes": 4}
    assert embedder.rerank == {**rerank, "share_of_p95": None}
    reranker = unclocked(cell, embed=False, rerank=True)
    assert reranker.speed == {**speed, "p50_s": None}
    assert reranker.settings == {REPLAYED: ["rerank"]}
    assert reranker.rerank is not None
    assert reranker.rerank["depths"] == [{"depth": 3, "median_s": None, "n_timed": 0}]
    assert cell.total_s == [1.0]


def test_the_shipped_recording_replays_without_a_server(tmp_path: Path) -> None:
    """The nightly job does this: answers of a real server with real weights, recorded on the small set."""
    folder = Path(__file__).resolve().parents[2] / "reports" / "recordings"
    document = run(replace(recorded_run(str(folder)), replay=str(folder)), tmp_path / "out")
    cells = {(cell.key.target, cell.key.pipeline): cell for cell in document.cells}
    assert all(cell.status == "ok" for cell in cells.values())
    vector = cells["api", "vector"]
    assert vector.speed["p50_s"] is None
    mean, baseline = vector.mean("ndcg@10"), cells["cpu", "hybrid"].mean("ndcg@10")
    assert mean is not None
    assert baseline is not None
    assert mean > baseline


def test_a_services_role_is_compared_and_replayed(
    server: FaultServer, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the comparison sends is recorded like the rest; what was not recorded is a reason."""
    monkeypatch.delenv("RAG_REPLAY", raising=False)
    kept = str(tmp_path / "kept")
    plain = replace(spec_of(server, data, rerankers=()), pipelines=("vector",))
    spec = replace(plain, audit_prefixes=True)
    [cell] = run(replace(spec, record=kept), tmp_path / "first").cells
    assert cell.audit is not None
    assert cell.audit["estimated"]
    assert cell.audit["role_cosine"] is None
    compared = cell.audit["prefixes"]
    assert (compared["change"], compared["reason"]) == ("queries sent as documents", "")
    assert compared["with"] == cell.metrics["ndcg@10"].per_query
    sent = [request.body["input_type"] for request in server.requests if request.texts[0].startswith("which")]
    assert sent.count("search_document") == 1  # all queries in one call
    [again] = run(replace(spec, replay=kept), tmp_path / "second").cells
    assert again.audit is not None
    assert again.audit["prefixes"] == compared

    run(replace(plain, record=str(tmp_path / "less")), tmp_path / "third")
    [lacking] = run(replace(spec, replay=str(tmp_path / "less")), tmp_path / "fourth").cells
    assert lacking.status == "ok"
    assert lacking.audit is not None
    assert "recorded" in lacking.audit["prefixes"]["reason"]

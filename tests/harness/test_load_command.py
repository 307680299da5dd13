"""`bench load`: into the result, its report and the limits of a recommendation."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from harness.config import RunSpec
from harness.limits import limits_of
from harness.load_command import LoadOptions, load_command
from harness.recommend import recommend
from harness.render.load import load, load_lines
from harness.results import ResultDocument, load_result, result_schema
from harness.rows import make_rows
from harness.runner import run
from rag_core.errors import InvalidArgumentError, UnknownNameError


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("load") / "out"
    run(
        RunSpec(
            data="mini",
            providers=("fake?lazy_s=0.02",),
            rerankers=("fake-overlap",),
            pipelines=("vector", "bm25", "hybrid+rerank"),
        ),
        out,
    )
    return out


def test_what_is_measured_stands_in_the_result_and_its_report(measured: Path) -> None:
    said: list[str] = []
    systems = ("fake?lazy_s=0.02/vector", "bm25", "hybrid+rerank")
    options = LoadOptions(measured, systems, "1,3", workers=1, seconds=0.5)
    assert load_command(options, said.append) == 0
    document = load_result(measured)
    jsonschema.validate(json.loads((measured / "result.json").read_text()), result_schema())
    loads = {cell.key.pipeline: cell.load for cell in document.cells}
    for found in loads.values():
        assert found is not None
        assert [level["clients"] for level in found["levels"]] == [1, 3]
        assert found["workers"] == 1
        assert all(level["n_failed"] == 0 for level in found["levels"])
    vector = loads["vector"]
    assert vector is not None
    one, three = vector["levels"]
    # O36: an array that needs 20 ms to reach the host is charged 20 ms, whoever waits for it
    assert one["service_p50_s"] >= 0.02
    assert three["p50_s"] >= 0.055
    assert three["waited_p50_s"] >= 0.035
    assert one["queries_per_s"] <= 50
    report = (measured / "report.md").read_text()
    assert "## Many clients at once" in report
    assert any("of whose median latency" in line.replace("\n", " ") for line in said)


def test_without_a_name_the_recommended_one_is_asked(measured: Path) -> None:
    said: list[str] = []
    assert load_command(LoadOptions(measured, concurrency="2", workers=1, seconds=0.1), said.append) == 0
    assert said[0].startswith("bm25/cpu/-/-/bm25/-: 2 clients, 1 workers")


def test_what_fails_is_told_with_status_3(measured: Path, tmp_path: Path) -> None:
    document = load_result(measured)
    cell = next(cell for cell in document.cells if cell.key.pipeline == "vector")
    from dataclasses import replace

    document.cells = [
        replace(cell, key=replace(cell.key, provider="fake?fail_role=query"), load=None),
        replace(cell, key=replace(cell.key, provider="no-such-model"), load=None),
    ]
    document.write(tmp_path / "result.json")
    said: list[str] = []
    options = LoadOptions(tmp_path, ("fake?fail_role=query/vector", "no-such-model"), "1", 1, 0.2)
    assert load_command(options, said.append) == 3
    text = "\n".join(said).replace("\n", " ")
    assert "failed: RagCoreError: all requests failed; the first: the vector leg failed" in text
    assert "no-such-model" in text
    assert all(cell.load is None for cell in load_result(tmp_path).cells)


def test_what_is_refused(document: ResultDocument, measured: Path, tmp_path: Path) -> None:
    quiet = list[str]().append
    with pytest.raises(InvalidArgumentError, match="--seconds 0; accepted"):
        load_command(LoadOptions(measured, seconds=0), quiet)
    with pytest.raises(InvalidArgumentError, match="--concurrency 'x'"):
        load_command(LoadOptions(measured, concurrency="x"), quiet)
    with pytest.raises(UnknownNameError, match="no measured system"):
        load_command(LoadOptions(measured, ("nothing",)), quiet)
    with pytest.raises(InvalidArgumentError, match="is not the data of this run"):
        load_command(LoadOptions(measured, ("bm25",), data="civic"), quiet)
    from dataclasses import replace

    cell = document.cells[2]
    document.cells = [replace(cell, key=replace(cell.key, target="api"))]
    document.write(tmp_path / "result.json")
    with pytest.raises(InvalidArgumentError, match="asks a service"):
        load_command(LoadOptions(tmp_path), quiet)
    document.cells = []
    document.write(tmp_path / "result.json")
    with pytest.raises(InvalidArgumentError, match="nothing to recommend; name a system"):
        load_command(LoadOptions(tmp_path), quiet)


def loaded(document: ResultDocument, pipeline: str, p95_s: float | None, rate: float) -> None:
    cell = next(
        cell for cell in document.cells if (cell.key.provider, cell.key.pipeline) == ("e5-small", pipeline)
    )
    level = dict.fromkeys(
        ("wall_s", "p50_s", "p99_s", "waited_p50_s", "waited_p95_s", "service_p50_s", "service_p95_s"), 0.1
    )
    counts = {"clients": 16, "n": 100, "n_failed": 0}
    cell.load = {
        "workers": 2,
        "peak_rss_bytes": 1,
        "levels": [{**level, **counts, "p95_s": p95_s, "queries_per_s": rate}],
    }


def test_a_recommendation_may_ask_for_many_clients(document: ResultDocument) -> None:
    limits = limits_of({"p95": "500ms@16"})
    found = recommend(document, limits=limits, margins=["ndcg@10=0.9"])
    assert found.chosen is None  # not measured: keeps no limit
    assert {value for one in found.candidates for _, value in one.broken} == {None}
    loaded(document, "vector", 0.4, 50.0)
    loaded(document, "hybrid", 0.6, 60.0)
    found = recommend(document, limits=limits, margins=["ndcg@10=0.9"])
    assert [one.row.label for one in found.ranked] == ["e5-small · vector"]
    wide = recommend(
        document, limits=limits_of({"p95": "1s@16"}), margins=["ndcg@10=0.9"], prefer="throughput"
    )
    assert [one.row.label for one in wide.ranked] == ["e5-small · hybrid", "e5-small · vector"]
    assert wide.figure == "queries/s with 16 clients"
    for bad in ("500ms@", "500ms@0", "500ms@x"):
        with pytest.raises(InvalidArgumentError, match="--max-p95 500ms@16"):
            limits_of({"p95": bad})
    with pytest.raises(InvalidArgumentError, match="behind a latency alone"):
        limits_of({"rss": "2GB@4"})


def test_the_section_and_its_sentence(document: ResultDocument) -> None:
    assert load(make_rows(document)) == ""
    loaded(document, "vector", 0.4, 50.0)
    rows = make_rows(document)
    assert load_lines(rows) == ["e5-small · vector: 50.0 queries/s and p95 400 ms with 16 clients."]
    section = load(rows)
    assert "| e5-small · vector | 16 | 2 | 50.0 |" in section.replace("  ", " ")
    assert "waiting ends when a worker takes the query" in section


def test_the_plot_shows_waiting_beside_latency(document: ResultDocument) -> None:
    pytest.importorskip("matplotlib")
    from harness.render.load_plot import draw_load
    from harness.render.plots import styled

    with styled():
        assert draw_load(document, make_rows(document)) is None
        loaded(document, "vector", 0.4, 50.0)
        figure = draw_load(document, make_rows(document))
    latency, throughput = figure.axes
    assert [list(line.get_ydata()) for line in latency.lines] == [[400.0], [100.0]]
    assert throughput.get_xlabel() == "clients at once (logarithmic)"

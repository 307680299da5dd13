"""`bench run --engine ray` on a real cluster of two nodes: the figures of a run on one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunSpec
from harness.datasets import load_dataset
from harness.jobs import Event
from harness.results import CellKey, ResultDocument, load_result
from harness.runner import plan, run
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError

from ..ray_cluster import two_nodes

pytestmark = pytest.mark.stores_external
SPEC = RunSpec("mini", ("fake", "fake?call_s=0.03"), baseline_only=True, min_samples=5, threads=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that measures nothing, and a node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        root = str(Path(__file__).resolve().parents[2])
        patch.setenv(
            "PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        )
        with two_nodes(0) as found:
            yield found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResultDocument, Path]:
    out = tmp_path_factory.mktemp("here")
    return run(SPEC, out), out


def figures(document: ResultDocument) -> dict[str, Any]:
    return {
        cell.key.cell_id: (cell.status, {name: found.per_query for name, found in cell.metrics.items()})
        for cell in document.cells
    }


def test_the_same_figures_and_files(cluster: Any, here: tuple[ResultDocument, Path], tmp_path: Path) -> None:
    from harness.ray_jobs import RayJobs

    events: list[Event] = []
    with RayJobs(cluster.address) as engine:
        document = run(SPEC, tmp_path / "out", on_event=events.append, engine=engine)
    local, folder = here
    assert figures(document) == figures(local)
    assert all(cell.status == "ok" for cell in document.cells)
    assert document.status == "complete"
    assert document.spec_digest == local.spec_digest
    runs = sorted(path.name for path in (folder / "runs").iterdir())
    assert sorted(path.name for path in (tmp_path / "out" / "runs").iterdir()) == runs
    for name in runs:
        assert (tmp_path / "out" / "runs" / name).read_bytes() == (folder / "runs" / name).read_bytes()
    assert {event.kind for event in events} >= {"start", "progress", "cell"}
    assert all(cell.environment is None for cell in document.cells)  # the nodes are this machine
    assert load_result(tmp_path / "out").as_dict() == document.as_dict()
    assert not (tmp_path / "out" / ".work").exists()


def test_o38_a_node_that_dies_hands_its_cells_to_another(
    cluster: Any, here: tuple[ResultDocument, Path], tmp_path: Path
) -> None:
    from harness.ray_jobs import RayJobs

    starts: list[str] = []
    killed: list[Any] = []

    def on_event(event: Event) -> None:
        if event.kind == "start":
            starts.append(event.label)
        elif event.kind == "progress" and not killed:
            killed.append(cluster.node)
            cluster.remove_node(cluster.node, allow_graceful=False)
            cluster.node = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)

    with RayJobs(cluster.address) as engine:
        document = run(SPEC, tmp_path / "out", on_event=on_event, engine=engine)
    assert len(starts) > len(set(starts))
    assert figures(document) == figures(here[0])


def test_a_cell_that_no_node_is_left_for_says_so_and_a_rerun_measures_it(
    cluster: Any, here: tuple[ResultDocument, Path], tmp_path: Path
) -> None:
    from harness.ray_jobs import RayJobs

    killed: list[Any] = []

    def on_event(event: Event) -> None:
        if event.kind == "cell" and not killed:
            killed.append(cluster.node)
            cluster.remove_node(cluster.node, allow_graceful=False)

    with RayJobs(cluster.address, wait_s=2) as engine:
        document = run(SPEC, tmp_path / "out", on_event=on_event, engine=engine)
    kept = [cell for cell in document.cells if cell.status == "ok"]
    reasons = [cell.reason or "" for cell in document.cells if cell.status == "failed"]
    assert kept
    assert len(reasons) == len(document.cells) - len(kept) > 0
    assert all("in 2 s no node had what the work asks for, CPU 1" in reason for reason in reasons)
    assert all("1 alive: one with nothing; add a node" in reason for reason in reasons)
    cluster.node = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    events: list[Event] = []
    with RayJobs(cluster.address) as engine:
        again = run(SPEC, tmp_path / "out", on_event=events.append, engine=engine)
    assert figures(again) == figures(here[0])
    assert {event.label for event in events if event.kind == "kept"} >= {cell.key.cell_id for cell in kept}


def test_a_cell_that_fails_on_its_node_says_why(cluster: Any, tmp_path: Path) -> None:
    from harness.ray_jobs import RayJobs

    spec = RunSpec("mini", ("fake?fail=e",), min_samples=5, threads=1)
    with RayJobs(cluster.address) as engine:
        document = run(spec, tmp_path / "out", engine=engine)
    failed = [cell for cell in document.cells if cell.status == "failed"]
    assert {cell.key.pipeline for cell in failed} == {"vector", "hybrid"}
    assert all("holds 'e'" in (cell.reason or "") for cell in failed)


def test_a_target_that_no_node_has_is_skipped(cluster: Any) -> None:
    from harness.ray_jobs import RayJobs

    with RayJobs(cluster.address) as engine:
        jobs, skipped = plan(RunSpec("mini", ("fake", "st@nvidia"), baseline_only=True), engine)
        assert [job.label for job in jobs] == ["bm25", "fake@cpu"]
        assert skipped
        assert all("nodes offers GPU; ray start --num-gpus=1" in (cell.reason or "") for cell in skipped)
        with pytest.raises(ProviderUnavailableError):
            engine.place(["mlx", "nvidia"])
        assert engine.place(["mlx", "api"]) == "api"


def test_other_data_on_a_node_is_refused(cluster: Any, tmp_path: Path) -> None:
    from harness.jobs import Running
    from harness.ray_jobs import RayJobs

    document = ResultDocument(
        "mini", "running", "", SPEC.as_dict(), SPEC.digest,
        {"hash": {**load_dataset("mini").hashes, "corpus": "0" * 16}}, {},
    )  # fmt: skip
    jobs, _ = plan(SPEC)
    running = Running(SPEC, tmp_path, document, lambda event: None)
    wanted = {key.cell_id for job in jobs for key in job.cells}
    with RayJobs(cluster.address) as engine:
        engine.run(jobs, running)
    assert {cell.key.cell_id for cell in document.cells} == wanted
    assert all("other data here" in (cell.reason or "") for cell in document.cells)


def test_jobs_of_one_service_run_one_after_the_other() -> None:
    from harness.jobs import Job
    from harness.ray_jobs import _lanes

    key = CellKey("mini", "p", "api", "-", "flat", "vector", "-")
    specs = ["openai:small@api", "e5-small@cpu", "openai:large@api", "cohere@api", "minilm@cpu"]
    jobs = [Job("provider", spec, spec, [key]) for spec in specs] + [Job("provider", "x", "x@cpu", [])]
    assert [[job.label for job in lane] for lane in _lanes(jobs).values()] == [
        ["openai:small@api", "openai:large@api"], ["e5-small@cpu"], ["cohere@api"], ["minilm@cpu"],
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["max_usd", "record", "replay"])
def test_what_no_cluster_keeps(name: str) -> None:
    from dataclasses import replace

    from harness.ray_jobs import check_spec

    spec = replace(SPEC, **{name: 1.0 if name == "max_usd" else "folder"})
    with pytest.raises(InvalidArgumentError, match="--engine ray has many"):
        check_spec(spec)
    check_spec(SPEC)

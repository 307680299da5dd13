"""No node is left, or none ever had the device: told after a while, and a rerun goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_core import get_embedder
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.index import Index
from rag_core.scale import RayEngine
from rag_core.scale.ray_wait import WAIT, Patience, patiently, wait_s


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"memory": 1e9, "node:10.0.0.1": 1.0, **resources}}


def test_only_a_node_that_has_all_of_it_counts() -> None:
    now, nodes = 0.0, [node(CPU=1.0), node(GPU=1.0), node(alive=False, CPU=9.0, GPU=9.0)]
    patience = Patience(lambda: nodes, {"num_cpus": 2, "num_gpus": 1}, 10, lambda: now)
    patience.check()
    now = 9.0
    patience.check()
    nodes.append(node(CPU=4.0, GPU=1.0))
    now = 11.0
    patience.check()  # one is there, busy or not
    nodes.pop()
    patience.check()
    now = 20.0
    patience.check()
    now = 21.0
    with pytest.raises(ProviderUnavailableError) as caught:
        patience.check()
    assert str(caught.value) == (
        "engine 'ray' is not available: in 10 s no node had what the work asks for, CPU 2, GPU 1; the "
        "cluster has 2 alive: one with CPU 1; one with GPU 1; add a node (ray start --num-gpus=1 …) and run "
        "the same command again: what was finished is kept (RAG_RAY_WAIT_S sets how long to wait)"
    )


def test_a_cluster_without_nodes_and_a_resource_of_ones_own() -> None:
    patience = Patience(lambda: [node(alive=False)], {"resources": {"mlx": 1}, "num_cpus": 1}, 0)
    with pytest.raises(ProviderUnavailableError, match=r"CPU 1, mlx 1; the cluster has no node that is al"):
        patience.check()
    with pytest.raises(
        ProviderUnavailableError, match=r"has 1 alive: one with nothing; add a node .ray start"
    ):
        Patience(lambda: [node()], {"num_cpus": 1}, 0).check()


def test_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT, raising=False)
    assert (wait_s(), wait_s(7)) == (300, 7)
    monkeypatch.setenv(WAIT, "12.5")
    assert (wait_s(), RayEngine().wait_s, RayEngine(wait_s=0).wait_s) == (12.5, 12.5, 0)
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv(WAIT, wrong)
        with pytest.raises(InvalidArgumentError, match=f"RAG_RAY_WAIT_S is {wrong!r}; accepted: seconds"):
            wait_s()
    with pytest.raises(InvalidArgumentError, match="RAG_RAY_WAIT_S is -2"):
        RayEngine(wait_s=-2)


def test_rows_come_through_and_errors_too() -> None:
    there = Patience(lambda: [node(CPU=1.0)], {"num_cpus": 1}, 0.2)
    stopped: list[int] = []
    assert list(patiently(range(5), there, lambda: stopped.append(1))) == [0, 1, 2, 3, 4]

    def breaking() -> Iterator[int]:
        yield 1
        time.sleep(0.3)  # longer than the wait: a node is there, so it is waited for
        raise KeyError("gone")

    rows = patiently(breaking(), there, lambda: stopped.append(2))
    assert next(rows) == 1
    with pytest.raises(KeyError, match="gone"):
        next(rows)
    assert stopped == []


def test_a_wait_without_nodes_ends_and_so_does_who_walks_away() -> None:
    end, stopped = threading.Event(), list[int]()

    def stuck() -> Iterator[int]:
        yield 1
        end.wait(10)

    rows = patiently(stuck(), Patience(list, {"num_cpus": 1}, 0.1), lambda: stopped.append(1))
    assert next(rows) == 1
    with pytest.raises(ProviderUnavailableError, match=r"in 0\.1 s no node"):
        next(rows)
    assert stopped == [1]
    left = patiently(stuck(), Patience(list, {"num_cpus": 1}, 60), lambda: stopped.append(2))
    assert next(left) == 1
    left.close()  # type: ignore[attr-defined]
    assert stopped == [1, 2]
    end.set()


@pytest.mark.stores_external
def test_all_workers_died(cluster_of_one: Any, diary: Any, corpus: Path, tmp_path: Path) -> None:
    """The head embeds nothing; its only worker dies in the middle, and a new one goes on."""
    quiet = Index.create(tmp_path / "quiet", get_embedder("diary"))
    quiet.ingest(corpus)
    diary.clear()
    diary.slow(on=True)
    path = tmp_path / "i"
    index = Index.create(path, get_embedder("diary"))

    def kill_node() -> None:
        while not list(path.glob("pending-*/*.parquet")):
            time.sleep(0.02)
        cluster_of_one.remove_node(cluster_of_one.node, allow_graceful=False)

    killer = threading.Thread(target=kill_node)
    killer.start()
    with pytest.raises(
        ProviderUnavailableError, match=r"in 2 s no node .*CPU 2; .*1 alive: one with nothing"
    ):
        index.ingest(corpus, engine=RayEngine("diary", shard_texts=64, wait_s=2))
    killer.join()
    finished = len(list(path.glob("pending-*/*.parquet")))
    assert finished >= 1
    with pytest.raises(ProviderUnavailableError, match=r"in 0\.1 s no node had .*CPU 1; .*one with nothing"):
        RayEngine(wait_s=0.1).elsewhere(lambda: None)
    diary.slow(on=False)
    cluster_of_one.node = cluster_of_one.add_node(num_cpus=2, object_store_memory=80 << 20)
    report = index.ingest(corpus, engine=RayEngine("diary", shard_texts=64, wait_s=30))
    assert report.embedded_texts <= 361 - 64 * finished + 63
    assert index.digest() == quiet.digest()

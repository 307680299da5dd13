"""A real cluster of two nodes: what it embeds is what one process embeds, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag_core import get_embedder
from rag_core.app import commands
from rag_core.app.settings import Asked, Engine
from rag_core.errors import (
    IdentityMismatchError,
    InvalidArgumentError,
    ProviderError,
    ProviderUnavailableError,
)
from rag_core.index import Index
from rag_core.pace import Bucket
from rag_core.scale import RayEngine
from rag_core.scale.ray_engine import connect, needed, workers_for
from rag_core.stores.lance_index import Upkeep
from rag_core.testing.server import Fault, FaultServer, Request

SHARD = 64
DRIVER = """
import sys
from rag_core import get_embedder
from rag_core.app import commands
from rag_core.app.settings import Asked, Engine
from rag_core.index import Index
from rag_core.pace import Bucket
from rag_core.scale import RayEngine
path, corpus, address = sys.argv[1:]
embedder = get_embedder("diary")
index = Index.open(path, embedder) if Index.is_index(path) else Index.create(path, embedder)
with RayEngine("diary", address=address, workers=2, shard_texts=64) as engine:
    print(index.ingest(corpus, engine=engine).embedded_texts)
"""


def engine(workers: int = 2) -> RayEngine:
    return RayEngine("diary", workers=workers, shard_texts=SHARD)


def quiet_digest(path: Path, corpus: Path) -> str:
    """Of a build by this process."""
    with_fake = Index.create(path, get_embedder("diary"))
    with_fake.ingest(corpus)
    return with_fake.digest()


@pytest.mark.stores_external
def test_two_workers_build_what_one_process_builds(
    cluster: Any, diary: Any, corpus: Path, tmp_path: Path
) -> None:
    wanted = quiet_digest(tmp_path / "quiet", corpus)
    diary.clear()
    diary.slow(on=True)  # else the first worker to be ready does everything
    index = Index.create(tmp_path / "i", get_embedder("diary"))
    told: list[tuple[str, int, int]] = []
    report = index.ingest(corpus, engine=engine(), progress=lambda *step: told.append(step))
    diary.slow(on=False)
    assert index.digest() == wanted
    texts = diary.texts()
    assert len(texts) == len(set(texts)) == report.embedded_texts == 361
    assert (report.added, report.reused_vectors, report.failed) == (401, 0, {})
    assert len(diary.processes()) == 2
    assert os.getpid() not in diary.processes()
    assert ("embed", 361, 361) in told
    assert not list((tmp_path / "i").glob("pending-*"))

    diary.clear()  # nothing new: no worker is asked
    assert index.ingest(corpus, engine=engine()).unchanged == 401
    assert diary.texts() == []


@pytest.mark.stores_external
def test_o34_a_worker_killed_in_the_middle(cluster: Any, diary: Any, corpus: Path, tmp_path: Path) -> None:
    """O34: its shard goes to another; nothing that was written is embedded twice."""
    wanted = quiet_digest(tmp_path / "quiet", corpus)
    diary.clear()
    diary.slow(on=True)
    index = Index.create(tmp_path / "i", get_embedder("diary"))
    killed: list[int] = []

    def kill_one() -> None:
        while not killed:
            killed.extend(diary.processes()[:1])
            time.sleep(0.02)
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    report = index.ingest(corpus, engine=engine())
    killer.join()
    diary.slow(on=False)
    assert index.digest() == wanted
    assert report.embedded_texts == 361
    twice = [text for text, times in Counter(diary.texts()).items() if times > 1]
    assert len(twice) <= SHARD  # the shard in its hands
    assert len(set(diary.processes()) - set(killed)) >= 1


@pytest.mark.stores_external
def test_a_node_killed_in_the_middle(cluster: Any, diary: Any, corpus: Path, tmp_path: Path) -> None:
    wanted = quiet_digest(tmp_path / "quiet", corpus)
    diary.clear()
    node = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    diary.slow(on=True)
    index = Index.create(tmp_path / "i", get_embedder("diary"))

    def kill_node() -> None:
        while len(diary.processes()) < 3:
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_node)
    killer.start()
    report = index.ingest(corpus, engine=engine(workers=3))
    killer.join()
    diary.slow(on=False)
    assert index.digest() == wanted
    assert report.embedded_texts == 361
    assert len(diary.texts()) - len(set(diary.texts())) <= SHARD


@pytest.mark.stores_external
def test_o38_the_driver_killed_in_the_middle(cluster: Any, diary: Any, corpus: Path, tmp_path: Path) -> None:
    """O34, O38: the same ingest goes on where it was; so could one without an engine."""
    wanted = quiet_digest(tmp_path / "quiet", corpus)
    diary.clear()
    diary.slow(on=True)
    path = tmp_path / "i"
    command = [sys.executable, "-c", DRIVER, str(path), str(corpus), cluster.address]
    first = subprocess.Popen(command)
    while not list(path.glob("pending-*/*.parquet")):
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.wait()
    time.sleep(0.5)  # for the cluster to end what the dead driver had begun
    finished = len(list(path.glob("pending-*/*.parquet")))
    asked = len(diary.texts())
    diary.slow(on=False)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Index.open(path).digest() == wanted
    texts = diary.texts()
    assert len(texts) - len(set(texts)) <= max(0, asked - finished * SHARD)
    assert int(done.stdout) <= 361 - SHARD


@pytest.mark.stores_external
def test_workers_of_a_service_share_one_rate_budget(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    """The service takes 660 requests a minute, 66 at once; each of two workers would send 60 of its 600."""
    pytest.importorskip("httpx")
    limit, lock, refused = Bucket(660, time.monotonic), threading.Lock(), list[Request]()

    def choose(request: Request) -> Fault | None:
        with lock:
            wait_s = limit.take(1)
            if wait_s:
                limit.give_back(1)
                refused.append(request)
        return Fault(status=429, headers={"retry-after": "1"}) if wait_s else None

    with FaultServer(64) as server:
        server.choose = choose
        spec = f"openai?base_url={server.url('openai')}&dimensions=64&rpm=600&batch=4&concurrency=8"
        index = Index.create(tmp_path / "i", get_embedder(spec))
        report = index.ingest(corpus, engine=RayEngine(spec, workers=2, shard_texts=SHARD))
        assert report.embedded_texts == 361
        assert len(server.requests) >= 91
        assert refused == []


@pytest.mark.stores_external
def test_a_node_builds_the_index_of_vectors(
    cluster: Any, diary: Any, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HNSW is built in memory, all vectors at once: not in the driver's."""
    monkeypatch.setattr(Upkeep, "__call__", lambda self: pytest.fail("built by the driver"))
    index = Index.create(tmp_path / "i", get_embedder("diary"), store="lancedb?index=hnsw_sq")
    index.ingest(corpus, engine=engine())
    table = index._version.store.store._table  # type: ignore[attr-defined]
    stats = table.index_stats("vector_idx")
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (401, 0)
    assert index.digest() == quiet_digest(tmp_path / "quiet", corpus)


@pytest.mark.stores_external
def test_what_a_node_cannot_do_is_done_here(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    driver, done = os.getpid(), list[int]()

    def call() -> None:
        if os.getpid() != driver:
            raise OSError("no way to the bucket\nat line 7")
        done.append(1)

    with caplog.at_level("WARNING", "rag_core"):
        engine().elsewhere(call)
    assert done == [1]
    assert "(no way to the bucket): it is made here" in caplog.text


@pytest.mark.stores_external
def test_a_node_that_dies_on_the_way_is_told_of(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match=r"the cluster broke off: .*; run the same command again"):
        engine().elsewhere(partial(os._exit, 3))


@pytest.mark.stores_external
def test_the_command(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    asked = Asked(tmp_path / "i", provider="fake", engine=Engine("ray", cluster.address, 2))
    report = commands.ingest(corpus, asked, print, lambda *step: None)
    assert (report.added, report.embedded_texts) == (401, 361)


@pytest.mark.stores_external
def test_a_worker_with_another_model_is_refused(
    cluster: Any, diary: Any, corpus: Path, tmp_path: Path
) -> None:
    index = Index.create(tmp_path / "i", get_embedder("diary"))
    with pytest.raises(IdentityMismatchError, match="the worker's embedder 'fake' is not that of the index"):
        index.ingest(corpus, engine=RayEngine("fake", workers=1))
    assert index.ingest(corpus, engine=engine()).added == 401


@pytest.mark.stores_external
def test_a_device_that_no_node_has(cluster: Any, diary: Any, corpus: Path, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i", get_embedder("diary"))
    with pytest.raises(ProviderUnavailableError, match=r"\d nodes offers mlx; ray start"):
        index.ingest(corpus, engine=RayEngine("diary@mlx"))


def test_workers_and_their_share() -> None:
    nodes = [{"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}, {"mlx": 1.0}]
    assert workers_for(nodes, "cpu", 0) == (2, 4)
    assert workers_for(nodes, "cpu", 4) == (4, 2)
    assert workers_for(nodes, "cpu", 40) == (40, 1)
    assert workers_for(nodes, "nvidia", 0) == (2, 1)
    assert workers_for(nodes, "nvidia", 9) == (2, 1)
    assert workers_for(nodes, "mlx", 0) == (1, 1)
    with pytest.raises(InvalidArgumentError, match="-1 workers"):
        workers_for(nodes, "cpu", -1)
    with pytest.raises(ProviderUnavailableError, match="offers GPU; ray start --num-gpus=1"):
        workers_for(nodes[:1], "nvidia", 0)
    with pytest.raises(ProviderUnavailableError, match="offers a CPU"):
        workers_for([{"mlx": 1.0}], "cpu", 0)
    assert needed("nvidia", 4) == {"num_gpus": 1, "num_cpus": 1}
    assert needed("mlx", 4) == {"resources": {"mlx": 1}, "num_cpus": 1}
    assert needed("cpu", 4) == {"num_cpus": 4}
    assert needed("api", 4) == {"num_cpus": 0.25}


class FakeRay(ModuleType):
    """Notes how it is begun and ended."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.begun: list[dict[str, Any]] = []
        self.ended = 0

    def is_initialized(self) -> bool:
        return len(self.begun) > self.ended

    def init(self, **options: Any) -> None:
        self.begun.append(options)

    def shutdown(self) -> None:
        self.ended += 1


def test_where_the_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert connect(cpus=3) == (fake, True)
    assert (fake.begun[0]["address"], fake.begun[0]["num_cpus"]) == ("local", 3)
    assert connect("elsewhere:1") == (fake, False)  # this process is in a cluster already
    fake.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "there:2")
    assert connect()[1]
    fake.shutdown()
    assert connect("here:1")[1]
    assert [one["address"] for one in fake.begun] == ["local", "there:2", "here:1"]
    assert "num_cpus" not in fake.begun[1]
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_what_was_begun_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    with RayEngine() as engine:
        engine._began = fake
    assert fake.ended == 1
    engine.close()
    assert fake.ended == 1


def test_numbers_that_are_not_accepted() -> None:
    with pytest.raises(InvalidArgumentError, match="-2 workers"):
        RayEngine(workers=-2)
    with pytest.raises(InvalidArgumentError, match="a shard of 0 texts"):
        RayEngine(shard_texts=0)

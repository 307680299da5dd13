"""Workers as actors of a Ray cluster: Ray Data's ``map_batches`` over shards, one loaded model an actor.

The cluster schedules, restarts and moves; texts and vectors travel through the folder that all nodes share,
so what goes through Ray is the number of a shard and what became of it.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from rag_core.devices import usable_cpus
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.factory import SpecString
from rag_core.scale.engine import SHARD, EmbedJob, ShardReport, check_shard, check_workers
from rag_core.scale.ray_wait import LOOK_S, RESOURCES, Patience, patiently
from rag_core.scale.ray_wait import wait_s as seconds_to_wait
from rag_core.scale.shards import require
from rag_core.stores.backed import first_line

__all__ = ["RESOURCES", "RayEngine", "connect", "needed", "workers_for"]

log = logging.getLogger("rag_core")
LOCAL_STORE_BYTES = 128 << 20
#: Names of a node's resources that say how much there is of it, not where it is.
CPU = "CPU"


def connect(address: str = "", cpus: int = 0) -> tuple[Any, bool]:
    """Ray, connected; and whether this call began it.

    Args:
        address: of a cluster; empty for that of ``RAY_ADDRESS``, else a cluster on this machine.
        cpus: logical CPUs of a cluster that is started here; 0 for those usable.

    Raises:
        MissingExtraError: Ray is not installed.
        ProviderUnavailableError: no cluster answers at ``address``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray = require("ray")
    if ray.is_initialized():
        return ray, False
    where = address or os.environ.get("RAY_ADDRESS", "") or "local"
    here: dict[str, Any] = {}
    if where == "local":
        here = {
            "num_cpus": cpus or usable_cpus(),
            "object_store_memory": LOCAL_STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ProviderUnavailableError(
            "engine 'ray'", f"no cluster answers at {where!r}: {error}", "start one: ray start --head"
        ) from error
    return ray, True


def needed(target: str, cpus: int) -> dict[str, Any]:
    """Arguments by which Ray places a worker for ``target`` that keeps ``cpus`` CPUs busy."""
    if target == "nvidia":
        return {"num_gpus": 1, "num_cpus": 1}
    if target in RESOURCES:
        return {"resources": {RESOURCES[target][0]: 1}, "num_cpus": 1}
    return {"num_cpus": 0.25 if target == "api" else cpus}


def workers_for(nodes: list[Mapping[str, float]], target: str, workers: int) -> tuple[int, int]:
    """How many workers, and the CPUs of each.

    Args:
        nodes: resources of each node that is alive.
        target: of the embedder.
        workers: as asked for; 0: one a device, or one a node where the target has none.

    Raises:
        ProviderUnavailableError: no node has the device.
        InvalidArgumentError: ``workers`` is below 0.
    """
    check_workers(workers)
    if target in RESOURCES:
        name, how = RESOURCES[target]
        devices = int(sum(node.get(name, 0) for node in nodes))
        if not devices:
            raise ProviderUnavailableError(
                f"target {target!r}", f"none of the cluster's {len(nodes)} nodes offers {name}", how
            )
        return min(workers or devices, devices), 1
    hosts = [node for node in nodes if node.get(CPU, 0) >= 1]
    if not hosts:
        raise ProviderUnavailableError(
            f"target {target!r}", f"none of the cluster's {len(nodes)} nodes offers a CPU", "ray start …"
        )
    wanted = workers or len(hosts)
    per_node = -(-wanted // len(hosts))
    return wanted, max(1, int(min(node[CPU] for node in hosts)) // per_node)


class RayEngine:
    """An :class:`~rag_core.scale.engine.EmbedEngine` on a Ray cluster.

    Every node has this package, the provider's extras and models, and the index's folder under one path.
    """

    def __init__(
        self,
        provider: str = "",
        *,
        address: str = "",
        workers: int = 0,
        shard_texts: int = SHARD,
        wait_s: float | None = None,
    ) -> None:
        """Nothing is started before the first shard.

        Args:
            provider: spec string for the workers, where it is another than that of the index, such as
                ``e5-small@nvidia``; its fingerprint must be that of the index.
            address: of the cluster; empty for that of ``RAY_ADDRESS``, else one on this machine.
            workers: actors; 0: one a device, or one a node for targets without devices.
            shard_texts: texts of a shard, which is what a worker that dies may have to do again.
            wait_s: seconds to wait for a node while none that is alive could take a worker; None for
                ``RAG_RAY_WAIT_S``, else 300.

        Raises:
            InvalidArgumentError: a number that is not accepted.
        """
        self.provider, self.address, self.workers = provider, address, check_workers(workers)
        self.shard_texts = check_shard(shard_texts)
        self.wait_s = seconds_to_wait(wait_s)
        self._began: Any = None

    def run(self, job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        """See :class:`~rag_core.scale.engine.EmbedEngine`.

        Raises:
            MissingExtraError: Ray is not installed.
            ProviderUnavailableError: no cluster, no node with the device, or none left for a worker.
            ProviderError: the cluster broke off.
        """
        from rag_core.scale.ray_pace import PacedWorker, ray_pace
        from rag_core.scale.work import ShardWorker, report_of

        ray, began = connect(self.address, self.workers)
        self._began = ray if began else self._began
        target = SpecString.parse(job.provider).target or job.target
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        workers, cpus = workers_for(nodes, target, self.workers)
        data = _quiet_data()
        shards = data.from_items([{"number": n} for n in range(n_shards)], override_num_blocks=n_shards)
        if target == "api":
            ray_pace()  # kept by a node before the first worker asks
        done = shards.map_batches(
            PacedWorker if target == "api" else ShardWorker,
            fn_constructor_args=(replace(job, threads=cpus if target == "cpu" else 0),),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(workers, n_shards)),
            **needed(target, cpus),
        )
        patience = Patience(ray.nodes, needed(target, cpus), self.wait_s)
        try:
            for row in patiently(done.iter_rows(), patience, _stopper(done)):
                yield report_of(row["report"])
        except ray.exceptions.RayError as error:
            raise _broke_off(error) from error

    def elsewhere(self, call: Callable[[], None]) -> None:
        """See :class:`~rag_core.scale.engine.EmbedEngine`: on one node, with as many CPUs as the largest has.

        Raises:
            MissingExtraError: Ray is not installed.
            ProviderUnavailableError: no cluster, or none of its nodes can take it.
            ProviderError: the cluster broke off.
        """
        ray, began = connect(self.address, self.workers)
        self._began = ray if began else self._began
        cpus = max((node["Resources"].get(CPU, 0) for node in ray.nodes() if node["Alive"]), default=0)
        wanted = {"num_cpus": max(1, int(cpus))}
        patience = Patience(ray.nodes, wanted, self.wait_s)
        ends = ray.remote(_called).options(**wanted).remote(call)
        try:
            while not ray.wait([ends], timeout=LOOK_S)[0]:
                patience.check()
            ray.get(ends)
        except ray.exceptions.RayTaskError as error:
            said = first_line(error.cause)
            log.warning("engine 'ray': no node could make %s (%s): it is made here", call, said)
            call()
        except ray.exceptions.RayError as error:
            raise _broke_off(error) from error
        except BaseException:
            ray.cancel(ends, force=True)
            raise

    def close(self) -> None:
        """Leave the cluster, and end it where it was started here."""
        if self._began is not None:
            with suppress(RuntimeError):
                self._began.shutdown()
            self._began = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _called(call: Callable[[], None]) -> None:
    call()


def _broke_off(error: Exception) -> ProviderError:
    said = str(error).strip().splitlines()[-1]
    return ProviderError(f"the cluster broke off: {said}; run the same command again")


def _stopper(data: Any) -> Callable[[], None]:
    """What ends the execution of ``data``, from another thread than the one that goes through it.

    Ray has no public call for that; where its own changes, the execution ends with this process.
    """
    made: list[Any] = []
    create = getattr(data, "_create_executor", None)
    if create is not None:

        def noted() -> Any:
            made.append(create())
            return made[-1]

        data._create_executor = noted

    def stop() -> None:
        for executor in made:
            executor.shutdown(force=True)

    return stop


def _quiet_data() -> Any:
    """Ray Data without bars and without lines for each of its steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own settings, as it sets them
        data = require("ray.data")
        context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return data

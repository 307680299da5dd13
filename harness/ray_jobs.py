"""The jobs of a run as tasks of a Ray cluster, each on a node that has its target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from harness.config import RunSpec
from harness.jobs import Event, Job, Running
from harness.ray_node import measure_on_node
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.factory import SpecString
from rag_core.index_files import write_whole
from rag_core.scale.ray_engine import connect, needed, workers_for
from rag_core.scale.ray_wait import LOOK_S, Patience
from rag_core.scale.ray_wait import wait_s as seconds_to_wait
from rag_core.secrets import redact

__all__ = ["RayJobs", "check_spec"]

#: Nodes that may die under a job before its cells count as failed.
MOST_TRIES = 3
#: Settings that one process keeps, or that name a folder of this machine.
NOT_THERE = ("max_usd", "record", "replay")


def check_spec(spec: RunSpec) -> None:
    """Refuse settings that no cluster keeps.

    Raises:
        InvalidArgumentError: names the setting.
    """
    for name in NOT_THERE:
        if getattr(spec, name):
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')} is kept by one machine, and --engine ray has many; "
                "leave one of them out"
            )


class RayJobs:
    """A :class:`~harness.jobs.JobEngine` on a Ray cluster.

    Every node has this package with the same extras, and the data set under one path; its hashes are
    compared before anything is measured. A job has its CPUs, or its device, to itself.
    """

    def __init__(self, address: str = "", wait_s: float | None = None) -> None:
        """Connect.

        Args:
            address: of the cluster; empty for that of ``RAY_ADDRESS``, else one on this machine.
            wait_s: seconds to wait for a node while none that is alive could take a job; None for
                ``RAG_RAY_WAIT_S``, else 300.

        Raises:
            MissingExtraError: Ray is not installed.
            ProviderUnavailableError: no cluster answers.
            InvalidArgumentError: a wait that is no number from 0.
        """
        self._wait_s = seconds_to_wait(wait_s)
        self._patience: dict[str, Patience] = {}
        self._ray, self._began = connect(address)
        self._nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def place(self, targets: Sequence[str]) -> str:
        """See :class:`~harness.jobs.JobEngine`."""
        reasons = []
        for target in targets:
            try:
                workers_for(self._nodes, target, 1)
                return target
            except ProviderUnavailableError as error:
                reasons.append(error)
        raise reasons[0]

    def run(self, jobs: Sequence[Job], running: Running) -> None:
        """See :class:`~harness.jobs.JobEngine`. Jobs of a node that dies go to another."""
        hashes = running.document.dataset["hash"]
        tries = {job.label: 0 for job in jobs}
        lanes = _lanes(jobs)
        streams: dict[Any, Job] = {}
        try:
            while streams or any(lanes.values()):
                busy = {_lane(job) for job in streams.values()}
                for name, lane in lanes.items():
                    if lane and name not in busy:
                        job = lane.popleft()
                        streams[self._start(job, running, hashes)] = job
                found, _ = self._ray.wait(list(streams), num_returns=1, timeout=LOOK_S)
                if not found:
                    self._give_up(streams, running)
                    continue
                (stream,) = found
                job = streams[stream]
                try:
                    kind, what = self._ray.get(next(stream))
                except StopIteration:
                    del streams[stream]
                    running.fail(job, "the node sent no result of this cell")
                except self._ray.exceptions.RayError as error:
                    del streams[stream]
                    tries[job.label] += 1
                    if tries[job.label] < MOST_TRIES and job.cells:
                        lanes[_lane(job)].appendleft(job)
                        continue
                    said = redact(str(error).strip().splitlines()[-1])
                    running.fail(job, f"{tries[job.label]} nodes gave up on it, the last with: {said}")
                else:
                    if _took(job, running, kind, what):
                        del streams[stream]
        finally:
            for stream in streams:
                self._cancel(stream)

    def _give_up(self, streams: dict[Any, Job], running: Running) -> None:
        """Note which jobs have waited for a node for too long; their cells are not measured."""
        for stream, job in list(streams.items()):
            try:
                self._patience[job.label].check()
            except ProviderUnavailableError as error:
                del streams[stream]
                self._cancel(stream)
                running.fail(job, str(error))

    def _cancel(self, stream: Any) -> None:
        with suppress(Exception):
            self._ray.cancel(stream, force=True)

    def _start(self, job: Job, running: Running, hashes: Mapping[str, str]) -> Any:
        target = SpecString.parse(job.provider).target if job.provider else "cpu"
        _, cpus = workers_for(self._nodes, "cpu", 1)
        cpus = min(running.spec.threads, cpus) or cpus
        resources = needed(target, cpus)
        if target != "api":
            resources["num_cpus"] = cpus
        task = self._ray.remote(measure_on_node).options(num_returns="streaming", max_retries=0, **resources)
        running.on_event(Event("start", job.label))
        self._patience[job.label] = Patience(self._ray.nodes, resources, self._wait_s)
        values = {**running.values(job), "hashes": dict(hashes)}
        return task.remote(values, job.file, cpus if target != "api" else running.spec.threads)

    def close(self) -> None:
        """Leave the cluster, and end it where it was started here."""
        if self._began:
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _lane(job: Job) -> str:
    """Jobs of one lane run one after the other: those that ask one service, whose limits they share."""
    parsed = SpecString.parse(job.provider) if job.provider else None
    return f"service {parsed.name}" if parsed and parsed.target == "api" else job.label


def _lanes(jobs: Sequence[Job]) -> dict[str, deque[Job]]:
    lanes: dict[str, deque[Job]] = {}
    for job in jobs:
        if job.cells:
            lanes.setdefault(_lane(job), deque()).append(job)
    return lanes


def _took(job: Job, running: Running, kind: str, what: Any) -> bool:
    """Take in what a node sent; whether it was the last of it."""
    if kind == "file":
        name, data = what
        path = running.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        return False
    if kind == "end":
        if job.cells:
            running.fail(job, what or "the measuring process ended before this cell")
        return True
    if what["event"] == "cell":
        what["environment"] = _where_it_differs(what["environment"], running.document.environment)
    running.take(job, what, time.perf_counter())
    return False


def _where_it_differs(found: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The environment of a cell; None where machine and packages are those of the document."""
    names = ("machine_fingerprint", "packages", "python")
    return found if any(found[name] != known.get(name) for name in names) else None

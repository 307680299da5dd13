"""The jobs of a run, and what becomes of the events that a measuring process sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harness.config import RunSpec
from harness.datasets import absolute_data
from harness.results import CellKey, CellResult, ResultDocument, file_name
from harness.variants import VECTORS, vector_file

__all__ = ["NONE", "WORK", "Event", "Job", "Running", "asdict_key", "identity"]

NONE = "-"
WORK = ".work"


@dataclass(frozen=True, slots=True)
class Event:
    """What happens during a run: ``kind`` is ``start``, ``progress``, ``cell``, ``kept`` or ``note``.

    Of a note ``stage`` is what to show.
    """

    kind: str
    label: str
    stage: str = ""
    done: int = 0
    total: int = 0
    cell: CellResult | None = None


@dataclass(slots=True)
class Job:
    """One process to start: the BM25 leg, or one provider with all its cells."""

    kind: str
    label: str
    provider: str
    cells: list[CellKey] = field(default_factory=list)

    @property
    def needs_lexical(self) -> bool:
        """Whether a cell fuses with the BM25 lists."""
        return self.kind == "provider" and any(key.pipeline.startswith("hybrid") for key in self.cells)

    @property
    def file(self) -> str:
        """Begin of the names of its files."""
        return file_name(self.cells[0]) if self.cells else self.label.replace("/", "_")


class JobEngine(Protocol):
    """Runs measuring processes somewhere."""

    def place(self, targets: Sequence[str]) -> str:
        """The first of ``targets`` that can be measured there.

        Raises:
            ProviderUnavailableError: none of them.
        """
        ...

    def run(self, jobs: Sequence[Job], running: Running) -> None:
        """Run ``jobs``, in any order, and give their events to ``running``."""
        ...


@dataclass(slots=True)
class Running:
    """A run under way: takes in what the measuring processes tell, and writes after every cell.

    Attributes:
        out: folder of the result.
        spent_usd: job -> USD.
    """

    spec: RunSpec
    out: Path
    document: ResultDocument
    on_event: Callable[[Event], None]
    spent_usd: dict[str, float] = field(default_factory=dict)

    def values(self, job: Job) -> dict[str, Any]:
        """What the measuring process of ``job`` is told: the content of its file."""
        return {
            "kind": job.kind,
            "provider": job.provider,
            "spec": self.spec.as_dict(),
            "data": absolute_data(self.spec.data),
            "work": str(self.out / WORK),
            "runs": str(self.out / "runs"),
            "vectors": str(vector_file(self.out / VECTORS, job.cells[0])) if job.cells else "",
            "needs_lexical": job.needs_lexical,
            "cells": [asdict_key(key) for key in job.cells],
            "spent_usd": sum(self.spent_usd.values()),
        }

    def take(self, job: Job, event: Mapping[str, Any], started: float) -> None:
        """Take in one event.

        A cell that is measured is no longer among those of ``job``. ``started``: of the process.
        """
        kind = event["event"]
        if kind == "progress":
            self.on_event(Event("progress", job.label, event["stage"], event["done"], event["total"]))
        elif kind == "note":
            self.on_event(Event("note", job.label, event["text"]))
        elif kind == "spent":
            self.spent_usd[job.label] = event["usd"]
        else:
            cell = CellResult.from_dict(event["cell"])
            cell.wall_s = event.get("wall_s", time.perf_counter() - started)
            cell.environment = event.get("environment")
            job.cells = [key for key in job.cells if key != identity(cell.key)]
            self.document.put(cell)
            self.document.write(self.out / "result.json")
            self.on_event(Event("cell", cell.key.cell_id, cell=cell))

    def fail(self, job: Job, reason: str) -> None:
        """Note why the cells that are still open were not measured."""
        for key in job.cells:
            cell = CellResult(key, "failed", reason=reason)
            self.document.put(cell)
            self.on_event(Event("cell", key.cell_id, cell=cell))
        job.cells = []
        self.document.write(self.out / "result.json")


def identity(key: CellKey) -> CellKey:
    """The key as it is known before the provider is loaded, which alone tells its dtype."""
    return replace(key, dtype=NONE)


def asdict_key(key: CellKey) -> dict[str, str]:
    """The fields of ``key``."""
    return {name: getattr(key, name) for name in CellKey.__slots__}

"""`bench load`: ask systems of a result by many clients at once; what that gives goes into the result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.datasets import absolute_data
from harness.load import parse_concurrency
from harness.processes import measuring_process
from harness.progress import wrapped
from harness.queries_command import find_cell, texts_of
from harness.ragtoml import settings_of
from harness.recommend import recommend
from harness.render import write_report
from harness.render.load import load_lines
from harness.results import CellResult, ResultDocument, load_result
from harness.rows import clean, make_rows
from rag_core.devices import usable_cpus
from rag_core.errors import InvalidArgumentError
from rag_core.factory import SpecString
from rag_core.registry import RERANKERS, load_plugins

__all__ = ["LoadOptions", "load_command"]

OK, FAILED = 0, 3


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of the command as typed; empty or 0 where not given."""

    result: Path
    systems: Sequence[str] = ()
    concurrency: str = "1,4,16"
    workers: int = 0
    seconds: float = 10.0
    threads: int = 0
    data: str = ""


def load_command(options: LoadOptions, say: Callable[[str], None]) -> int:
    """0, or 3 where a system could not be measured; the others are written.

    Raises:
        InvalidArgumentError, UnknownNameError: an option, or a system that is a service.
        ResultError: no result there.
    """
    levels = parse_concurrency(options.concurrency)
    if options.workers < 0 or options.threads < 0 or not 0 < options.seconds <= 3600:
        raise InvalidArgumentError(
            f"--workers {options.workers}, --threads {options.threads}, --seconds {options.seconds:g}; "
            "accepted: workers and threads from 0, seconds above 0 and up to 3600"
        )
    load_plugins()
    document = load_result(options.result)
    cells = _chosen(document, options.systems)
    for cell in cells:
        _local(cell)
    data = options.data or str(document.spec.get("data", ""))
    texts_of(document, options.data)  # refuses other data than was measured
    folder = options.result if options.result.is_dir() else options.result.parent
    file = folder / "result.json" if options.result.is_dir() else options.result
    status = OK
    for cell in cells:
        job = {
            "kind": "load",
            "data": absolute_data(data),
            "tables": settings_of(cell, document),
            "scope": document.spec.get("scope") or "",
            "concurrency": levels,
            "workers": options.workers or usable_cpus(),
            "seconds": options.seconds,
        }
        say(f"{cell.key.cell_id}: {options.concurrency} clients, {job['workers']} workers")
        found, reason = _measured(job, options.threads)
        if found is None:
            say(wrapped(f"failed: {reason}"))
            status = FAILED
            continue
        cell.load = found
        document.write(file)
    document = clean(document)  # judged once for the lines and the report
    for line in load_lines(make_rows(document)):
        say(wrapped(line))
    say(f"report: {folder / 'report.md'} ({len(write_report(document, folder))} files)")
    return status


def _chosen(document: ResultDocument, systems: Sequence[str]) -> list[CellResult]:
    """The systems named, else the one that is recommended without limits."""
    if systems:
        return [find_cell(document, name) for name in dict.fromkeys(systems)]
    found = recommend(document).chosen
    if found is None:
        raise InvalidArgumentError(
            "the result has nothing to recommend; name a system: --system e5-small/hybrid"
        )
    cell = document.cell(found.row.cell.key.cell_id)
    assert cell is not None
    return [cell]


def _local(cell: CellResult) -> None:
    """Refuse a service: it would be paid for, and its limits would be what is measured."""
    names = [SpecString.parse(cell.key.reranker).name] if cell.key.reranker != "-" else []
    targets = {spec.target for name in names for spec in RERANKERS.find(name)}
    if cell.key.target == "api" or targets == {"api"}:
        raise InvalidArgumentError(
            f"{cell.key.cell_id} asks a service; accepted: local models. What limits a service is its "
            "own rate limit, and each query has its price"
        )


def _measured(job: dict[str, Any], threads: int) -> tuple[dict[str, Any] | None, str]:
    """What the measuring process found, or why it found nothing."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as work:
        found = None
        with measuring_process({**job, "work": work}, Path(work) / "load.job.json", threads) as measuring:
            for event in measuring:
                if event["event"] == "load":
                    found = event["values"]
        return found, measuring.reason or ("" if found else measuring.ending)

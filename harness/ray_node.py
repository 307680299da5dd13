"""What a node of a Ray cluster does for one job: the same measuring process, in a folder of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.environment import environment
from harness.jobs import WORK
from harness.processes import measuring_process
from harness.variants import VECTORS

__all__ = ["measure_on_node"]

#: Folders whose files belong to the result.
KEPT = ("runs", VECTORS)


def measure_on_node(values: Mapping[str, Any], name: str, threads: int) -> Iterator[tuple[str, Any]]:
    """Run the job ``values``, and the BM25 leg before it where it fuses: both on one machine.

    Args:
        values: of :meth:`harness.jobs.Running.values`, with the hashes of the data set under ``hashes``.
        name: begin of the names of its files.
        threads: of the process; 0 for the CPUs really available.

    Yields:
        ``("file", (name below the result's folder, bytes))``; ``("event", {...})`` as
        :mod:`harness.worker` writes it, a cell with ``environment`` and ``wall_s``, after its files;
        and at last ``("end", reason)``, empty where the process ended well.
    """
    here = environment(threads)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder)
        for part in (WORK, *KEPT):
            (out / part).mkdir()
        own = {**values, "work": str(out / WORK), "runs": str(out / "runs")}
        if values["vectors"]:
            own["vectors"] = str(out / VECTORS / Path(values["vectors"]).name)
        sent: set[str] = set()
        if values["needs_lexical"]:
            leg = {
                **own,
                "kind": "lexical",
                "provider": "",
                "cells": [],
                "vectors": "",
                "needs_lexical": False,
            }
            for kind, what in _process(leg, out / WORK, "bm25", threads):
                if kind == "end" and what:
                    yield "end", what
                    return
        for kind, what in _process(own, out / WORK, name, threads):
            if kind == "end" or what["event"] == "cell":
                yield from _new_files(out, sent)
            if kind == "event" and what["event"] == "cell":
                what["environment"] = here
            yield kind, what


def _process(values: Mapping[str, Any], work: Path, name: str, threads: int) -> Iterator[tuple[str, Any]]:
    started = time.perf_counter()
    with measuring_process(values, work / f"{name}.job.json", threads) as measuring:
        for event in measuring:
            yield "event", event | {"wall_s": time.perf_counter() - started}
    yield "end", measuring.failure


def _new_files(out: Path, sent: set[str]) -> Iterator[tuple[str, Any]]:
    for part in KEPT:
        for path in sorted((out / part).rglob("*")):
            name = path.relative_to(out).as_posix()
            if path.is_file() and name not in sent and not path.name.startswith("."):
                sent.add(name)
                yield "file", (name, path.read_bytes())

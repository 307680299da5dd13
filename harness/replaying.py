"""Runs that keep what services answer, and runs that are answered from there: quality without a clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config import RunSpec
from harness.results import CellResult, write_atomic
from rag_core.errors import InvalidArgumentError
from rag_core.recording import RECORD, REPLAY, check_folder

__all__ = ["REPLAYED", "begin", "recorded_run", "unclocked", "wire_environment"]

#: Setting of a cell: which of its stages were answered from recordings.
REPLAYED = "replayed"
#: In a folder of recordings: what to ask for again.
SETTINGS = "run.json"
#: Settings of one run alone, which another one does not repeat.
OWN = ("record", "replay", "max_usd", "usd_per_hour", "threads")
WARM = ("p50_s", "p95_s", "p99_s")
COLD = ("load_s", "first_call_s", "embed_s", "docs_per_s", "tokens_per_s")


def wire_environment(spec: RunSpec) -> dict[str, str]:
    """The variables that make every process of the run record, or answer from recordings.

    Empty without either: then what the user has set stands.
    """
    folders = {RECORD: spec.record, REPLAY: spec.replay}
    if not any(folders.values()):
        return {}
    return {name: str(Path(folder).resolve()) if folder else "" for name, folder in folders.items()}


def begin(spec: RunSpec) -> None:
    """Check the folder of a run that is answered from it; note in a new one what is recorded.

    Raises:
        InvalidArgumentError: nothing was recorded there.
    """
    if spec.replay:
        check_folder(spec.replay)
    if spec.record:
        values = {name: value for name, value in spec.as_dict().items() if name not in OWN}
        write_atomic(Path(spec.record) / SETTINGS, json.dumps(values, indent=1, sort_keys=True) + "\n")


def recorded_run(folder: str) -> RunSpec:
    """The settings of the run that made ``folder``.

    Raises:
        InvalidArgumentError: it does not tell.
    """
    file = Path(folder) / SETTINGS
    try:
        return RunSpec.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(
            f"{file} does not tell what was recorded ({type(error).__name__}); "
            f"name --provider and --data, or record again with: bench run --record {folder}"
        ) from error


def unclocked(cell: CellResult, *, embed: bool, rerank: bool) -> CellResult:
    """``cell`` without the times of stages that were answered from recordings, and of their sums."""
    if not (embed or rerank):
        return cell
    stages = [name for name, is_replayed in (("embed", embed), ("rerank", rerank)) if is_replayed]
    untimed = (*WARM, *(COLD if embed else ()))
    return replace(
        cell,
        settings={**cell.settings, REPLAYED: stages},
        speed={name: None if name in untimed else value for name, value in cell.speed.items()},
        stages={name: times for name, times in cell.stages.items() if name not in stages},
        total_s=[],
        rerank=_untimed(cell.rerank, rerank) if cell.rerank else cell.rerank,
    )


def _untimed(found: Mapping[str, Any], rerank: bool) -> dict[str, Any]:
    """What reranking did, without the share of a sum that is not known, or without any time."""
    if not rerank:
        return {**found, "share_of_p95": None}
    depths = [{**at, "median_s": None, "n_timed": 0} for at in found["depths"]]
    return {**found, "share_of_p95": None, "added_s": None, "points_per_ms": None, "depths": depths}

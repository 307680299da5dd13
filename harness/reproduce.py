"""The command that makes a cell again: from the settings of the run and the key of the cell alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from harness.config import BASELINE, DEFAULT_METRICS, PIPELINES, RunSpec
from harness.results import CellKey, CellResult, ResultDocument
from rag_core.errors import RagCoreError
from rag_core.factory import SpecString

__all__ = ["TIMED", "command", "run_command_of", "without_times"]

NONE = "-"
#: Setting of :class:`harness.config.RunSpec` → option of `bench run`; written where it is not the default.
OPTIONS = {
    "lexical": "--lexical",
    "k": "--k",
    "candidate_pool": "--pool",
    "rrf_k": "--rrf-k",
    "analyser": "--analyser",
    "scope": "--scope",
    "warmup": "--warmup",
    "repeats": "--repeats",
    "threads": "--threads",
    "seed": "--seed",
    "replay": "--replay",
    "usd_per_hour": "--usd-per-hour",
    "score_threshold": "--score-threshold",
}
#: Fields of a result that are measured by the clock or are a date, beside those whose name ends in a unit of
#: time or memory (:data:`TIMED_ENDINGS`): all others are the same in two runs on the same input.
TIMED = ("created", "resumed_from", "stages", "share_of_p95", "points_per_ms", "n_timed")
TIMED_ENDINGS = ("_s", "_per_s", "_seconds", "_rss_bytes", "device_peak_bytes", "peak_device_bytes")


def without_times(values: Any) -> Any:
    """The JSON values of a result (or a part of them) without what the clock and the memory counter gave.

    Two runs of the same settings, data, code and versions agree in all that is left.
    """
    if isinstance(values, Mapping):
        return {
            name: without_times(value)
            for name, value in values.items()
            if name not in TIMED and not str(name).endswith(TIMED_ENDINGS)
        }
    return [without_times(value) for value in values] if isinstance(values, list) else values


def command(document: ResultDocument, cell: CellResult) -> str:
    """The `bench run …` that measures ``cell`` alone, with the settings and on the data of ``document``.

    The data set stands under its name, as the result records it: one that is not shipped is found where the
    name is a folder. Quoted for a POSIX shell.
    """
    key = cell.key
    words = ["bench", "run", "--data", document.name, "--no-baseline"]
    words += ["--provider", BASELINE[0] if key.pipeline == "bm25" else _pinned(key)]
    words += ["--pipeline", key.pipeline]
    if key.store not in (NONE, "", "flat"):
        words += ["--store", key.store]
    if key.reranker != NONE:
        words += ["--reranker", key.reranker]
    if key.fusion not in (NONE, "", "rrf"):
        words += ["--fusion", key.fusion]
    return shlex.join([*words, *_settings(document.spec)])


def run_command_of(document: ResultDocument) -> str:
    """The `bench run …` that makes the whole of ``document``, cells in their order."""
    spec = document.spec
    words = ["bench", "run", "--data", document.name]
    providers = [name for name in spec.get("providers", ()) if isinstance(name, str)]
    if BASELINE[0] not in providers:
        words.append("--no-baseline")
    elif spec.get("baseline_only"):  # then it was added, not asked for
        providers = [name for name in providers if name != BASELINE[0]]
    lists: tuple[tuple[str, list[str], list[str]], ...] = (
        ("--provider", providers, []),
        ("--reranker", list(spec.get("rerankers") or ()), []),
        ("--store", list(spec.get("stores") or ()), ["flat"]),
        ("--pipeline", list(spec.get("pipelines") or ()), _usual_pipelines(spec)),
    )
    for option, values, usual in lists:
        if values != usual:
            words += [part for value in values for part in (option, value)]
    fusions = list(spec.get("fusions") or ())
    if fusions not in ([], ["rrf"]):
        words += ["--fusion", ",".join(fusions)]
    for margin in spec.get("margins") or ():
        words += ["--margin", margin]
    return shlex.join([*words, *_settings(spec)])


def _usual_pipelines(spec: Mapping[str, Any]) -> list[str]:
    return list(PIPELINES if spec.get("rerankers") else PIPELINES[:3])


def _pinned(key: CellKey) -> str:
    """The provider's spec string with the target that the cell ran on."""
    try:
        return str(replace(SpecString.parse(key.provider), target=key.target))
    except RagCoreError:  # a name that no spec string may have: as it stands
        return key.provider


def _settings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Options of the settings that are not the defaults."""
    usual = {f.name: f.default for f in fields(RunSpec) if f.default is not MISSING}
    metrics = list(spec.get("metrics") or ())
    if metrics and metrics != list(DEFAULT_METRICS):
        yield from (part for name in metrics for part in ("--metric", name))
    for name, option in OPTIONS.items():
        value = spec.get(name, usual[name])
        if value != usual[name]:
            yield from (option, _text(value))
    if spec.get("weights"):
        yield from ("--weights", ",".join(_text(value) for value in spec["weights"]))
    if spec.get("audit_prefixes"):
        yield "--audit-prefixes"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)

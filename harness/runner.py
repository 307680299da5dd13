"""The parent of a run: plans the cells, starts one fresh process per provider, writes after every cell."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.config import BASELINE, BASELINE_FUSION, FREE_SETTINGS, RERANKED_PIPELINES, RunSpec
from harness.datasets import Dataset, load_dataset
from harness.describe import near_duplicate_record
from harness.environment import environment
from harness.jobs import NONE, WORK, Event, Job, JobEngine, Running, identity
from harness.metrics import Metric, evaluated_queries
from harness.overlap import overlap_record
from harness.processes import measuring_process
from harness.replaying import REPLAYED, wire_environment
from harness.replaying import begin as begin_wire
from harness.rerank_variants import compare_rerankers
from harness.results import CellKey, CellResult, ResultDocument, load_result
from harness.texts import write_texts
from harness.variants import VECTORS, compare_variants, drop_large
from rag_core import __version__
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError, RagCoreError
from rag_core.factory import SpecString, resolve
from rag_core.lexical import parse_lexical
from rag_core.registry import EMBEDDERS, RERANKERS, load_plugins
from rag_core.stores import check_store

__all__ = [
    "Event",
    "ResultConflictError",
    "changed_packages",
    "dataset_record",
    "now_utc",
    "plan",
    "run",
]


class ResultConflictError(RagCoreError, ValueError):
    """The output folder holds a result of other settings or other data."""


def run(
    spec: RunSpec,
    out: Path,
    *,
    fresh: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
    engine: JobEngine | None = None,
) -> ResultDocument:
    """Run ``spec`` into ``out/result.json``, which is valid and complete so far at every moment.

    Finished cells of an earlier run of the same settings and data are kept, unless ``fresh``.
    On KeyboardInterrupt the document is written as ``interrupted`` and the exception goes on.

    Args:
        engine: runs the processes elsewhere; None for this machine.

    Raises:
        ResultConflictError: ``out`` holds a result of other settings or data, and ``fresh`` is False.
        UnknownNameError, SpecStringError: a provider, reranker, store or data set does not exist.
    """
    load_plugins()
    begin_wire(spec)
    dataset = load_dataset(spec.data)
    jobs, skipped = plan(replace(spec, data=dataset.name), engine)
    document = _document(spec, dataset)
    file = out / "result.json"
    kept = [] if fresh or not file.exists() else _keep(load_result(file), document, file)
    if fresh:
        for name in ("runs", VECTORS, WORK):
            shutil.rmtree(out / name, ignore_errors=True)
    wanted = [identity(key) for job in jobs for key in job.cells]
    for cell in kept:
        if identity(cell.key) in wanted:
            document.put(replace(cell, resumed=True))
            on_event(Event("kept", cell.key.cell_id, cell=cell))
    for cell in skipped:
        document.put(cell)
        on_event(Event("cell", cell.key.cell_id, cell=cell))
    done = {identity(cell.key) for cell in document.cells if cell.resumed}
    if spec.record and any(cell.resumed and cell.key.target == "api" for cell in document.cells):
        document.notes.append("kept cells were not measured again, so they are not recorded; --fresh does")
    for job in jobs:
        job.cells = [key for key in job.cells if identity(key) not in done]
    jobs = [job for job in jobs if job.cells or job.kind == "lexical"]
    if not any((job.cells and job.kind == "lexical") or job.needs_lexical for job in jobs):
        jobs = [job for job in jobs if job.kind != "lexical"]
    running = Running(spec, out.resolve(), document, on_event)
    try:
        for part in (WORK, "runs"):
            (out / part).mkdir(parents=True, exist_ok=True)
        document.write(file)
        (engine.run if engine else run_here)(jobs, running)
        document.status = "complete"
    except KeyboardInterrupt:
        document.status = "interrupted"
        raise
    finally:
        document.baseline = _baseline(document)
        if any(running.spent_usd.values()):
            document.notes.append(f"spent {sum(running.spent_usd.values()):.4g} USD at list prices")
        document.parity = compare_variants(document, out / VECTORS)
        document.parity += compare_rerankers(document, out / "runs")
        document.write(file)
        write_texts(dataset, document, out)
    shutil.rmtree(out / WORK, ignore_errors=True)
    drop_large(out / VECTORS)
    return document


def plan(spec: RunSpec, engine: JobEngine | None = None) -> tuple[list[Job], list[CellResult]]:
    """The jobs of ``spec`` in order, and the cells that cannot run here, or by ``engine``, with the reason.

    Raises:
        UnknownNameError, SpecStringError: a provider, reranker, store, engine or metric does not exist.
    """
    jobs, skipped = [], []
    for name in spec.metrics:
        Metric.parse(name)
    absent = _absent_stores(spec.stores)
    parse_lexical(spec.lexical)
    bm25 = CellKey(spec.data, spec.lexical, "cpu", NONE, NONE, "bm25", NONE)
    jobs.append(Job("lexical", "bm25", "", [bm25] if "bm25" in spec.pipelines else []))
    for text in spec.rerankers:
        RERANKERS.find(SpecString.parse(text).name)
    for text in spec.providers:
        parsed = SpecString.parse(text)
        label = str(replace(parsed, target=""))
        targets = [parsed.target] if parsed.target else [one.target for one in EMBEDDERS.find(parsed.name)]
        target = targets[0]
        try:
            if engine is None:
                target = resolve(EMBEDDERS, text, {**os.environ, **wire_environment(spec)})[0].target
            else:
                target = engine.place(targets)
        except ProviderUnavailableError as error:
            skipped += [CellResult(key, "skipped", reason=str(error)) for key in _cells(spec, label, target)]
            continue
        pinned = str(replace(parsed, target=target))
        keys = list(_cells(spec, label, target))
        skipped += [CellResult(k, "skipped", reason=absent[k.store]) for k in keys if k.store in absent]
        jobs.append(Job("provider", pinned, pinned, [key for key in keys if key.store not in absent]))
    return jobs, skipped


def _absent_stores(stores: Iterable[str]) -> dict[str, str]:
    """Store -> why it cannot be made here."""
    absent = {}
    for store in stores:
        try:
            check_store(store)
        except ProviderUnavailableError as error:
            absent[store] = str(error)
    return absent


def _cells(spec: RunSpec, provider: str, target: str) -> Iterator[CellKey]:
    is_baseline = spec.baseline_only and provider == BASELINE[0]
    fusions = (BASELINE_FUSION,) if is_baseline else tuple(dict.fromkeys(spec.fusions))
    for store in spec.stores:
        for pipeline in spec.pipelines:
            if pipeline == "bm25":
                continue
            if is_baseline and pipeline != BASELINE[1]:
                continue
            for fusion in fusions if pipeline == "hybrid" else fusions[:1]:
                for reranker in spec.rerankers if pipeline in RERANKED_PIPELINES else (NONE,):
                    yield CellKey(spec.data, provider, target, NONE, store, pipeline, reranker, fusion)


def dataset_record(dataset: Dataset) -> dict[str, Any]:
    """What a result says of its data: see :class:`~harness.results.ResultDocument`."""
    judged = evaluated_queries(dataset.relevance)
    tags = {
        query.query_id: {k: v for k, v in query.metadata.items() if isinstance(v, (str, int, bool))}
        for query in dataset.queries
    }
    return {
        "name": dataset.name,
        "hash": dict(dataset.hashes),
        "languages": list(dict.fromkeys((*dataset.languages, *dataset.query_languages))),
        "licence": dataset.licence,
        "query_ids": list(judged),
        "query_tags": tags,
        "headline": list(dataset.headline),
        "n_documents": len(dataset.documents),
        "n_documents_empty": len(dataset.empty_documents),
        "n_queries": len(dataset.queries),
        "n_judgements": len(dataset.qrels),
        "n_judgements_relevant": sum(qrel.relevance >= 1 for qrel in dataset.qrels),
        "n_without_relevant": len(dataset.queries) - len(judged),
        "notes": list(dataset.notes),
    }


def _document(spec: RunSpec, dataset: Dataset) -> ResultDocument:
    return ResultDocument(
        name=dataset.name,
        status="running",
        created=now_utc(),
        spec={**spec.as_dict(), "data": dataset.name, "scope": spec.scope or dataset.scope},
        spec_digest=spec.digest,
        dataset={**dataset_record(dataset), **_labels(dataset)},
        environment=environment(spec.threads),
        tool={"name": "rag-core-bench", "version": __version__},
    )


def _labels(dataset: Dataset) -> dict[str, Any]:
    """What the report says about the judgements and no measuring process needs."""
    doubles = near_duplicate_record(dataset)
    return {"query_overlap": overlap_record(dataset)} | ({"near_duplicates": doubles} if doubles else {})


def now_utc() -> str:
    """UTC to the second, or the moment that SOURCE_DATE_EPOCH fixes.

    Raises:
        InvalidArgumentError: SOURCE_DATE_EPOCH is set to something else than seconds since 1970.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(int(epoch) if epoch else int(time.time()), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgumentError(
            f"SOURCE_DATE_EPOCH is {epoch!r}; accepted: whole seconds since 1970"
        ) from None
    return moment.isoformat().replace("+00:00", "Z")


def _keep(old: ResultDocument, new: ResultDocument, file: Path) -> list[CellResult]:
    """The finished cells of ``old``.

    Raises:
        ResultConflictError: names the first thing that differs.
    """
    different = [
        (what, a, b)
        for what, a, b in (
            ("data set", old.dataset.get("hash"), new.dataset["hash"]),
            ("choice of languages", old.dataset.get("languages"), new.dataset["languages"]),
            ("scope", _scopes(old), _scopes(old) and [new.spec["scope"]]),
            ("settings", old.spec_digest, new.spec_digest),
            ("set of package versions", *changed_packages(old.environment, new.environment)),
            (
                "machine",
                old.environment.get("machine_fingerprint"),
                new.environment["machine_fingerprint"],
            ),
            ("version", old.tool.get("version"), new.tool["version"]),
        )
        if a != b
    ]
    if different:
        what, a, b = different[0]
        changed = [
            f"{name}: {old.spec.get(name)!r} / {value!r}"
            for name, value in new.spec.items()
            if what == "settings" and name not in FREE_SETTINGS and old.spec.get(name) != value
        ]
        detail = "; ".join(changed) or f"{a} / {b}"
        raise ResultConflictError(
            f"{file} holds a result of another {what} ({detail}); "
            "choose another folder with --out, or start over with --fresh"
        )
    new.resumed_from = [*old.resumed_from, old.created]
    new.parity = old.parity
    is_timed = not new.spec["replay"]  # then a replayed cell would stand among measured ones
    return [
        cell for cell in old.cells if cell.status == "ok" and not (is_timed and REPLAYED in cell.settings)
    ]


def changed_packages(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str]:
    """The packages of both environments whose versions differ, as each has them.

    A package that only one of them has cannot have changed a figure of the other.
    """
    before, now = old.get("packages", {}), new["packages"]
    changed = [name for name in now if name in before and before[name] != now[name]]
    was, is_now = (", ".join(f"{name} {found[name]}" for name in changed) for found in (before, now))
    return was, is_now


def _scopes(document: ResultDocument) -> list[str]:
    """The scopes that the measured cells searched within; one, unless nothing was measured."""
    return sorted({cell.settings["scope"] for cell in document.cells if "scope" in cell.settings})


def _baseline(document: ResultDocument) -> str | None:
    cells = [
        cell.key
        for cell in document.cells
        if cell.status == "ok" and (cell.key.provider, cell.key.pipeline) == BASELINE
    ]
    first = min(cells, key=lambda key: key.fusion != BASELINE_FUSION, default=None)  # the first of equals
    return first.cell_id if first else None


def run_here(jobs: Sequence[Job], running: Running) -> None:
    """One process after the other, on this machine."""
    for job in jobs:
        _run_job(job, running)
        running.document.write(running.out / "result.json")


def _run_job(job: Job, running: Running) -> None:
    """Start the process of ``job`` and take in its events until it ends."""
    started, spec = time.perf_counter(), running.spec
    path = running.out / WORK / f"{job.file}.job.json"
    running.on_event(Event("start", job.label))
    with measuring_process(running.values(job), path, spec.threads, wire_environment(spec)) as measuring:
        for event in measuring:
            running.take(job, event, started)
    if job.cells:
        running.fail(job, measuring.ending)

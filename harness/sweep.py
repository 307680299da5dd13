"""A sweep from settings to document: what is kept of an earlier one, and what is measured."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.datasets import Dataset, load_dataset
from harness.environment import environment
from harness.runner import ResultConflictError, changed_packages, dataset_record, now_utc
from harness.sweep_plan import FREE_SETTINGS, SweepSpec, plan_variants
from harness.sweep_result import FILE, SweepDocument, load_sweep
from harness.sweep_run import POOL, VECTORS, WORK, OnEvent, SweepEvent, SweepRun
from rag_core import __version__
from rag_core.registry import load_plugins

__all__ = ["SweepEvent", "sweep"]


def sweep(
    spec: SweepSpec, out: Path, *, fresh: bool = False, on_event: OnEvent = lambda event: None
) -> SweepDocument:
    """Measure ``spec`` into ``out/sweep.json``, which is valid and complete so far at every moment.

    Finished variants and rerankers of an earlier sweep of the same settings, data, packages and machine
    are kept, unless ``fresh``. On KeyboardInterrupt the document is written as ``interrupted`` and the
    exception goes on.

    Raises:
        ResultConflictError: ``out`` holds a sweep of other settings, data, packages or another machine.
        UnknownNameError, SpecStringError: a provider, reranker, target or data set does not exist.
    """
    load_plugins()
    dataset = load_dataset(spec.data)
    variants, skipped = plan_variants(spec)
    document = _document(spec, dataset)
    old = None
    if fresh:
        for name in (WORK, VECTORS):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / POOL).unlink(missing_ok=True)
    elif (out / FILE).exists():
        old = _same(load_sweep(out), document, out / FILE)
    run = SweepRun(spec, dataset, document, out.resolve(), on_event)
    try:
        run.speed(variants, skipped, old)
        if spec.pools:
            run.pool(old)
        document.status = "complete"
    except KeyboardInterrupt:
        document.status = "interrupted"
        raise
    finally:
        document.write(out)
    run.tidy()
    return document


def _document(spec: SweepSpec, dataset: Dataset) -> SweepDocument:
    return SweepDocument(
        name=dataset.name,
        status="running",
        created=now_utc(),
        spec={**spec.as_dict(), "data": dataset.name},
        spec_digest=spec.digest,
        dataset=dataset_record(dataset),
        environment=environment(spec.threads),
        tool={"name": "rag-core-bench", "version": __version__},
    )


def _same(old: SweepDocument, new: SweepDocument, file: Path) -> SweepDocument:
    """``old``, whose figures may stand beside new ones.

    Raises:
        ResultConflictError: names the first thing that differs.
    """
    for what, a, b in (
        ("data set", old.dataset.get("hash"), new.dataset["hash"]),
        ("settings", old.spec_digest, new.spec_digest),
        ("set of package versions", *changed_packages(old.environment, new.environment)),
        ("machine", old.environment.get("machine_fingerprint"), new.environment["machine_fingerprint"]),
        ("version", old.tool.get("version"), new.tool["version"]),
    ):
        if a != b:
            changed = [
                f"{name}: {old.spec.get(name)!r} / {value!r}"
                for name, value in new.spec.items()
                if what == "settings" and name not in FREE_SETTINGS and old.spec.get(name) != value
            ]
            raise ResultConflictError(
                f"{file} holds a sweep of another {what} ({'; '.join(changed) or f'{a} / {b}'}); "
                "choose another folder with --out, or start over with --fresh"
            )
    new.resumed_from = [*old.resumed_from, old.created]
    return old

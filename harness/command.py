"""What the commands do between parsing and printing: defaults, progress, summaries, exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config import DEFAULT_METRICS, PIPELINES, RunSpec
from harness.datasets import list_datasets, load_dataset, split_format, table_paths
from harness.jobs import JobEngine
from harness.progress import reporter, terminal_width, wrapped
from harness.replaying import recorded_run
from harness.results import ResultDocument, load_result
from harness.runner import now_utc
from harness.runner import run as run_spec
from rag_core.errors import InvalidArgumentError, UnknownNameError
from rag_core.factory import provider_order
from rag_core.listing import provider_lines, provider_table
from rag_core.registry import EMBEDDERS, load_plugins, nearest

__all__ = [
    "RunOptions",
    "check_lines",
    "data_name",
    "doctor_lines",
    "files_as_data",
    "provider_lines",
    "provider_table",
    "run_command",
]

Print = Callable[..., None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `bench run` as given; empty values stand for the defaults."""

    providers: tuple[str, ...]
    rerankers: tuple[str, ...]
    stores: tuple[str, ...]
    pipelines: tuple[str, ...]
    metrics: tuple[str, ...]
    data: str
    out: Path | None
    fresh: bool
    baseline: bool
    lexical: str
    analyser: str
    k: int
    pool: int
    rrf_k: float
    weights: str
    scope: str
    warmup: int
    repeats: int
    threads: int
    seed: int
    record: str = ""
    replay: str = ""
    max_usd: float | None = None
    usd_per_hour: float | None = None
    fusion: str = "rrf"
    margins: tuple[str, ...] = ()
    score_threshold: float | None = None
    audit_prefixes: bool = False
    engine: str = "local"
    address: str = ""

    def spec(self) -> RunSpec:
        """The settings of the run, defaults filled in; of a replay without providers, the settings
        of the run that was recorded.

        Raises:
            InvalidArgumentError: a setting that is not accepted.
        """
        load_plugins()
        if self.replay and not self.providers:
            run = recorded_run(self.replay)
            return replace(
                run,
                replay=self.replay,
                usd_per_hour=self.usd_per_hour,
                threads=self.threads,
                margins=self.margins or run.margins,
            )
        chosen = self.providers or tuple(local_providers())
        with_baseline = ("fake", *chosen) if self.baseline and "fake" not in chosen else chosen
        pipelines = self.pipelines or (PIPELINES if self.rerankers else PIPELINES[:3])
        return RunSpec(
            data=self.data or default_data(),
            providers=tuple(dict.fromkeys(with_baseline)),
            rerankers=self.rerankers,
            stores=self.stores,
            pipelines=pipelines,
            baseline_only="fake" not in chosen,
            lexical=self.lexical,
            metrics=self.metrics or DEFAULT_METRICS,
            k=self.k,
            candidate_pool=self.pool,
            rrf_k=self.rrf_k,
            fusions=tuple(name.strip() for name in self.fusion.split(",") if name.strip()),
            weights=_weights(self.weights),
            analyser=self.analyser,
            scope=self.scope,
            warmup=self.warmup,
            repeats=self.repeats,
            threads=self.threads,
            seed=self.seed,
            record=self.record,
            replay=self.replay,
            max_usd=self.max_usd,
            usd_per_hour=self.usd_per_hour,
            margins=self.margins,
            score_threshold=self.score_threshold,
            audit_prefixes=self.audit_prefixes,
        )


def _weights(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        vector, bm25 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidArgumentError(
            f"--weights is {text!r}; accepted: two numbers, for example 2,1"
        ) from error
    return vector, bm25


def files_as_data(data: str, corpus: Path | None, queries: Path | None, qrels: Path | None) -> str:
    """Three files as the data set of a run.

    Raises:
        InvalidArgumentError: one is missing, or a data set is named as well.
    """
    if data or not (corpus and queries and qrels):
        raise InvalidArgumentError("--corpus, --queries and --qrels go together, without --data")
    return table_paths(corpus, queries, qrels)


def default_data() -> str:
    """The golden set where it is at hand, else the small set inside the package."""
    names = [info.name for info in list_datasets()]
    return "civic" if "civic" in names else "mini"


def local_providers() -> list[str]:
    """Spec strings of every local provider that can run here, one per target that auto-detection tries."""
    targets = set(provider_order()) - {"api"}
    return [
        f"{spec.name}@{spec.target}"
        for spec in EMBEDDERS
        if spec.auto
        and spec.target in targets
        and (answer := EMBEDDERS.availability(spec)).ok
        and answer.is_ready
    ]


@contextmanager
def job_engine(options: RunOptions, spec: RunSpec) -> Iterator[JobEngine | None]:
    """What ``--engine`` names, left at the end; None for this machine.

    Raises:
        UnknownNameError, InvalidArgumentError, ProviderUnavailableError: it cannot be used so.
    """
    if options.engine not in ("local", "ray"):
        raise UnknownNameError(
            f"unknown engine {options.engine!r}{nearest(options.engine, ('local', 'ray'))}"
        )
    if options.engine == "local":
        if options.address:
            raise InvalidArgumentError(f"--address {options.address} is of a cluster; add --engine ray")
        yield None
        return
    from harness.ray_jobs import RayJobs, check_spec

    check_spec(spec)
    with RayJobs(options.address) as engine:
        yield engine


def run_command(options: RunOptions, say: Print) -> int:
    """Run, write the report, print table and verdict; returns the exit status."""
    from harness.render import write_report
    from harness.rows import clean

    spec = options.spec()
    out = options.out or _default_folder(spec)
    say(f"{data_name(spec.data)}: {', '.join(spec.providers)} into {out}")
    status = 0
    try:
        with job_engine(options, spec) as engine, reporter(say) as shown:
            document = run_spec(spec, out, fresh=options.fresh, on_event=shown, engine=engine)
    except KeyboardInterrupt:
        document, status = load_result(out), 130
        say("interrupted; the finished cells are kept. Go on with the same command.")
    document = clean(document)  # judged once for the report and the summary
    written = write_report(document, out)
    summarise(document, say)
    for note in (*document.notes, *written.notes):
        say(wrapped(note))
    say(f"report: {out / 'report.md'} ({len(written)} files)")
    return status or (3 if any(cell.status != "ok" for cell in document.cells) else 0)


def summarise(document: ResultDocument, say: Print) -> None:
    """The table, then the verdict in sentences; its details stand in the report."""
    from harness.summary import verdict
    from harness.tables import terminal_table

    say(terminal_table(document, terminal_width()))
    for sentence in verdict(document).lead:
        say(wrapped(sentence))


def _default_folder(spec: RunSpec) -> Path:
    """``reports/<date>-<name>``; with a number where that folder holds a result of other settings."""
    day = now_utc()[:10]
    stem = Path("reports") / f"{day}-{data_name(spec.data)}"
    folder, number = stem, 1
    while (folder / "result.json").exists() and load_result(folder).spec_digest != spec.digest:
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    return folder


def data_name(data: str) -> str:
    """The short name of a data set given by name, folder or files."""
    _, rest = split_format(data)
    first = Path(rest.split(os.pathsep)[0])
    if os.pathsep in rest:
        return first.resolve().parent.name
    return first.stem if first.is_file() else first.name


def check_lines(data: str) -> tuple[list[str], int]:
    """The findings of `bench data check` as lines, and how many of them are errors."""
    from harness.lint import check

    dataset = load_dataset(data)
    findings = check(dataset)
    lines = [
        f"{dataset.name}: {len(dataset.documents)} documents, {len(dataset.queries)} queries, "
        f"{len(dataset.qrels)} judgements read"
    ]
    for finding in findings:
        lines.append(f"{finding.severity}: {finding.message}")
        lines += [f"    {example}" for example in finding.examples]
    errors = sum(finding.severity == "error" for finding in findings)
    lines.append(f"{errors} errors, {len(findings) - errors} warnings")
    return lines, errors


def doctor_lines() -> list[str]:
    """Where each package was imported from, the machine, and the providers."""
    from harness.environment import environment, installed_from, plugin_distributions

    found = environment()
    lines = ["packages"]
    lines += [f"  {name:<20} {folder}" for name, folder in installed_from().items()]
    lines += [f"  {name:<20} {version}" for name, version in found["packages"].items()]
    lines += ["plug-ins", *(f"  {name}" for name in plugin_distributions()), "machine"]
    shown = ("cpu_model", "cpu_flags", "cpus_usable", "memory_bytes", "os", "python", "threads")
    lines += [f"  {name:<20} {found[name]}" for name in shown]
    return [*lines, *provider_lines()]

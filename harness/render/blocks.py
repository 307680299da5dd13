"""The parts of ``report.md`` that say how things were measured: times, counts, settings, data, machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.provenance import machine_name, machines
from harness.render.format import MISSING, megabytes, milliseconds, number, rate, seconds
from harness.replaying import REPLAYED
from harness.results import ResultDocument
from harness.rows import Row, metric_names
from harness.summary import metric_title, reasons
from harness.tables import pipe_table
from harness.timing import LEAST_FOR_P95, LEAST_FOR_P99, percentile

__all__ = [
    "STAGES",
    "counts",
    "data_set",
    "escape",
    "machine",
    "median_s",
    "not_measured",
    "provenance",
    "speed",
    "stage_names",
    "stages",
    "warnings",
    "what_was_run",
]

#: The stages of a query in the order they run.
STAGES = ("embed", "vector", "bm25", "fusion", "rerank")
COUNTS = (
    ("queries", "n_queries"),
    ("answered", "n_answered"),
    ("empty answers", "n_empty_answers"),
    ("failed", "n_failed"),
    ("missing", "n_missing"),
    ("evaluated", "n_evaluated"),
    ("documents stored", "n_documents_stored"),
    ("truncated documents", "n_truncated_documents"),
    ("truncated queries", "n_truncated_queries"),
    ("truncated pairs", "n_truncated_pairs"),
    ("duplicates", "n_duplicates"),
)

#: An underscore inside a word is plain text in markdown; a pipe is the table's business.
_MARKUP = re.compile(r"[\\`*\[]|<(?=\S)|(?<!\w)_|_(?!\w)")


def escape(text: str) -> str:
    """``text`` on one line, with nothing in it that markdown reads as markup."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def finite(samples: Iterable[float | None]) -> list[float]:
    """The samples that were measured: a failed query has none."""
    return [sample for sample in samples if sample is not None]


def median_s(row: Row, stage: str) -> float | None:
    """Median seconds of a stage over the timed queries; None where it did not run."""
    found = row.cell.stages.get(stage)
    return percentile(finite(found.samples_s), 50) if found else None


def speed(rows: Sequence[Row]) -> str:
    """Cold start apart from warm percentiles."""
    measured = [row for row in rows if row.cell.status == "ok"]
    if not measured:
        return ""
    on_device = any(row.speed("peak_device_bytes") for row in measured)
    memories = ("peak_rss_bytes", "peak_device_bytes") if on_device else ("peak_rss_bytes",)
    cold, warm = [], []
    for row in measured:
        names = ("import_s", "load_s", "first_call_s", "embed_s", "build_s")
        cold.append([row.label, *(seconds(row.speed(name)) for name in names)])
        cold[-1] += [rate(row.speed("docs_per_s")), rate(row.speed("tokens_per_s"))]
        cold[-1] += [megabytes(row.speed(name)) for name in memories]
        warmups = max((len(stage.warmup_s) for stage in row.cell.stages.values()), default=0)
        warm.append([row.label, str(len(finite(row.cell.total_s))), str(warmups)])
        warm[-1] += [milliseconds(row.speed(name)) for name in ("p50_s", "p95_s", "p99_s")]
    columns = ["system", "import", "load", "first call", "embed corpus", "build BM25", "docs/s", "tokens/s"]
    columns += ["memory", "device memory"][: len(memories)]
    out = "## Cold start and throughput\n\n" + pipe_table(columns, cold, numeric=len(columns) - 1)
    out += "\nThe latencies below count none of these.\n"
    columns = ["system", "samples", "warm-ups thrown away", "p50 ms", "p95 ms", "p99 ms"]
    out += "\n## Warm latency of a query\n\n" + pipe_table(columns, warm, numeric=5)
    return out + (
        f"\np95 is given from {LEAST_FOR_P95} samples on, p99 from {LEAST_FOR_P99}: with fewer it would be "
        "the maximum under another name.\n"
    )


def stage_names(rows: Sequence[Row]) -> list[str]:
    """Every stage that ran, in the order of :data:`STAGES`; unknown ones follow by name."""
    ran = {name for row in rows if row.cell.status == "ok" for name in row.cell.stages}
    return [name for name in STAGES if name in ran] + sorted(ran - set(STAGES))


def stages(rows: Sequence[Row]) -> str:
    """Milliseconds of each stage: medians, then 95th percentiles where there are samples enough."""
    measured = [row for row in rows if row.cell.status == "ok" and row.cell.stages]
    names = stage_names(measured)
    if not names:
        return ""
    body = [[row.label, *(milliseconds(median_s(row, name)) for name in names)] for row in measured]
    out = "## Median latency by stage, ms\n\n" + pipe_table(["system", *names], body, numeric=len(names))
    slow = [(row.label, [_p95_s(row, name) for name in names]) for row in measured]
    body = [
        [label, *map(milliseconds, values)] for label, values in slow if any(v is not None for v in values)
    ]
    if body:
        out += "\n## p95 latency by stage, ms\n\n" + pipe_table(["system", *names], body, numeric=len(names))
    return out


def _p95_s(row: Row, stage: str) -> float | None:
    found = row.cell.stages.get(stage)
    samples = finite(found.samples_s) if found else []
    return percentile(samples, 95) if len(samples) >= LEAST_FOR_P95 else None


def not_measured(document: ResultDocument, rows: Sequence[Row]) -> str:
    """Cells that failed or could not run, and figures that are missing from the others."""
    lines = []
    for status in ("failed", "skipped"):
        chosen = [row for row in rows if row.cell.status == status]
        for reason, names in reasons(chosen).items():
            lines.append(f"- {status}: {escape(', '.join(names))}: {escape(reason)}\n")
    for row in rows:
        if row.cell.status != "ok":
            continue
        gaps = [metric_title(name) for name in metric_names(document) if row.cell.mean(name) is None]
        if gaps:
            lines.append(f"- {escape(row.label)}: no value of {', '.join(gaps)} (null in the result)\n")
        n = len(finite(row.cell.total_s))
        if replayed := row.cell.settings.get(REPLAYED):
            stages = " and ".join(map(str, replayed))
            lines.append(f"- {escape(row.label)}: latency ({stages} answered from recordings)\n")
        elif row.speed("p95_s") is None:
            lines.append(f"- {escape(row.label)}: p95 ({n} samples, {LEAST_FOR_P95} needed)\n")
    return "## Not measured\n\n" + "".join(lines) if lines else ""


def warnings(rows: Sequence[Row]) -> str:
    """Every warning with the cells it was given for."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for text in row.cell.warnings:
            found.setdefault(text, []).append(row.label)
    lines = [f"- {escape(text)} ({escape(', '.join(names))})\n" for text, names in found.items()]
    return "## Warnings\n\n" + "".join(lines) if lines else ""


def counts(rows: Sequence[Row]) -> str:
    """Who was counted."""
    measured = [row for row in rows if row.cell.counts]
    columns = [(title, name) for title, name in COUNTS if any(name in row.cell.counts for row in measured)]
    if not columns:
        return ""
    body = [
        [row.label, *(str(row.cell.counts.get(name, MISSING)) for _, name in columns)] for row in measured
    ]
    table = pipe_table(["system", *(title for title, _ in columns)], body, numeric=len(columns))
    return "## Counts\n\n" + table + "\nA failed or missing query counts 0 in every mean.\n"


def what_was_run(document: ResultDocument, rows: Sequence[Row]) -> str:
    """Settings of the run, then each model's identity."""
    settings = [(name, value) for name, value in document.spec.items() if value not in (None, "", [], ())]
    out = "## What was run\n\n" + _pairs("setting", settings)
    lists = {id_: value for row in rows for id_, value in _cell_settings(row)}
    if lists:
        out += "\n" + _pairs("recorded while running", lists.items())
    seen: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.cell.fingerprint:
            seen.setdefault(str(row.cell.fingerprint.get("digest", row.label)), row.cell.fingerprint)
    if not seen:
        return out
    fields = [
        "provider",
        "model",
        "revision",
        "dim",
        "dtype",
        "pooling",
        "query_template",
        "document_template",
        "max_tokens",
        "batching",
        "digest",
    ]
    body = [[_plain(values.get(name)) for name in fields] for values in seen.values()]
    return out + "\nModels, as their fingerprints tell:\n\n" + pipe_table(fields, body)


def _cell_settings(row: Row) -> Iterable[tuple[str, Any]]:
    """Settings that a cell alone knows: analyser, tie rule, reranker; the run's own are left out."""
    own = row.cell.settings
    bm25 = own.get("bm25")
    if isinstance(bm25, Mapping):
        for name in ("engine", "analyser", "idf"):
            if name in bm25:
                yield f"BM25 {name}", bm25[name]
    for name in ("tie_rule", "scope", "rounds"):
        if own.get(name) not in (None, ""):
            yield name, own[name]
    fusion = own.get("fusion")
    if isinstance(fusion, Mapping):
        weights = fusion.get("weights")
        shown = "equal weights" if weights is None else f"weights {_plain(weights)}"
        constant = f", k = {_plain(fusion['k'])}" if "k" in fusion else ""
        yield "fusion", f"{fusion.get('method')}{constant}, {shown}"
        means = own.get("mean_weights")
        if isinstance(means, Mapping):
            shown = ", ".join(f"{leg} {mean:.2f}" for leg, mean in means.items())
            yield f"weights of {fusion.get('method')}, mean of the queries", shown
    if own.get("reranker"):
        yield f"reranker {row.cell.key.reranker}", own["reranker"]


def _plain(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return str(value)


def _pairs(head: str, values: Iterable[tuple[str, Any]]) -> str:
    return pipe_table([head, "value"], [[name, escape(_plain(value))] for name, value in values])


def data_set(document: ResultDocument) -> str:
    """Sizes, hashes and licence of the data, and the rule about queries without an answer."""
    data = document.dataset
    names = ["name", "languages", "licence", "n_documents", "n_documents_empty"]
    names += ["n_queries", "n_judgements", "n_without_relevant"]
    pairs = [(name, data.get(name)) for name in names]
    pairs += [(f"hash of {part}", digest) for part, digest in (data.get("hash") or {}).items()]
    out = "## Data set\n\n" + _pairs("data set", pairs)
    out += (
        f"\nThe {number(len(data.get('query_ids', ())))} queries with a relevant document are judged; "
        f"queries without one ({data.get('n_without_relevant', 0)} here) have no ideal ranking and are "
        "left out of every mean. A document is relevant from grade 1 on.\n"
    )
    notes = data.get("notes") or []
    return out + ("\n" + "".join(f"- {escape(str(note))}\n" for note in notes) if notes else "")


def machine(document: ResultDocument) -> str:
    """The machine and software that the times hold for."""
    found = document.environment
    pairs = [
        (name, megabytes(value) if name.endswith("_bytes") else value)
        for name, value in found.items()
        if value not in (None, "", [], {})
    ]
    others = "".join(
        f"\n{len(cells)} cells were measured on {escape(machine_name(one))}: "
        + ", ".join(escape(cell.key.cell_id) for cell in cells)
        + ".\n"
        for one, cells in machines(document)
        if one is not document.environment
    )
    return "## Machine and software\n\n" + _pairs("environment", pairs) + others if pairs else ""


def provenance(document: ResultDocument) -> str:
    """When and with what the result was made."""
    tool = " ".join(document.tool.get(name, "") for name in ("name", "version")).strip()
    lines = [
        f"- status {document.status}; measured {document.created}; settings {document.spec_digest}",
        f"- made with {tool or 'an unnamed tool'}, schema version {document.schema_version}",
    ]
    resumed = sum(cell.resumed for cell in document.cells)
    if document.resumed_from:
        lines.append(f"- {resumed} cells were kept from {', '.join(document.resumed_from)}")
    lines += [f"- {escape(note)}" for note in document.notes]
    return "## Provenance\n\n" + "".join(f"{line}\n" for line in lines)

"""``report.md``: the verdict first, then the tables and plots it rests on, then how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.render import blocks, economics, plots
from harness.render.attribution import lost_documents
from harness.render.audits import label_health, texts_and_roles
from harness.render.commands import commands
from harness.render.cost import cost
from harness.render.format import (
    MISSING,
    interval,
    megabytes,
    milliseconds,
    p_value,
    percent,
    rate,
    score,
    signed,
)
from harness.render.fusion import fusion
from harness.render.load import load
from harness.render.pairwise import how_sure
from harness.render.recommendation import recommendation
from harness.render.stores import stores
from harness.render.strata import by_overlap, by_tags
from harness.render.thresholds import score_thresholds
from harness.render.variants import agreement
from harness.results import ResultDocument, write_atomic
from harness.rows import Row, clean, main_metric, make_rows, metric_names, once
from harness.summary import metric_title, verdict
from harness.tables import MARK, pipe_table
from rag_core.errors import MissingExtraError

__all__ = ["FILE", "grouped", "render", "write"]

FILE = "report.md"
Column = tuple[str, Callable[[Row], str]]


def write(document: ResultDocument, folder: Path) -> list[Path]:
    """Write ``report.md`` into ``folder``; it shows the plots that stand there."""
    note = ""
    try:
        plots.require(load=False)
        figures = [f.stem for f in plots.FIGURES if (folder / f"{f.stem}.svg").exists()]
    except MissingExtraError as error:
        figures, note = [], f"not drawn: {error}"
    path = folder / FILE
    write_atomic(path, render(document, figures, note))
    return [path]


def render(document: ResultDocument, figures: Sequence[str] = (), plot_note: str = "") -> str:
    """The report as text: the same document gives the same bytes.

    Args:
        document: what was measured.
        figures: stems of the plots beside the report, of :data:`harness.render.plots.FIGURES`.
        plot_note: why there are none.
    """
    document = clean(document)
    rows = make_rows(document)
    metric = main_metric(document)
    said = verdict(document)
    found = dict(grouped(document))
    sections = [
        f"# {_title(document)}\n",
        "## Verdict\n\n" + "".join(f"- {blocks.escape(sentence)}\n" for sentence in said.sentences),
        *found.pop("recommendation"),
        "## Results\n\n" + _main_table(rows, metric),
        *found.pop("sure"),
        *found.pop("metrics"),
        _plots(figures, plot_note),
        *(section for group in found.values() for section in group),
        commands(document, rows),
    ]
    return "\n".join(section for section in sections if section)


def grouped(document: ResultDocument) -> Mapping[str, Sequence[str]]:
    """Every section below the main table, in order, by what it is about; empty ones are left out.

    ``report.html`` shows the same sections under these names.
    """
    document = clean(document)
    return once(document, "sections", lambda: _grouped(document))


def _grouped(document: ResultDocument) -> dict[str, list[str]]:
    rows = make_rows(document)
    metric = main_metric(document)
    made = {
        "recommendation": [recommendation(document)],
        "sure": [how_sure(document, rows, metric), fusion(document, rows, metric)],
        "metrics": [_other_metrics(document, rows), _headline(document, rows, metric)],
        "strata": [by_tags(document, rows, metric), by_overlap(document, rows, metric)],
        "losses": [lost_documents(rows)],
        "reranking": [
            economics.reranking(rows, document.seed),
            score_thresholds(rows, document.seed),
        ],
        "audits": [texts_and_roles(document, rows), label_health(document, rows, metric)],
        "cost": [cost(document, rows)],
        "agreement": [agreement(document)],
        "speed": [blocks.speed(rows), blocks.stages(rows), load(rows), stores(rows)],
        "gaps": [blocks.not_measured(document, rows), blocks.warnings(rows)],
        "method": [
            blocks.counts(rows),
            blocks.what_was_run(document, rows),
            blocks.data_set(document),
            blocks.machine(document),
            blocks.provenance(document),
        ],
    }
    return {name: [section for section in group if section] for name, group in made.items()}


def _title(document: ResultDocument) -> str:
    n = len([cell for cell in document.cells if cell.status == "ok"])
    return f"{blocks.escape(document.name)}: {n} of {len(document.cells)} cells measured"


def _main_table(rows: Sequence[Row], metric: str) -> str:
    title = metric_title(metric)
    columns: list[Column] = [
        ("system", _marked),
        ("status", lambda row: row.cell.status),
        (title, lambda row: score(row.score.mean) if row.ok and row.score else MISSING),
        ("95 % interval", lambda row: interval(row.score.low, row.score.high) if row.score else MISSING),
        ("Δ baseline", _versus(lambda d: signed(d.mean))),
        ("Δ 95 % interval", _versus(lambda d: f"{signed(d.low)} to {signed(d.high)}")),
        ("Δ %", _versus(lambda d: percent(d.relative))),
        ("corrected p", _versus(lambda d: p_value(d.adjusted))),
        ("p50 ms", lambda row: milliseconds(row.speed("p50_s"))),
        ("p95 ms", lambda row: milliseconds(row.speed("p95_s"))),
        ("docs/s", lambda row: rate(row.speed("docs_per_s"))),
        ("peak memory", lambda row: megabytes(row.speed("peak_rss_bytes"))),
    ]
    table = pipe_table(
        [name for name, _ in columns],
        [[make(row) for _, make in columns] for row in rows],
        numeric=len(columns) - 2,
    )
    marked = f", and with {MARK} what is not recommended" if any(row.doubt for row in rows) else ""
    return table + (
        f"\nBold: the highest{marked}. Δ: difference from the baseline on the same queries, with a bootstrap "
        "interval; p values of the randomisation test after Holm's correction.\n"
    )


def _marked(row: Row) -> str:
    if row.doubt:
        return f"{MARK} {row.label}"
    return f"**{row.label}**" if row.is_winner else row.label


def _versus(make: Callable[..., str]) -> Callable[[Row], str]:
    def field(row: Row) -> str:
        if row.is_baseline:
            return "baseline"
        return make(row.versus) if row.versus else MISSING

    return field


def _other_metrics(document: ResultDocument, rows: Sequence[Row]) -> str:
    names = metric_names(document)
    measured = [row for row in rows if row.cell.status == "ok"]
    if not names or not measured:
        return ""
    body = [[row.label, *(score(row.cell.mean(name)) for name in names)] for row in measured]
    table = pipe_table(["system", *(metric_title(name) for name in names)], body, numeric=len(names))
    return "## All metrics\n\n" + table


def _headline(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    wanted = [str(q) for q in document.dataset.get("headline", ())]
    if not wanted:
        return ""
    query_ids = list(document.dataset.get("query_ids", ()))
    judged = [q for q in wanted if q in query_ids]
    measured = [row for row in rows if row.ok]
    baseline = next((row.headline for row in measured if row.is_baseline), None)
    body = []
    for row in measured:
        values = row.score.per_query if row.score else []
        each = [score(values[i]) if (i := query_ids.index(q)) < len(values) else MISSING for q in judged]
        change = percent(row.headline / baseline - 1) if baseline and row.headline is not None else MISSING
        body.append(
            [row.label, *each, score(row.headline), "baseline" if row.is_baseline else change],
        )
    columns = ["system", *judged, "mean", "Δ %"]
    out = f"## {metric_title(metric)} on the headline queries\n\n"
    out += pipe_table(columns, body, numeric=len(columns) - 1)
    left_out = [q for q in wanted if q not in query_ids]
    if left_out:
        out += f"\nWithout a relevant document, and so left out: {', '.join(left_out)}.\n"
    return out


def _plots(figures: Sequence[str], note: str) -> str:
    if note:
        return f"## Plots\n\n{blocks.escape(note[0].upper() + note[1:])}\n"
    shown = [figure for figure in plots.FIGURES if figure.stem in figures]
    if not shown:
        return ""
    return "## Plots\n\n" + "\n".join(f"![{figure.alt}]({figure.stem}.svg)\n" for figure in shown)

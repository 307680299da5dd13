"""``report.html``: the whole report in one file that asks for nothing else, as a mail can carry it.

What it says comes from the functions behind ``report.md``; here stands only the form. The tables are whole
without script. The file declares a policy under which it can neither load nor send anything, and runs no
script but its own. The same result gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from harness.render import htmlbars
from harness.render.drilldown import as_json, drilldown
from harness.render.format import MISSING, interval, megabytes, rate, score, seconds, signed
from harness.render.front import pareto
from harness.render.htmltable import scale, systems_table
from harness.render.htmltext import as_html, esc, heading, table
from harness.render.markdown import grouped
from harness.reproduce import command
from harness.results import ResultDocument, write_atomic
from harness.rows import Row, clean, main_metric, make_rows, metric_names
from harness.summary import Verdict, metric_title, verdict

__all__ = ["FILE", "model", "render", "write"]

FILE = "report.html"
SCRIPTS = ("common.js", "table.js", "tradeoff.js", "queries.js")
#: Group of sections → its heading and what it is called in the list of contents.
GROUPS = {
    "recommendation": ("Recommendation", "Recommendation"),
    "sure": ("How sure that is", "Certainty"),
    "metrics": ("All metrics", "Metrics"),
    "strata": ("By kind of query", "Kinds of query"),
    "losses": ("Where relevant documents were lost", "Losses"),
    "reranking": ("Reranking", "Reranking"),
    "audits": ("What the texts and labels say", "Audits"),
    "cost": ("Cost", "Cost"),
    "agreement": ("Agreement between implementations", "Agreement"),
    "speed": ("Latency, cold start and throughput", "Latency"),
    "gaps": ("Not measured, and warnings", "Warnings"),
    "method": ("How it was measured", "Method"),
}
#: Sections whose figures stand in bars above them: the table opens when it is asked for.
FOLDED = ("Median latency by stage, ms", "Where relevant documents were lost", "Warm latency of a query")
#: Groups above the queries; the others stand below.
ABOVE = (
    "recommendation", "sure", "speed", "metrics", "strata", "losses", "reranking", "audits", "cost",
    "agreement",
)  # fmt: skip


def write(
    document: ResultDocument, folder: Path, beside: Path | None = None, *, texts: bool = True
) -> list[Path]:
    """Write ``report.html`` into ``folder``, from the document and the run files in ``beside``."""
    path = folder / FILE
    write_atomic(path, render(document, beside or folder, texts=texts))
    return [path]


def render(document: ResultDocument, folder: Path, *, texts: bool = True) -> str:
    """The page as text.

    Args:
        document: what was measured.
        folder: where ``runs/`` stands, if the lists and texts are to be shown.
        texts: whether those of queries and documents may be; ids, lists and grades are in any case.
    """
    document = clean(document)
    rows = make_rows(document)
    said = verdict(document)
    style, script = _asset("report.css"), "\n".join(_asset(name) for name in SCRIPTS)
    drill = drilldown(document, rows, folder, texts=texts)
    sections = _sections(document, rows)
    names = metric_names(document)
    main = main_metric(document)
    options = "".join(
        f'<option value="{i}"{" selected" if name == main else ""}>{esc(metric_title(name))}</option>'
        for i, name in enumerate(names)
    )
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        title=esc(f"{document.name}: which system to run"),
        name=esc(document.name),
        style=style,
        script=script,
        facts=_facts(document),
        verdict=_verdict(rows, said),
        contents=_contents(sections, bool(drill)),
        systems=systems_table(rows, names, main, document.spec.get("usd_per_hour")),
        metric_options=options,
        metric_hidden="" if len(names) > 1 else " hidden",
        providers=_options(row.cell.key.provider for row in rows),
        pipelines=_options(row.cell.key.pipeline for row in rows),
        main_title=esc(metric_title(main)),
        above="".join(sections[name] for name in ABOVE if name in sections),
        below="".join(html for name, html in sections.items() if name not in ABOVE),
        queries_hidden="" if drill else " hidden",
        model=as_json({**model(document, rows, said), "drill": drill}),
    )


def model(document: ResultDocument, rows: Sequence[Row], said: Verdict) -> dict[str, Any]:
    """What the page's script reads, without single queries: metrics, and each row's point of the plot."""
    names = metric_names(document)
    fronts = [_front(rows, name) for name in names]
    return {
        "metrics": [{"name": name, "title": metric_title(name), "most": scale(rows, name)} for name in names],
        "main": names.index(main_metric(document)) if names else 0,
        "rows": [
            {
                "label": row.label,
                "pipeline": row.cell.key.pipeline,
                "winner": row.is_winner,
                "baseline": row.is_baseline,
                "p95": None if (p95 := row.speed("p95_s")) is None or not row.ok else round(p95 * 1000, 6),
                "means": [_rounded(row.cell.mean(name)) if row.ok else None for name in names],
                "bounds": [_bounds(row, name) for name in names],
                "front": [place in front for front in fronts],
                "said": _said(row),
            }
            for place, row in enumerate(rows)
        ],
        "winner": next((i for i, row in enumerate(rows) if row.cell.key.cell_id == said.winner), None),
        "runner_up": next((i for i, row in enumerate(rows) if row.cell.key.cell_id == said.runner_up), None),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _bounds(row: Row, name: str) -> list[float | None] | None:
    found = row.cell.metrics.get(name)
    return [_rounded(found.low), _rounded(found.high)] if row.ok and found else None


def _said(row: Row) -> str:
    """What the plot says beside a point, but for the metric."""
    parts = [
        f"p95 {seconds(row.speed('p95_s'))}",
        f"p50 {seconds(row.speed('p50_s'))}",
        f"{rate(row.speed('docs_per_s'))} docs/s",
        f"{megabytes(row.speed('peak_rss_bytes'))} memory",
    ]
    return " · ".join(parts)


def _front(rows: Sequence[Row], name: str) -> set[int]:
    """Places of the rows that no other beats in both the metric and p95."""
    places, points = [], []
    for place, row in enumerate(rows):
        p95, mean = row.speed("p95_s"), row.cell.mean(name)
        if row.ok and p95 and mean is not None:
            places.append(place)
            points.append((p95, mean))
    return {places[i] for i in pareto(points)}


def _asset(name: str) -> str:
    return files("harness.render").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _options(values: Any) -> str:
    return "".join(f'<option value="{esc(value)}">{esc(value)}</option>' for value in dict.fromkeys(values))


def _facts(document: ResultDocument) -> str:
    """Data, number of queries, date and machine, a line each."""
    data, machine = document.dataset, document.environment
    n = len(data.get("query_ids", ()))
    cpus = machine.get("cpus_usable")
    where = str(machine.get("cpu_model") or machine.get("platform") or "")
    pairs = [
        ("data", f"{document.name}, {data.get('n_documents', 0):,} documents"),
        ("judged queries", f"{n:,}"),
        ("languages", ", ".join(data.get("languages") or ())),
        ("measured", document.created.replace("T", " ").replace("Z", " UTC")),
        ("machine", f"{where}, {cpus} CPUs" if cpus else where),
        ("tool", " ".join(document.tool.get(part, "") for part in ("name", "version")).strip()),
    ]
    return "".join(f"<div><dt>{esc(k)}</dt><dd>{esc(v)}</dd></div>" for k, v in pairs if v)


def _verdict(rows: Sequence[Row], said: Verdict) -> str:
    first, *rest = said.sentences
    evidence = [sentence for sentence in rest if sentence not in said.cautions]
    best = next((row for row in rows if row.cell.key.cell_id == said.winner), None)
    out = f'<p class="headline"><bdi>{esc(first)}</bdi></p>'
    if best is not None:
        out += _tiles(best, said)
    parts = []
    if evidence:
        parts.append(f'<div class="evidence"><h3>What it rests on</h3>{_list(evidence)}</div>')
    if said.cautions:
        parts.append(f'<div class="cautions"><h3>What limits it</h3>{_list(said.cautions)}</div>')
    return out + (f'<div class="said-why">{"".join(parts)}</div>' if parts else "")


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li><bdi>{esc(sentence)}</bdi></li>" for sentence in sentences) + "</ul>"


def _tiles(best: Row, said: Verdict) -> str:
    found = best.cell.metrics[said.metric]
    gap = said.against_baseline
    p50 = f"p50 {seconds(best.speed('p50_s'))}"
    tiles = [(score(found.mean), metric_title(said.metric), f"95 % {interval(found.low, found.high)}")]
    if gap is not None:
        tiles.append((signed(gap.mean), "against the baseline", f"{signed(gap.low)} to {signed(gap.high)}"))
    tiles += [
        (seconds(best.speed("p95_s")), "p95 of a query", p50),
        (megabytes(best.speed("peak_rss_bytes")), "memory at its peak", ""),
        (rate(best.speed("docs_per_s")), "documents a second", ""),
    ]
    return (
        f'<div class="tiles" aria-label="Figures of {esc(best.label)}" role="group">'
        + "".join(
            f"<div><b>{esc(t[0])}</b><span>{esc(t[1])}</span><small>{esc(t[2])}</small></div>"
            for t in tiles
            if t[0] != MISSING
        )
        + "</div>"
    )


def _sections(document: ResultDocument, rows: Sequence[Row]) -> dict[str, str]:
    """The groups of the markdown report as HTML, with bars where they say more, and the commands."""
    out = {}
    for name, group in grouped(document).items():
        title = GROUPS[name][0] if name in GROUPS else name.capitalize()
        parts = [part for one in group for part in re.split(r"(?m)^(?=## )", one) if part.strip()]
        folds = [name == "method" or heading(one)[0] in FOLDED for one in parts]
        shown = [_folded(as_html(one)) if fold else as_html(one) for one, fold in zip(parts, folds)]
        # a heading that only repeats the one above it is left out
        body = re.sub(rf"^<h3>{re.escape(esc(title))}</h3>", "", "".join(shown))
        body = (
            _BARS.get(name, lambda _: "")(rows)
            + (_commands(document, rows) if name == "method" else "")
            + body
        )
        if body:
            out[name] = f'<section id="{name}"><h2>{esc(title)}</h2>{body}</section>'
    return out


def _folded(html: str) -> str:
    """A section that opens when it is asked for, under its own heading."""
    found = re.match(r"<h3>(.*?)</h3>", html, re.S)
    if not found:
        return html
    return f'<details class="fold"><summary>{found[1]}</summary>{html[found.end() :]}</details>'


def _share(bars: str, words: str) -> str:
    switch = '<button type="button" class="switch" aria-pressed="false">as shares</button>'
    return f'<figure class="chart"><figcaption>{words}</figcaption>{switch}{bars}</figure>' if bars else ""


_BARS: Mapping[str, Any] = {
    "speed": lambda rows: _share(
        htmlbars.latency(rows),
        "Medians of the warm, timed queries by stage, in ms, fastest first; cold start is not in it.",
    ),
    "losses": lambda rows: _share(
        htmlbars.losses(rows), "Relevant documents of the judged queries, by where each ended."
    ),
}


def _commands(document: ResultDocument, rows: Sequence[Row]) -> str:
    """The command that makes each row again."""
    body = [[esc(row.label), f"<code>{esc(command(document, row.cell))}</code>"] for row in rows]
    if not body:
        return ""
    shown = table(["system", "command"], body, [False, False], "Commands")
    return f'<details class="fold"><summary>The command that makes each row again</summary>{shown}</details>'


def _contents(sections: Mapping[str, str], has_queries: bool) -> str:
    places = [("systems-section", "Systems"), ("tradeoff", "Trade-off")]
    places += [(name, GROUPS[name][1]) for name in ABOVE if name in sections]
    places += [("queries", "Queries")] if has_queries else []
    places += [(name, GROUPS.get(name, ("", name))[1]) for name in sections if name not in ABOVE]
    return "".join(f'<a href="#{place}">{esc(title)}</a>' for place, title in places)

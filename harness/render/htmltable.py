"""The table of all systems: a plain HTML table that is whole without script, sorted and filtered with it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.limits import usd_per_1k
from harness.render.format import (
    MISSING,
    interval,
    megabytes,
    milliseconds,
    number,
    p_value,
    percent,
    rate,
    score,
    signed,
)
from harness.render.htmlbars import whisker
from harness.render.htmltext import esc
from harness.rows import Row
from harness.summary import metric_title

__all__ = ["scale", "systems_table"]

#: Head, name in ``cell.speed`` and how it is written, of the columns of times and sizes.
SPEED = (
    ("p50 ms", "p50_s", milliseconds),
    ("p95 ms", "p95_s", milliseconds),
    ("docs/s", "docs_per_s", rate),
    ("memory", "peak_rss_bytes", megabytes),
)


def scale(rows: Sequence[Row], name: str) -> float:
    """The end of the axis of a metric's bars: the next tenth above the highest interval, at most 1."""
    highs = [max(m.mean or 0.0, m.high or 0.0) for row in rows if (m := row.cell.metrics.get(name))]
    return min(1.0, int(max(highs, default=1.0) * 10 + 1) / 10) or 1.0


def systems_table(rows: Sequence[Row], names: Sequence[str], main: str, per_hour: float | None) -> str:
    """The table; the columns of each metric but ``main`` are hidden until they are asked for."""
    costs = [usd_per_1k(row, per_hour) if row.ok else None for row in rows]
    has_costs = any(costs)  # where nothing is charged, a column of noughts says nothing
    heads = [_head("system", "text", "")]
    for place, name in enumerate(names):
        more = f' data-m="{place}"' + ("" if name == main else " hidden")
        heads.append(_head(metric_title(name), "number", more, down=name == main))
        heads.append(_head("Δ baseline", "number", f'{more} class="n"'))
    heads += [_head(title, "number", ' class="n"') for title, _, _ in SPEED]
    heads += [_head("USD per 1,000 queries", "number", ' class="n wrap"')] if has_costs else []
    baseline = next((row for row in rows if row.is_baseline and row.ok), None)
    scales = {name: scale(rows, name) for name in names}
    order = sorted(range(len(rows)), key=lambda i: (not rows[i].ok, -(rows[i].cell.mean(main) or 0.0), i))
    body = []
    for place in order:
        row = rows[place]
        cells = [_system(row)]
        if row.cell.status != "ok":
            span = 2 + len(SPEED) + has_costs
            reason = row.cell.reason or "no reason was recorded"
            cells.append(
                f'<td class="reason" colspan="{span}" data-v=""><span class="chip {row.cell.status}">'
                f"{row.cell.status}</span> <bdi>{esc(reason)}</bdi></td>"
            )
        else:
            for at, name in enumerate(names):
                hidden = "" if name == main else " hidden"
                cells += _metric(row, baseline, name, f' data-m="{at}"{hidden}', scales[name])
            cells += [_figure(row.speed(field), write(row.speed(field))) for _, field, write in SPEED]
            cells += [_figure(costs[place], number(costs[place]))] if has_costs else []
        body.append(f"<tr{_data(row, place)}>{''.join(cells)}</tr>")
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="All systems">'
        f'<table id="systems"><thead><tr>{"".join(heads)}</tr></thead><tbody>{"".join(body)}</tbody></table>'
        "</div>"
    )


def _head(title: str, kind: str, more: str, down: bool = False) -> str:
    sorted_now = ' aria-sort="descending"' if down else ""
    return (
        f'<th scope="col" data-kind="{kind}"{more}{sorted_now}>'
        f'<button type="button" class="sort">{esc(title)}<span aria-hidden="true"></span></button></th>'
    )


def _data(row: Row, place: int) -> str:
    key = row.cell.key
    known = {"winner": row.is_winner, "baseline": row.is_baseline, "doubt": bool(row.doubt)}
    marks = " ".join(name for name, is_so in known.items() if is_so)
    return (
        f' id="s{place}" data-provider="{esc(key.provider)}" data-pipeline="{esc(key.pipeline)}" '
        f'data-status="{esc(row.cell.status)}" class="{marks}"'
    )


def _system(row: Row) -> str:
    key = row.cell.key
    chips = [
        '<span class="chip best">highest</span>' if row.is_winner else "",
        '<span class="chip">baseline</span>' if row.is_baseline else "",
        f'<span class="chip doubt" title="{esc(row.doubt)}">not recommended</span>' if row.doubt else "",
    ]
    detail = " · ".join(part for part in (key.target, key.dtype, key.store) if part not in ("", "-"))
    return (
        f'<th scope="row" data-v="{esc(row.label)}"><bdi>{esc(row.label)}</bdi> {"".join(chips)}'
        f'<span class="sub">{esc(detail)}</span></th>'
    )


def _figure(value: float | None, words: str) -> str:
    known = "" if value is None else f"{value:.6g}"
    return f'<td class="n" data-v="{known}">{esc(words)}</td>'


def _metric(row: Row, baseline: Row | None, name: str, more: str, most: float) -> list[str]:
    found = row.cell.metrics.get(name)
    mean = found.mean if found else None
    bounds = interval(found.low, found.high) if found else MISSING
    value = (
        f'<td{more} class="metric" data-v="{"" if mean is None else f"{mean:.6g}"}"><b>{score(mean)}</b> '
        f'<span class="sub">{bounds}</span>{whisker(found, most)}</td>'
    )
    if row.is_baseline:
        return [value, f'<td{more} class="n" data-v="0"><span class="sub">baseline</span></td>']
    if name == row.main and row.versus:
        versus, gap = row.versus, row.versus.mean
        sure = "sure" if versus.sure else "unsure"
        p = p_value(versus.adjusted)
        words = (
            f'<b class="{sure}">{signed(gap)}</b> '
            f'<span class="sub">{signed(versus.low)} to {signed(versus.high)}</span>'
            f'<span class="sub">{percent(versus.relative)} · p {p if p.startswith("<") else f"= {p}"}</span>'
        )
    else:
        base = baseline.cell.mean(name) if baseline else None
        known = mean is not None and base is not None
        gap = (mean or 0.0) - (base or 0.0) if known else float("nan")
        words = f"<b>{signed(gap)}</b>"
    shown = "" if gap != gap else f"{gap:.6g}"
    return [value, f'<td{more} class="n" data-v="{shown}">{words}</td>']

"""What `bench sweep` does between parsing and printing: settings, progress, table, exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.command import data_name, default_data
from harness.progress import reporter, terminal_width, wrapped
from harness.render.format import megabytes, milliseconds, rate, score, signed
from harness.render.sweep import write_sweep
from harness.results import ResultError
from harness.runner import now_utc
from harness.sweep import SweepEvent, sweep
from harness.sweep_plan import SweepSpec, numbers, words
from harness.sweep_result import FILE, Point, SweepDocument, load_sweep
from harness.sweep_summary import agreement_word, best_point, caveats, piece_names, rows, sentences
from rag_core.registry import load_plugins

__all__ = ["SweepOptions", "event_line", "sweep_command", "sweep_table"]

Print = Callable[..., None]
#: What the columns of figures need beside a name folded to a few characters.
NARROWEST = 72


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of `bench sweep` as given; empty values stand for the defaults."""

    providers: tuple[str, ...]
    data: str
    batch_size: str
    dtype: str
    target: str
    candidate_pool: str
    rerankers: tuple[str, ...]
    texts: int
    rounds: int
    threads: int
    out: Path | None
    fresh: bool

    def spec(self) -> SweepSpec:
        """The settings of the sweep, defaults filled in."""
        load_plugins()
        return SweepSpec(
            data=self.data or default_data(),
            providers=tuple(dict.fromkeys(self.providers)),
            batch_sizes=numbers("--batch-size", self.batch_size),
            dtypes=words(self.dtype),
            targets=words(self.target),
            texts=self.texts,
            rounds=self.rounds,
            pools=numbers("--candidate-pool", self.candidate_pool),
            rerankers=tuple(dict.fromkeys(self.rerankers)),
            threads=self.threads,
        )


def sweep_command(options: SweepOptions, say: Print) -> int:
    """Measure, write the report, print table and verdict; returns the exit status."""
    spec = options.spec()
    out = options.out or _default_folder(spec)
    what = [*(spec.providers if spec.sweeps_speed else ()), *spec.rerankers]
    say(f"{data_name(spec.data)}: {', '.join(what)} into {out}")
    status = 0
    try:
        with reporter(say, event_line) as shown:
            document = sweep(spec, out, fresh=options.fresh, on_event=shown)
    except KeyboardInterrupt:
        document, status = load_sweep(out), 130
        say("interrupted; finished variants are kept. Go on with the same command.")
    written, notes = write_sweep(document, out)
    say(sweep_table(document, terminal_width()))
    for text in [*sentences(document), *caveats(document), *notes]:
        say(wrapped(text))
    say(f"report: {out / 'sweep.md'} ({len(written)} files)")
    return status or (0 if document.complete else 3)


def _default_folder(spec: SweepSpec) -> Path:
    """``reports/<date>-<name>-sweep``; with a number where that folder holds a sweep of other settings."""
    day = now_utc()[:10]
    stem = Path("reports") / f"{day}-{data_name(spec.data)}-sweep"
    folder, number = stem, 1
    while (folder / FILE).exists() and not _matches(folder, spec):
        number += 1
        folder = stem.with_name(f"{stem.name}-{number}")
    return folder


def _matches(folder: Path, spec: SweepSpec) -> bool:
    try:
        return load_sweep(folder).spec_digest == spec.digest
    except ResultError:
        return False


def event_line(event: SweepEvent) -> str:
    """One line about what the event finished; empty for other events."""
    if event.point is not None:
        return _point_line(event.label, event.point)
    if event.depth is not None:
        found = event.depth
        return (
            f"ok      {event.label}: pool {found.depth}: nDCG@10 {score(found.after.get('ndcg@10'))}, "
            f"{milliseconds(found.p50_s)} ms a query"
        )
    if event.piece is not None:
        reason = f": {event.piece.reason}" if event.piece.reason else ""
        return f"{event.kind:<7} {event.label}{reason}"
    return ""


def _point_line(label: str, point: Point) -> str:
    if point.status != "ok":
        return f"{point.status:<7} {label}: batch size {point.name}: {point.reason}"
    verdict = (point.agreement or {}).get("verdict", "not compared")
    return f"ok      {label}: batch size {point.name}: {rate(point.passages_per_s)} passages/s, {verdict}"


def sweep_table(document: SweepDocument, width: int = 80) -> str:
    """The tables for people, whole within ``width`` columns (72 at least); they end in a newline."""
    width = max(width, NARROWEST)
    parts = []
    best = {id(p) for p in _recommended(document)}
    body = [
        [
            "*" if id(row.point) in best else "",
            row.name,
            row.point.name,
            rate(row.point.passages_per_s),
            f"{rate(row.point.passages_per_s_low)}–{rate(row.point.passages_per_s_high)}",
            milliseconds(row.variant.speed.get("query_p50_s")),
            megabytes(row.point.peak_rss_bytes),
            agreement_word(row),
        ]
        for row in rows(document)
    ]
    if body:
        columns = ["", "variant", "batch", "texts/s", "range", "1 query ms", "memory", "agreement"]
        parts.append(_table(columns, body, width, left=(0, 1, 7)))
        if best:
            parts.append("* fastest that agrees with its reference\n")
    names = piece_names(document)
    pooled = [
        [
            names[result.label],
            str(depth.depth),
            score(depth.before.get("ndcg@10")),
            score(depth.after.get("ndcg@10")),
            signed((depth.difference or {}).get("mean")),
            score(depth.oracle.get("ndcg@10")),
            milliseconds(depth.p50_s),
        ]
        for result in document.rerankers
        for depth in result.depths
    ]
    if pooled:
        columns = ["reranker", "pool", "nDCG@10", "reranked", "Δ", "ceiling", "ms/query"]
        parts.append(_table(columns, pooled, width, left=(0,)))
    return "\n".join(parts)


def _recommended(document: SweepDocument) -> list[Point]:
    best = best_point([point for variant in document.variants for point in variant.points])
    return [] if best is None else [best]


def _table(columns: Sequence[str], body: Sequence[Sequence[str]], width: int, left: Sequence[int]) -> str:
    """An aligned table; the longest column of names is folded until it fits ``width``."""
    sizes = [max(len(line[i]) for line in (columns, *body)) for i in range(len(columns))]
    fold = next(i for i, name in enumerate(columns) if name in ("variant", "reranker"))
    sizes[fold] -= max(0, sum(sizes) + len(sizes) - 1 - width)
    lines = []
    for row in (columns, *body):
        parts = textwrap.wrap(row[fold], max(8, sizes[fold]), break_on_hyphens=True) or [""]
        for number, part in enumerate(parts):
            cells = [part if i == fold else (cell if number == 0 else "") for i, cell in enumerate(row)]
            padded = [c.ljust(s) if i in left else c.rjust(s) for i, (c, s) in enumerate(zip(cells, sizes))]
            lines.append(" ".join(padded).rstrip())
        if row is columns:
            lines.append(" ".join("─" * size for size in sizes))
    return "\n".join(lines) + "\n"

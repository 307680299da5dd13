"""What a person sees: bars on a terminal, few lines in a log, hits as text or as plain JSON values."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rag_core.index import Hit, SearchResult
from rag_core.index_report import IngestReport
from rag_core.progress import Progress, listening

__all__ = ["hit_dict", "progress", "report_lines", "result_dict", "result_lines", "stats_lines", "wrapped"]

NARROW = 80
#: A log gets a line for every so many per cent of a stage.
PER_CENT = 10
#: Lines of a hit's text that are shown.
LINES = 3


def wrapped(text: str, indent: str = "", lines: int | None = None) -> list[str]:
    """``text`` broken at the terminal's width, 80 columns where there is none, and cut to ``lines``."""
    columns = shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else NARROW
    return textwrap.wrap(
        _printable(text),
        max(columns, 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=lines,
        placeholder=" …",
    )


def _printable(text: str) -> str:
    """Without control characters: a document must not move the cursor of who reads it."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char for char in text)


@contextmanager
def progress() -> Iterator[Progress]:
    """A listener for long work, which also hears what providers tell: on standard error, so that what is
    printed on standard output can be piped."""
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
    shown = _bars() if terminal else _log_lines(lambda line: print(line, file=sys.stderr, flush=True))
    with shown as listener, listening(listener):
        yield listener


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for other in tasks.values():
                    bars.update(other, visible=False)
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(tasks[stage], completed=done, total=total or None, visible=True)

        yield show


@contextmanager
def _log_lines(say: Callable[[str], None]) -> Iterator[Progress]:
    """A line when a stage has grown by another tenth; of one whose end is not known, only that it begins."""
    told: dict[str, int] = {}

    def show(stage: str, done: int, total: int) -> None:
        if not total and not done:
            say(f"{stage} …")
        if not total or not done:
            return
        tenth = done * 100 // total // PER_CENT
        if done < told.get(stage, 0) * total // PER_CENT:  # it has started again
            told.pop(stage)
        if tenth > told.get(stage, 0):
            told[stage] = tenth
            say(f"{stage}: {done:,} of {total:,}")

    yield show


def hit_dict(hit: Hit) -> dict[str, Any]:
    """Plain JSON values of a hit: ``id``, ``title``, ``text``, ``score``, ``source`` (the stages that placed
    it), ``ranks`` and ``scores`` by stage, ``metadata``. A score that is not a number is null."""
    document = hit.document
    return {
        "id": document.doc_id,
        "title": document.title,
        "text": document.text,
        "score": _finite(hit.score),
        "source": hit.source,
        "ranks": dict(hit.ranks),
        "scores": {stage: _finite(score) for stage, score in hit.scores.items()},
        "metadata": dict(document.metadata),
    }


def result_dict(query: str, result: SearchResult) -> dict[str, Any]:
    """Plain JSON values of an answer."""
    return {
        "query": query,
        "hits": [hit_dict(hit) for hit in result.hits],
        "warnings": list(result.warnings),
        "degraded": result.degraded,
        "seconds": dict(result.seconds),
    }


def result_lines(result: SearchResult) -> list[str]:
    """Hits for a terminal: rank, score, stages, where it stands; then the first lines of its text."""
    lines = []
    for rank, hit in enumerate(result.hits, 1):
        metadata = hit.document.metadata
        file, section = (str(metadata.get(name) or "") for name in ("source", "section"))
        title = "" if section.startswith(hit.document.title) else hit.document.title  # a heading, already
        places = [title, file or hit.document.doc_id, section]
        place = " · ".join(dict.fromkeys(_printable(part) for part in places if part))
        lines.append(f"{rank:>2}  {hit.score:.4f}  {hit.source}  {place}")
        lines += wrapped(hit.document.text, "    ", LINES)
    return lines or ["nothing found"]


def report_lines(report: IngestReport) -> list[str]:
    """What an ingest or a rebuild did."""
    counts = {name: getattr(report, name) for name in ("added", "updated", "removed", "unchanged")}
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    lines = [f"chunks: {told}; {report.embedded_texts:,} embedded in {report.seconds:.1f} s"]
    if report.reused_vectors:
        lines += wrapped(f"{report.reused_vectors:,} vectors were at hand and not made again")
    if report.oversize:
        lines += wrapped(f"{report.oversize:,} chunks are longer than asked for: a word that cannot be split")
    lines += _listed("file passed over", report.skipped)
    return lines + _listed("chunk without a vector, to be tried again by the next ingest", report.failed)


def stats_lines(stats: Mapping[str, Any]) -> list[str]:
    """``name  value`` a line; a name inside a table follows the table's."""
    rows = _flat(stats)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _flat(stats: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in stats.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            rows.append((prefix + name, ", ".join(map(str, value))))
        else:
            rows.append((prefix + name, f"{value:,}" if type(value) is int else str(value)))
    return rows


def _listed(what: str, reasons: Mapping[str, str], most: int = 5) -> list[str]:
    lines = [line for name, why in list(reasons.items())[:most] for line in wrapped(f"{what}: {name}: {why}")]
    more = len(reasons) - most
    return [*lines, f"… and {more:,} more"] if more > 0 else lines


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

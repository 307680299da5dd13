"""TREC's run and judgement files, as trec_eval reads them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.formats.judgements import collect
from harness.formats.reading import DataError, read_lines, shown
from rag_core.types import Qrel, Ranking, Run

__all__ = ["escaped_id", "has_trec_columns", "read_qrels", "read_run", "write_run"]


def _rows(path: Path, least: int, accepted: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of ``least`` or more columns by blanks; blank lines and lines starting with ``#`` are skipped."""
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < least:
            raise DataError(path, number, f"{len(fields)} columns in {shown(line)}; accepted: {accepted}")
        yield number, fields


def read_run(path: Path) -> Run:
    """Read ``query Q0 document rank score tag``; what follows the tag is ignored, and so is the rank.

    Scores are compared as double precision numbers, as trec_eval does since its version 9; older ones
    (and pytrec_eval) round them to single precision first, which may tie what differs here.

    Raises:
        DataError: too few columns, a score that is not a number, or a document twice for one query.
    """
    scores: dict[str, dict[str, float]] = {}
    lines: dict[tuple[str, str], int] = {}
    name = path.stem
    for number, fields in _rows(path, 6, "query Q0 document rank score tag"):
        query_id, _, doc_id, _, text, name = fields[:6]
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise DataError(path, number, f"score {shown(text)} is not a number; accepted: a number")
        first = lines.setdefault((query_id, doc_id), number)
        if first != number:
            raise DataError(
                path,
                number,
                f"document {shown(doc_id)} of query {shown(query_id)} stands already on line {first}; "
                "accepted: each document once for a query",
            )
        scores.setdefault(query_id, {})[doc_id] = score
    return Run(name, {query_id: Ranking.from_scores(found) for query_id, found in scores.items()})


def has_trec_columns(path: Path) -> bool:
    """Whether the first judgement of a file has TREC's four columns rather than query, document, grade.

    Three columns by tabs may have blanks inside and are left to :func:`.judgements.read_judgements`.
    """
    if path.suffix in (".csv", ".jsonl", ".parquet"):
        return False
    lines = (line for line in read_lines(path) if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, "")
    return len(first.split()) >= 4 and first.strip().count("\t") != 2


def read_qrels(path: Path) -> tuple[Qrel, ...]:
    """Read ``query iteration document grade``, by any blanks.

    Raises:
        DataError: too few columns, a grade that is not a whole number, or a pair with two grades.
    """
    rows = _rows(path, 4, "query iteration document grade")
    return collect(path, ((number, f[0], f[2], f[3]) for number, f in rows), [])


def write_run(run: Run, path: Path, name: str = "") -> None:
    """Write ``run`` so that every tool ranks it alike: the scores of a query fall strictly.

    Where two neighbours are equal (in single precision, which many tools read), or a score is not
    finite, the scores written are n, n - 1, … 1. White space inside an id or the name, and a ``#`` at
    the start of a query id, become ``%20`` and the like, because the format has no way to quote them.
    """
    tag = escaped_id(name or run.name) or "run"
    lines = []
    for query_id, ranking in run.rankings.items():
        escaped = re.sub("^#", "%23", escaped_id(query_id))
        for rank, (doc_id, score) in enumerate(zip(ranking.doc_ids, _falling(ranking.scores)), 1):
            lines.append(f"{escaped} Q0 {escaped_id(doc_id)} {rank} {score} {tag}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def _falling(scores: Sequence[float]) -> Sequence[float]:
    with np.errstate(over="ignore"):
        single = np.asarray(scores, np.float32)
    if np.isfinite(single).all() and all(a > b for a, b in itertools.pairwise(single.tolist())):
        return scores
    return range(len(scores), 0, -1)


def escaped_id(text: str) -> str:
    """``text`` as a column of a run file holds it: white space as ``%20`` and the like."""
    if text.split() == [text]:  # nearly every id: no white space in it
        return text
    return re.sub(r"\s", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)

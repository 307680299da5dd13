"""`bench judge-run`: run files made by any tool against judgements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import DEFAULT_METRICS
from harness.formats.reading import DataError, shown
from harness.formats.trec import read_run
from harness.formats.trecset import read_qrels_file
from harness.judging import Judgement, judge
from harness.metrics import Metric
from rag_core.errors import InvalidArgumentError

__all__ = ["FORMATS", "judge_lines"]

FORMATS = ("json", "tsv")


def judge_lines(
    qrels: Path,
    runs: Sequence[Path],
    metrics: Sequence[str] = (),
    format: str = "json",
    per_query: bool = False,
) -> list[str]:
    """One JSON object a run, or a table separated by tabs.

    A JSON object holds ``run`` (the tag inside the file), ``file``, the mean of each metric under its own
    name, ``counts`` of queries (see :class:`harness.judging.Judgement`), and with ``per_query`` the values
    of each query under ``per_query``, query first. The table has one row a run, its query ``all``, and
    with ``per_query`` the queries' rows before it. Numbers have all their digits.

    Means are over the queries that have a relevant document; one that a run lacks counts 0
    (trec_eval's ``-c``).

    Raises:
        InvalidArgumentError: unknown format; no run; no query of a run is judged.
        UnknownNameError: unknown metric.
        DataError: a file cannot be read as it stands; names file and line.
    """
    if format not in FORMATS:
        raise InvalidArgumentError(f"--format is {format!r}; accepted: {', '.join(FORMATS)}")
    if not runs:
        raise InvalidArgumentError("no run; accepted: --run FILE, repeatable")
    names = list(dict.fromkeys(str(Metric.parse(text)) for text in metrics or DEFAULT_METRICS))
    grades: dict[str, dict[str, int]] = {}
    for qrel in read_qrels_file(qrels, []):
        grades.setdefault(qrel.query_id, {})[qrel.doc_id] = qrel.relevance
    if not any(grade >= 1 for judged in grades.values() for grade in judged.values()):
        raise DataError(qrels, None, "no grade of 1 or more; accepted: judgements with a relevant document")
    lines = [] if format == "json" else ["\t".join(("run", "query", *names))]
    for file in runs:
        run = read_run(file)
        if not run.rankings.keys() & grades.keys():
            raise DataError(
                file, None, f"none of its queries is judged in {qrels}: it has {_first(run.rankings)}, the "
                f"judgements have {_first(grades)}; accepted: a run of the same queries",
            )  # fmt: skip
        judged = judge(run, grades, names)
        lines += _json(file, judged, per_query) if format == "json" else _tsv(judged, per_query)
    return lines


def _json(file: Path, judged: Judgement, per_query: bool) -> list[str]:
    made: dict[str, Any] = {
        "run": judged.name,
        "file": str(file),
        **judged.means,
        "counts": dict(judged.counts),
    }
    if per_query:
        made["per_query"] = dict(_by_query(judged))
    return [json.dumps(made, ensure_ascii=False)]


def _tsv(judged: Judgement, per_query: bool) -> list[str]:
    rows = list(_by_query(judged)) if per_query else []
    rows.append(("all", {name: value for name, value in judged.means.items() if value is not None}))
    return ["\t".join((judged.name, query, *map(repr, values.values()))) for query, values in rows]


def _by_query(judged: Judgement) -> list[tuple[str, dict[str, float]]]:
    columns = [values.tolist() for values in judged.values.values()]
    return [
        (query_id, dict(zip(judged.values, row))) for query_id, row in zip(judged.query_ids, zip(*columns))
    ]


def _first(queries: Mapping[str, object]) -> str:
    return ", ".join(shown(query_id, 20) for query_id in list(queries)[:3]) + (
        ", …" if len(queries) > 3 else ""
    )

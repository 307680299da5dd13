"""``sweep.md`` and ``sweep.csv``: the report of a sweep, from its document alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.render.format import megabytes, milliseconds, number, rate, score, seconds, signed
from harness.results import write_atomic
from harness.sweep_result import PoolResult, SweepDocument, VariantResult
from harness.sweep_summary import (
    Row,
    agreement_word,
    best_point,
    caveats,
    piece_names,
    rows,
    sentences,
    variant_names,
)
from harness.tables import pipe_table
from rag_core.errors import MissingExtraError

__all__ = ["render_csv", "render_markdown", "write_sweep"]

MARKDOWN, CSV = "sweep.md", "sweep.csv"
COLUMNS = (
    "kind", "name", "label", "model", "target", "dtype", "size", "status", "passages_per_s",
    "passages_per_s_low", "passages_per_s_high", "tokens_per_s", "p50_s", "p95_s", "query_p50_s",
    "peak_rss_bytes", "device_bytes", "reference", "min_cosine", "p1_cosine", "overlap_at_10",
    "ndcg@10_difference", "ndcg@10_difference_low", "ndcg@10_difference_high", "verdict",
    "precision@5_before", "precision@5", "recall@5_before", "recall@5", "ndcg@10_before", "ndcg@10",
    "ndcg@10_oracle", "mrr@10_before", "mrr@10", "ndcg_points_per_ms", "reason",
)  # fmt: skip
QUALITY = ("precision@5", "recall@5", "ndcg@10", "mrr@10")


def write_sweep(document: SweepDocument, folder: Path) -> tuple[list[Path], list[str]]:
    """Write the plots, ``sweep.md`` and ``sweep.csv``; the files, and a note where plots are missing."""
    from harness.render.sweep_plots import write

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    notes = []
    try:
        written += write(document, folder)
    except MissingExtraError as error:
        notes.append(f"plots skipped: {error}")
    shown = [path for path in written if path.suffix == ".svg"]
    write_atomic(folder / MARKDOWN, render_markdown(document, [path.name for path in shown]))
    write_atomic(folder / CSV, render_csv(document))
    return [*written, folder / MARKDOWN, folder / CSV], notes


def render_markdown(document: SweepDocument, plots: Sequence[str] = ()) -> str:
    """The verdict, the caveats, then tables; ``plots`` are files beside it."""
    from harness.render.sweep_plots import FIGURES

    parts = [f"# Sweep of {document.name}\n", f"**{sentences(document)[0]}**\n"]
    if document.status != "complete":
        parts.append(f"The sweep is {document.status}: what stands here is what was measured so far.\n")
    parts += ["".join(f"- {text}\n" for text in [*sentences(document)[1:], *caveats(document)])]
    alt = {figure.stem: figure.alt for figure in FIGURES}
    parts += ["".join(f"![{alt.get(Path(name).stem, name)}]({name})\n\n" for name in plots)]
    if document.variants:
        parts += ["## Variants\n", _variant_table(document), "## Batch sizes\n", _point_table(document)]
    if document.rerankers:
        parts += ["## Candidate pool\n", _pool_table(document)]
    parts += ["## How it was measured\n", _method(document)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _variant_table(document: SweepDocument) -> str:
    names = variant_names(document)
    body = []
    for v in document.variants:
        best = best_point(v.points)
        body.append(
            [
                names[v.label],
                v.status,
                best.name if best else "–",
                rate(best.passages_per_s if best else None),
                milliseconds(v.speed.get("query_p50_s")),
                seconds(v.speed.get("load_s")),
                milliseconds(v.speed.get("first_call_s")),
            ]
        )
    columns = ["variant", "status", "best batch", "passages/s", "one query, ms", "load", "first call, ms"]
    return pipe_table(columns, body, numeric=5)


def _point_table(document: SweepDocument) -> str:
    columns = [
        "variant", "agreement", "batch", "passages/s", "slowest–fastest round", "tokens/s", "call p50, ms",
        "call p95, ms", "peak memory", "min cosine", "overlap@10", "Δ nDCG@10",
    ]  # fmt: skip
    return pipe_table(columns, [[*_names(row), *_figures(row)] for row in rows(document)], numeric=10)


def _names(row: Row) -> list[str]:
    return [row.name, agreement_word(row)]


def _figures(row: Row) -> list[str]:
    point, found = row.point, row.point.agreement or {}
    change = found.get("difference") or {}
    memory = megabytes(point.peak_rss_bytes)
    if point.device_bytes:
        memory += f" + {megabytes(point.device_bytes)} device"
    least = found.get("min_cosine")
    return [
        point.name,
        rate(point.passages_per_s),
        f"{rate(point.passages_per_s_low)}–{rate(point.passages_per_s_high)}",
        rate(point.tokens_per_s),
        milliseconds(point.p50_s),
        milliseconds(point.p95_s),
        memory,
        f"{least:.5f}" if least is not None else "–",
        score(found.get("overlap_at_10")),
        signed(change.get("mean")),
    ]


def _pool_table(document: SweepDocument) -> str:
    names = piece_names(document)
    columns = ["reranker", "depth", *(f"{name}, before → after" for name in QUALITY)]
    columns += ["ceiling", "Δ nDCG@10, 95 %", "ms a query", "points per ms"]
    body = []
    for result in document.rerankers:
        for depth in result.depths:
            change = depth.difference or {}
            body.append(
                [
                    names[result.label],
                    str(depth.depth),
                    *(f"{score(depth.before.get(m))} → {score(depth.after.get(m))}" for m in QUALITY),
                    score(depth.oracle.get("ndcg@10")),
                    f"{signed(change.get('low'))} to {signed(change.get('high'))}",
                    milliseconds(depth.p50_s),
                    number(depth.points_per_ms),
                ]
            )
    return pipe_table(columns, body, numeric=len(columns) - 1)


def _method(document: SweepDocument) -> str:
    spec, machine = document.spec, document.environment
    threads = machine.get("threads", {}).get("OMP_NUM_THREADS", "–")
    lines = [
        f"- {document.dataset['n_documents']} documents and {document.dataset['n_queries']} queries of "
        f"{document.name}; corpus {document.dataset['hash']['corpus'][:12]}.",
        f"- {machine.get('cpu_model')}, {machine.get('cpus_usable')} CPUs usable, {threads} threads.",
    ]
    if document.variants:
        lines += [
            f"- Each variant in a fresh process, its model loaded once; {spec['texts']} texts at most, in a "
            f"fixed pseudo-random order; one untimed pass, then {spec['rounds']} rounds in which the batch "
            "sizes take turns.",
            "- Agreement: `same` vectors, or `equivalent` results, or it differs; against the fp32 variant's "
            "vectors at batch size 1.",
        ]
    if document.rerankers:
        lines.append(
            "- Ceiling: nDCG@10 of a perfect order of the pool. Points: hundredths of nDCG@10 gained."
        )
    return "\n".join(lines) + "\n"


def render_csv(document: SweepDocument) -> str:
    """One line per point, per variant without points and per depth; full precision, empty where unknown."""
    buffer = io.StringIO()
    out = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    out.writeheader()
    for row in rows(document):
        out.writerow({**_variant_fields(row.name, row.variant), **_point_fields(row)})
    names = variant_names(document)
    for variant in document.variants:
        if not variant.points:
            out.writerow(_variant_fields(names[variant.label], variant))
    for result in document.rerankers:
        out.writerows(_depth_fields(piece_names(document)[result.label], result))
    return buffer.getvalue()


def _variant_fields(name: str, variant: VariantResult) -> dict[str, Any]:
    return {
        "kind": "batch",
        "name": name,
        "label": variant.label,
        "model": variant.model,
        "target": variant.target,
        "dtype": variant.dtype,
        "status": variant.status,
        "query_p50_s": variant.speed.get("query_p50_s"),
        "reason": variant.reason,
    }


def _point_fields(row: Row) -> dict[str, Any]:
    point, found = row.point, row.point.agreement or {}
    change = found.get("difference") or {}
    plain = ("passages_per_s", "passages_per_s_low", "passages_per_s_high", "tokens_per_s", "p50_s", "p95_s")
    return {
        "size": point.name,
        "status": point.status,
        **{name: getattr(point, name) for name in (*plain, "peak_rss_bytes", "device_bytes")},
        **{name: found.get(name) for name in ("reference", "min_cosine", "p1_cosine", "overlap_at_10")},
        "ndcg@10_difference": change.get("mean"),
        "ndcg@10_difference_low": change.get("low"),
        "ndcg@10_difference_high": change.get("high"),
        "verdict": found.get("verdict"),
        "reason": point.reason or found.get("reason") or None,
    }


def _depth_fields(name: str, result: PoolResult) -> list[dict[str, Any]]:
    shared = {
        "kind": "pool",
        "name": name,
        "label": result.label,
        "model": result.model,
        "target": result.target,
        "status": result.status,
        "reason": result.reason,
    }
    if not result.depths:
        return [shared]
    out = []
    for depth in result.depths:
        change = depth.difference or {}
        out.append(
            {
                **shared,
                "size": depth.depth,
                "p50_s": depth.p50_s,
                **{f"{metric}_before": depth.before.get(metric) for metric in QUALITY},
                **{metric: depth.after.get(metric) for metric in QUALITY},
                "ndcg@10_oracle": depth.oracle.get("ndcg@10"),
                "ndcg@10_difference": change.get("mean"),
                "ndcg@10_difference_low": change.get("low"),
                "ndcg@10_difference_high": change.get("high"),
                "ndcg_points_per_ms": depth.points_per_ms,
            }
        )
    return out

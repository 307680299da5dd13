"""The section of ``report.md`` on the stage that lost each relevant document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.render.format import MISSING
from harness.rows import Row
from harness.tables import pipe_table

__all__ = ["lost_documents"]

COLUMNS = (
    ("found", "found"),
    ("in no pool", "no_pool"),
    ("low in every leg", "low"),
    ("lost in fusion", "fusion"),
    ("pushed out", "reranker"),
    ("below threshold", "threshold"),
    ("query failed", "failed"),
    ("not in the data", "absent"),
)
#: Relevant documents that the vector leg missed and that were cut; all documents cut; pairs cut.
CUT = ("missed and cut", "documents cut", "pairs cut")
#: Columns that stand only where some row has something to count.
RARE = {"threshold", "failed", "absent"}
#: Fates that only pipelines with such a stage know.
NEEDED = (("fusion", "hybrid"), ("reranker", "rerank"), ("threshold", "rerank"))


def lost_documents(rows: Sequence[Row]) -> str:
    """The section, or nothing where no row's losses were counted."""
    chosen = [row for row in rows if row.ok and row.cell.attribution]
    if not chosen:
        return ""
    shown = [
        (title, name)
        for title, name in COLUMNS
        if name not in RARE or any(_counted(row)["fates"].get(name) for row in chosen)
    ]
    body = [[row.label, *_fields(row, [name for _, name in shown])] for row in chosen]
    titles = ["system", "relevant", *(title for title, _ in shown), "lifted", *CUT]
    first = _counted(chosen[0])
    top, pool = first["top"], first["pool"]
    return (
        "## Where relevant documents were lost\n\n"
        + pipe_table(titles, body, numeric=len(titles) - 1)
        + f"\nFound: among the first {top}. In no pool: beyond the first {pool} of every leg. Low: in a "
        f"pool, but among the first {top} of no leg. Lost in fusion: among the first {top} of a leg. "
        f"Pushed out: of the first {top} of the fused list, by the reranker. Lifted: found although no leg "
        "had it there. Below threshold: among the first after reranking, dropped for its score. Cut: texts "
        "of the corpus, and pairs of the reranker, that the model read only in part. Missed and cut: "
        f"relevant, not among the first {top} of the vector leg, and cut; whether the answer stood in what "
        f"was cut is not known, and 0 rules that cause out. {MISSING}: not "
        "counted, or no such stage. Each document stands in `runs/*.fates.tsv`.\n"
    )


def _counted(row: Row) -> Mapping[str, Any]:
    return row.cell.attribution or {}


def _fields(row: Row, names: Sequence[str]) -> list[str]:
    found = _counted(row)
    pipeline = row.cell.key.pipeline
    skipped = {name for name, needed in NEEDED if needed not in pipeline}
    fates = [MISSING if name in skipped else str(found["fates"].get(name, MISSING)) for name in names]
    lifted = MISSING if "fusion" in skipped else str(found["lifted"])
    cut = [str(row.cell.counts.get(f"n_truncated_{what}", MISSING)) for what in ("documents", "pairs")]
    missed = str(found.get("cut", MISSING)) if row.cell.audit else MISSING
    return [str(found["relevant"]), *fates, lifted, missed, *cut]

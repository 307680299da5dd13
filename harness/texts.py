"""``runs/texts.json``: the texts that a report shows beside the lists, so that it needs no data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.formats.reading import DataError
from harness.formats.tops import read_tops
from harness.formats.trec import escaped_id
from harness.render import write_report
from harness.render.drilldown import DEPTH, TEXTS, read_texts
from harness.results import ResultDocument, file_name, write_atomic
from rag_core.errors import RagCoreError

if TYPE_CHECKING:  # the readers take longer to import than a report to write
    from harness.datasets import Dataset

__all__ = ["EXCERPT", "ensure_texts", "report_again", "write_texts"]

#: Characters of a document that are kept.
EXCERPT = 320


def write_texts(dataset: Dataset, document: ResultDocument, folder: Path) -> Path:
    """Write ``folder/runs/texts.json`` for the judged queries of ``document``.

    It holds ``hash`` (of the data), ``queries`` (id → text), ``grades`` (query id → document id → grade)
    and ``documents`` (id → title and the first :data:`EXCERPT` characters), of every document that is
    judged or stands among the first :data:`~harness.render.drilldown.DEPTH` of a run.
    """
    judged = set(document.dataset.get("query_ids", ()))
    grades = {query_id: found for query_id, found in dataset.relevance.items() if query_id in judged}
    wanted = {escaped_id(doc_id) for found in grades.values() for doc_id in found}
    for cell in document.cells:
        path = folder / "runs" / f"{file_name(cell.key)}.run"
        if cell.status == "ok" and path.exists():
            for found_ids in read_tops(path, DEPTH).values():
                wanted.update(found_ids)
    documents = {
        one.doc_id: [" ".join(one.title.split()), _cut(" ".join(one.text.split()))]
        for one in dataset.documents
        if escaped_id(one.doc_id) in wanted
    }
    values = {
        "hash": dataset.hashes,
        "queries": {query.query_id: query.text for query in dataset.queries if query.query_id in judged},
        "grades": grades,
        "documents": documents,
    }
    path = folder / TEXTS
    write_atomic(path, json.dumps(values) + "\n")  # escaped: a text may hold what UTF-8 cannot
    return path


def _cut(text: str) -> str:
    """``text`` up to :data:`EXCERPT` characters, ending with a whole word where it has blanks."""
    if len(text) <= EXCERPT:
        return text
    return (text[: EXCERPT - 1].rsplit(" ", 1)[0] or text[: EXCERPT - 1]) + "…"


def ensure_texts(document: ResultDocument, folder: Path) -> str:
    """Write the texts of a result that lacks them, from its data set.

    Returns:
        Why there are none; empty where they are there.
    """
    if read_texts(document, folder) or not (folder / "runs").is_dir():
        return ""
    from harness.datasets import load_dataset

    try:
        dataset = load_dataset(str(document.dataset.get("name", "")))
    except (RagCoreError, DataError, OSError) as error:
        return f"no texts in the report: {error}"
    if dataset.hashes != document.dataset.get("hash"):
        return f"no texts in the report: {dataset.name} is no longer the data that was measured"
    write_texts(dataset, document, folder)
    return ""


def report_again(
    document: ResultDocument, beside: Path, out: Path | None = None, *, texts: bool = True
) -> list[str]:
    """What ``bench report`` prints: the files that it wrote, then what it could not, a line each.

    Args:
        document: what was measured.
        beside: the folder of the result, with its run files.
        out: folder to write; ``beside`` without it.
        texts: whether the page may hold those of queries and documents.
    """
    note = ensure_texts(document, beside) if texts else ""
    written = write_report(document, out or beside, beside, texts=texts)
    return [*map(str, written), *written.notes, *([note] if note else [])]

"""The report's recommendation: the same choice as `bench recommend` without limits."""

from __future__ import annotations

from collections.abc import Sequence

from harness.recommend import recommend
from harness.recommend_findings import recommendation_sentences
from harness.render import blocks
from harness.results import ResultDocument
from harness.rows import Row

__all__ = ["recommendation"]


def recommendation(document: ResultDocument, rows: Sequence[Row]) -> str:
    """The section; nothing where no cell was measured. ``rows``: by the run's main metric."""
    found = recommend(document, rows=rows)
    if found.best is None:
        return ""
    said = "".join(f"- {blocks.escape(sentence)}\n" for sentence in recommendation_sentences(found))
    return (
        f"## Recommendation\n\n{said}\nChosen without limits. To set some, and to have the `rag.toml` "
        "written: `bench recommend RESULT --max-p95 500ms --max-rss 2GB`.\n"
    )

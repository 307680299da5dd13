"""The report's recommendation: the same choice as `bench recommend` without limits."""

from __future__ import annotations

from harness.recommend import recommend
from harness.recommend_findings import recommendation_sentences
from harness.render import blocks
from harness.results import ResultDocument

__all__ = ["recommendation"]


def recommendation(document: ResultDocument) -> str:
    """The section; nothing where no cell was measured."""
    found = recommend(document)
    if found.best is None:
        return ""
    said = "".join(f"- {blocks.escape(sentence)}\n" for sentence in recommendation_sentences(found))
    return (
        f"## Recommendation\n\n{said}\nChosen without limits. To set some, and to have the `rag.toml` "
        "written: `bench recommend RESULT --max-p95 500ms --max-rss 2GB`.\n"
    )

"""The report's recommendation."""

from __future__ import annotations

from harness.recommend import recommend
from harness.recommend_findings import recommendation_sentences
from harness.render.recommendation import recommendation
from harness.results import ResultDocument


def test_the_section_says_what_the_command_says(document: ResultDocument) -> None:
    section = recommendation(document)
    assert section.startswith("## Recommendation\n\n- Recommended: e5-small · hybrid: nDCG@10 0.796")
    said = recommendation_sentences(recommend(document))
    assert section.count("\n- ") == len(said)
    document.cells = [cell for cell in document.cells if cell.status != "ok"]
    assert recommendation(document) == ""

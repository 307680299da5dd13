"""The report's section on reranking."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema

from harness.render.economics import reranking
from harness.render.markdown import render
from harness.results import CellResult, ResultDocument, result_schema
from harness.rows import make_rows

Add = Callable[..., CellResult]


def test_no_reranked_row_no_section(document: ResultDocument) -> None:
    assert reranking(make_rows(document)) == ""
    assert "What reranking does" not in render(document)


def test_the_section_holds_every_figure(document: ResultDocument, reranked: Add) -> None:
    reranked(document, -0.1)
    reranked(document, 0.0, mix="ranks")
    text = render(document)
    section = text[text.index("## What reranking does") : text.index("## Cold start")]
    assert "- e5-small · hybrid+rerank · fine: reranking hurts here: nDCG@10 0.796 → " in section
    assert "- e5-small · hybrid+rerank+rrf · fine: reranking cannot be told from no reranking" in section
    lines = section.splitlines()
    name = "| e5-small · hybrid+rerank · fine |"
    assert len([s for s in lines if s.startswith(name) and s.count("|") == 9 and "0.970" in s]) == 4
    assert f"{name} 160 | 11 | 22 | 127 | 13 | 14 |" in lines
    assert f"{name} 100 | 152 | 65 % | −0.100 |" in lines
    assert "| e5-small · hybrid+rerank+rrf · fine | 100 | 152 | 65 % | 0 |" in lines
    depths = [s for s in lines if s.startswith(name) and s.endswith("| 20 |")]
    assert [s.split("|")[2].strip() for s in depths] == ["10", "20", "50"]
    assert depths[0].split("|")[-3].strip() == "20.0"


def test_what_was_not_timed_is_a_dash(document: ResultDocument, reranked: Add) -> None:
    made = reranked(document, 0.1)
    assert made.rerank is not None
    for name in ("added_s", "share_of_p95", "points_per_ms"):
        made.rerank[name] = None
    made.rerank["depths"][0].update(median_s=None, n_timed=0)
    lines = reranking(make_rows(document)).splitlines()
    assert "| e5-small · hybrid+rerank · fine | – | 152 | – | – |" in lines
    assert any(s.endswith("| – | 0 |") for s in lines)
    made.rerank["depths"] = []
    assert "By depth\n\n|" not in reranking(make_rows(document))


def test_the_schema_knows_it(document: ResultDocument, reranked: Add) -> None:
    made = reranked(document, 0.1)
    schema = jsonschema.Draft202012Validator(result_schema())
    assert list(schema.iter_errors(document.as_dict())) == []
    old = document.as_dict()
    for cell in old["cells"]:
        del cell["rerank"]
    assert list(schema.iter_errors(old)) == []
    assert ResultDocument.from_dict(old).cells[-1].rerank is None
    assert made.rerank is not None
    del made.rerank["fates"]["below_top"]
    assert list(schema.iter_errors(document.as_dict()))


def test_a_score_threshold_is_said_to_come_after(
    document: ResultDocument, reranked: Callable[..., CellResult]
) -> None:
    cell = reranked(document, 0.02)
    assert "threshold" not in reranking(make_rows(document))
    cell.settings = {**cell.settings, "score_threshold": -1.5}
    assert "before the score threshold of -1.5" in reranking(make_rows(document))

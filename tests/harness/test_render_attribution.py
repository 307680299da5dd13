"""The section on the stage that lost each relevant document."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema

from harness.attribution import FATES
from harness.render.attribution import lost_documents
from harness.render.markdown import render
from harness.results import CellResult, ResultDocument, result_schema
from harness.rows import make_rows


def counted(**fates: int) -> dict[str, object]:
    made = dict.fromkeys(FATES, 0) | fates
    return {"top": 10, "pool": 50, "relevant": sum(made.values()), "fates": made, "lifted": 3}


def test_a_row_for_each_system_with_only_the_stages_it_has(
    document: ResultDocument, reranked: Callable[..., CellResult]
) -> None:
    cell = reranked(document, 0.02)
    cell.attribution = counted(found=80, no_pool=9, reranker=5, fusion=4, low=2)
    cell.counts = {**cell.counts, "n_truncated_pairs": 7}
    for place, pipeline in ((0, "bm25"), (3, "hybrid")):
        assert document.cells[place].key.pipeline == pipeline
        document.cells[place].attribution = counted(found=70, no_pool=30)
    lines = lost_documents(make_rows(document)).splitlines()
    assert lines[0] == "## Where relevant documents were lost"
    assert lines[2] == (
        "| system | relevant | found | in no pool | low in every leg | lost in fusion | pushed out | lifted "
        "| missed and cut | documents cut | pairs cut |"
    )
    assert lines[4] == "| bm25 | 100 | 70 | 30 | 0 | – | – | – | – | 2 | – |"
    assert lines[5] == "| e5-small · hybrid | 100 | 70 | 30 | 0 | 0 | – | 3 | – | 2 | – |"
    assert lines[6] == "| e5-small · hybrid+rerank · fine | 100 | 80 | 9 | 2 | 4 | 5 | 3 | – | 2 | 7 |"
    assert "beyond the first 50 of every leg" in lines[8]
    assert list(jsonschema.Draft202012Validator(result_schema()).iter_errors(document.as_dict())) == []


def test_losses_below_a_threshold_and_of_cut_documents(
    document: ResultDocument, reranked: Callable[..., CellResult]
) -> None:
    cell = reranked(document, 0.02)
    cell.attribution = counted(found=80, threshold=6) | {"cut": 5}
    cell.audit = {"window": 256}
    document.cells[0].attribution = counted(found=70)
    lines = lost_documents(make_rows(document)).splitlines()
    assert "| pushed out | below threshold | lifted | missed and cut |" in lines[2]
    assert lines[4] == "| bm25 | 70 | 70 | 0 | 0 | – | – | – | – | – | 2 | – |"
    assert lines[5] == "| e5-small · hybrid+rerank · fine | 86 | 80 | 0 | 0 | 0 | 0 | 6 | 3 | 5 | 2 | – |"


def test_failed_queries_and_absent_documents_stand_only_where_there_are_some(
    document: ResultDocument,
) -> None:
    document.cells[0].attribution = counted(found=1, failed=2)
    text = lost_documents(make_rows(document))
    assert "| query failed |" in text
    assert "not in the data" not in text


def test_files_from_before_have_no_section(document: ResultDocument) -> None:
    assert lost_documents(make_rows(document)) == ""
    assert "Where relevant documents were lost" not in render(document)

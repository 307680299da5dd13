"""What the judgements can bear, on documents and lists made by hand."""

from __future__ import annotations

from harness.label_health import extremes, judged_at, judged_gap, judged_mean
from harness.results import ResultDocument
from harness.rows import make_rows
from rag_core.types import Ranking


def ranking(ids: str) -> Ranking:
    return Ranking.from_scores((doc_id, float(-place)) for place, doc_id in enumerate(ids))


def test_any_judgement_counts_and_short_answers_by_what_they_hold() -> None:
    relevance = {"b": {"x": 1, "y": 0}, "a": {"x": 2}, "none": {"x": 0}, "c": {"x": 1}}
    found = judged_at({"a": ranking("xyz"), "b": ranking("vwxy"), "none": ranking("x")}, relevance, k=4)
    assert found == [0.333333, 0.5, None]
    assert judged_at({"a": ranking("")}, {"a": {"x": 1}}) == [None]
    assert judged_at({"b": ranking("vwxy")}, {"b": {"x": 1}}, k=2) == [0.0]


def with_shares(document: ResultDocument, **shares: float) -> ResultDocument:
    n = len(document.dataset["query_ids"])
    for cell in document.cells:
        if cell.status == "ok":
            level = shares.get(cell.key.provider, 0.9)
            cell.judged_at_10 = [min(1.0, level + 0.1 * (place % 2)) for place in range(n)]
    document.dataset["n_judgements_relevant"] = 90
    return document


def test_a_wide_gap_is_a_sentence_that_does_not_claim_too_much(document: ResultDocument) -> None:
    gap = judged_gap(with_shares(document, minilm=0.5, fake=0.0), make_rows(document))
    assert gap is not None
    assert gap.least.cell.key.provider == "minilm"  # the baseline's vectors are meant to know nothing
    assert gap.sentence() == (
        f"The first 10 of {gap.least.label} are unjudged to 45 %, of {gap.most.label} to 5 % (difference "
        "40 %, 40 % to 40 %): an unjudged document counts as not relevant, so the labels may favour systems "
        "like those that they were pooled from."
    )


def test_no_gap_where_shares_are_close_or_only_relevant_documents_are_judged(
    document: ResultDocument,
) -> None:
    with_shares(document, minilm=0.8)
    assert judged_gap(document, make_rows(document)) is None
    with_shares(document, minilm=0.2)
    document.dataset["n_judgements_relevant"] = document.dataset["n_judgements"]
    assert judged_gap(document, make_rows(document)) is None
    del document.dataset["n_judgements_relevant"]  # an older file
    assert judged_gap(document, make_rows(document)) is None


def test_no_gap_of_one_system_or_of_none_that_tells(document: ResultDocument) -> None:
    with_shares(document, minilm=0.2)
    for cell in document.cells[1:]:
        cell.judged_at_10 = None
    rows = make_rows(document)
    assert judged_gap(document, rows) is None
    assert judged_mean(rows[-1]) is None


def test_queries_that_everyone_misses_or_solves(document: ResultDocument) -> None:
    for cell in document.cells:
        if cell.status == "ok":
            values = cell.metrics["ndcg@10"].per_query
            values[3], values[5], values[7] = 0.0, 1.0, 0.5
            values[9] = 0.0 if cell.key.provider != "minilm" else 0.1
            if cell.key.provider == "fake":
                values[5] = 0.0  # the baseline is left aside
    found = extremes(document, make_rows(document), "ndcg@10")
    assert (found.systems, found.queries) == (5, 40)
    assert "q03" in found.missed
    assert "q09" not in found.missed
    assert "q05" in found.solved
    assert "q07" not in found.solved
    assert not set(found.missed) & set(found.solved)


def test_one_system_alone_misses_nothing_together(document: ResultDocument) -> None:
    document.cells = document.cells[:1]
    document.cells[0].metrics["ndcg@10"].per_query[0] = 0.0
    found = extremes(document, make_rows(document), "ndcg@10")
    assert (found.systems, found.missed, found.solved) == (1, (), ())

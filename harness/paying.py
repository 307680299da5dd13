"""Stages of a measuring process that may cost money: announced, held to the budget, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.reranking import Reranked
from harness.spending import Meter, Spending
from harness.stages import Job, Timed
from rag_core.protocols import Reranker
from rag_core.types import Document

__all__ = ["announce_corpus", "rerank_within"]

Emit = Callable[..., None]


def announce_corpus(
    this: Job, documents: Sequence[Document], spending: Spending, meter: Meter, emit: Emit
) -> None:
    """Say what documents and queries may cost before they are sent, where that is much.

    Raises:
        BudgetExceededError: it may be more than is left.
    """
    if not meter.is_paid:
        return
    queries = [query.text for query in this.queries]
    units = meter.most_units([document.indexed_text for document in documents])
    units += this.rounds * meter.most_units(queries) + meter.most_units(queries[: this.spec.warmup])
    if text := spending.expect(meter, units, "documents", len(documents)):
        emit("note", text=text)


def rerank_within(
    this: Job, reranker: Reranker, fused: Timed, spending: Spending, emit: Emit
) -> tuple[Reranked, Meter]:
    """Every fused list scored, and what that used.

    Raises:
        BudgetExceededError: it may be more than is left, or was.
        InvalidArgumentError: there is a budget, and the price is not known.
    """
    meter, held = spending.watch(reranker, "rerank")
    if meter.is_paid:
        texts = {document.doc_id: document.indexed_text for document in this.dataset.documents}
        units = sent = 0
        for place, query in enumerate(this.queries):
            ranking = fused.rankings.get(query.query_id)
            pool = (
                [texts[doc_id] for doc_id in ranking.doc_ids[: this.spec.candidate_pool]] if ranking else []
            )
            calls = this.rounds + (place < this.spec.warmup)
            units += calls * meter.most_units(pool, query.text)
            sent += calls * len(pool)
        if text := spending.expect(meter, units, "candidates", sent):
            emit("note", text=text)
    before = meter.now()
    found = Reranked(this, held, fused)
    meter.note_queries(this, found.timed, before)
    return found, meter

"""The reranking stage: load the reranker, reorder every fused list, count what was cut."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stages import Job, Timed, language_warning, stat
from rag_core.errors import RagCoreError
from rag_core.factory import get_reranker, resolve
from rag_core.protocols import Reranker
from rag_core.registry import RERANKERS
from rag_core.reranking import reorder
from rag_core.types import Query, Ranking

__all__ = ["load_reranker", "rerank_all"]


def load_reranker(text: str, corpus: Sequence[str]) -> tuple[Reranker, list[str]] | str:
    """The reranker with a warning if it is not made for the languages of ``corpus``, or why there is none."""
    try:
        spec, _ = resolve(RERANKERS, text)
        reranker = get_reranker(text)
    except Exception as error:  # noqa: BLE001 - the reason becomes the row's; other rows go on
        return f"{type(error).__name__}: {error}"
    made_for = getattr(reranker, "languages", ()) or spec.languages  # a folder's are known to the reranker
    return reranker, language_warning(f"reranker {spec.name}", made_for, corpus)


def rerank_all(this: Job, reranker: Reranker, fused: Timed) -> tuple[Timed, dict[str, int]]:
    """The reordered lists, and ``n_truncated_pairs`` where the reranker counts what it cuts."""
    pairs: dict[str, int] = {}
    cut: dict[str, int] = {}
    texts = {document.doc_id: document.indexed_text for document in this.dataset.documents}
    notes: dict[str, int] = {}

    def call(query: Query) -> Ranking:
        if query.query_id in fused.failed:
            raise RagCoreError(fused.failed[query.query_id])
        whole = fused.rankings[query.query_id]
        if not len(whole):
            return whole
        pool = whole.top(this.spec.candidate_pool)
        before = stat(reranker, "truncated")
        again = reorder(pool, reranker.rerank(query.text, [texts[doc_id] for doc_id in pool.doc_ids]))
        # by query, for warm-ups and further rounds cut the same pairs again
        pairs[query.query_id], cut[query.query_id] = len(pool), stat(reranker, "truncated") - before
        for warning in again.warnings:
            notes[warning] = notes.get(warning, 0) + 1
        # the fused documents beyond the pool follow in their order, as in the library
        order = [*again.ranking.doc_ids, *whole.doc_ids[len(pool) :]]
        return Ranking.from_scores((doc_id, float(len(order) - i)) for i, doc_id in enumerate(order))

    timed_ = this.time_queries(call)
    timed_.warnings = [f"{warning} (in {count} calls)" for warning, count in notes.items()]
    if not hasattr(reranker, "stats"):
        return timed_, {}
    n_cut = sum(cut.values())
    if n_cut:
        said = f"reranker {reranker.name} read {n_cut} of {sum(pairs.values())} pairs only in part"
        window = getattr(reranker, "max_tokens", 0)
        timed_.warnings.append(f"{said}: its window has {window} tokens" if window else said)
    return timed_, {"n_truncated_pairs": n_cut}

"""How much of the exact answer a vector store finds: its top 10 against a product over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rag_core.filters import compile_where
from rag_core.protocols import Vectors
from rag_core.types import Document, Query, Ranking

__all__ = ["DEPTH", "store_recall"]

DEPTH = 10
#: Rows this close to the last of the exact top are as good as it: their order is one of rounding.
ROUNDING = 1e-6


def store_recall(
    documents: Sequence[Document],
    vectors: Vectors,
    queries: Sequence[Query],
    query_vectors: Mapping[str, Vectors],
    found: Mapping[str, Ranking],
    where: Callable[[Query], Mapping[str, Any] | None],
) -> float | None:
    """Mean share of the exact top 10 that stands in the store's, over the queries that have an answer.

    Args:
        documents: those stored, in the order of ``vectors``.
        vectors: float32 ``(n, dim)``, rows of length 1.
        queries: those asked.
        query_vectors: query id -> float32 ``(dim,)``; all zeros for a blank query, which has no exact top.
        found: query id -> what the store answered.
        where: the filter of a query; its rows alone are the exact answer's.

    Returns:
        0 to 1; None where no query has an exact answer.
    """
    row_of = {document.doc_id: row for row, document in enumerate(documents)}
    masks: dict[str, Any] = {}
    shares = []
    for query in queries:
        vector = query_vectors.get(query.query_id)
        if query.query_id not in found or vector is None or not vector.any():
            continue
        scores = vectors @ vector
        condition = where(query)
        if condition:
            key = repr(condition)
            if key not in masks:
                matches = compile_where(condition)
                masks[key] = np.array([matches(document.metadata) for document in documents], bool)
            scores = np.where(masks[key], scores, -np.inf)
        top = min(DEPTH, int(np.isfinite(scores).sum()))
        if not top:
            continue
        least = np.partition(scores, scores.size - top)[scores.size - top] - ROUNDING
        hits = sum(bool(scores[row_of[doc_id]] >= least) for doc_id in found[query.query_id].doc_ids[:top])
        shares.append(hits / top)
    return float(np.mean(shares)) if shares else None

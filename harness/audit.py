"""Inside a measuring process: what of the texts a model read, and what its prompts are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.economics import MAIN
from harness.metrics import evaluate
from harness.spending import Meter, Spending
from harness.stages import Job
from rag_core.errors import RagCoreError
from rag_core.filters import compile_where
from rag_core.protocols import EmbedProvider, Role, Vectors
from rag_core.types import Document

__all__ = ["NO_PREFIXES", "SAME_ROLE", "audit", "cut_documents", "exact_lists", "prefix_comparison"]

#: Documents found per query for the comparison: those that the metric looks at.
DEPTH = 10
#: Texts that are sent in both roles.
ROLE_TEXTS = 4
#: What the comparison changes: templates that stand in the text are left out; a role that is a parameter
#: of a service cannot be, so queries are sent in that of documents.
NO_PREFIXES, SAME_ROLE = "without prefixes", "queries sent as documents"
#: How a fingerprint's pooling names texts that are read in several windows.
WINDOWS = "windows"


def audit(this: Job, embedder: EmbedProvider, documents: Sequence[Document]) -> dict[str, Any]:
    """What of documents and queries is read, and whether the role of a text changes its vector.

    Sets ``this.cut``. Tokens are counted as of documents, before truncation, by the provider itself; a
    service's are estimated from characters. ``role_cosine`` is the least cosine between a query's text
    sent as query and as document: 1 of a model without roles; None of a service, whose calls are paid for.
    """
    fingerprint = embedder.fingerprint
    window, in_windows = fingerprint.max_tokens, WINDOWS in fingerprint.pooling
    read = 0 if in_windows else window
    of_documents = embedder.count_tokens([document.indexed_text for document in documents])
    of_queries = embedder.count_tokens([query.text for query in this.queries])
    this.cut = cut_documents(documents, of_documents, read)
    return {
        "window": window,
        "estimated": embedder.target == "api",
        "windows": in_windows,
        "documents": _counted(of_documents, read),
        "queries": _counted(of_queries, read),
        "role_cosine": None if embedder.target == "api" else _role_cosine(this, embedder),
        "prefixes": None,
    }


def cut_documents(
    documents: Sequence[Document], tokens: Sequence[int], window: int
) -> dict[str, tuple[int, int]]:
    """Document id → tokens read, tokens of the whole, of the documents longer than ``window`` (0: none)."""
    if not window:
        return {}
    return {d.doc_id: (window, n) for d, n in zip(documents, tokens) if n > window}


def _counted(tokens: Sequence[int], window: int) -> dict[str, int]:
    lost = [n - window for n in tokens if window and n > window]
    return {"n": len(tokens), "cut": len(lost), "tokens": sum(tokens), "lost": sum(lost)}


def _role_cosine(this: Job, embedder: EmbedProvider) -> float | None:
    texts = [query.text for query in this.queries if query.text.strip()][:ROLE_TEXTS]
    if not texts:
        return None
    try:
        queries, documents = (embedder.embed(texts, role=role) for role in ("query", "document"))
    except RagCoreError:  # the failure is counted where the query is asked for the record
        return None
    return round(float(np.min(np.sum(queries * documents, axis=1))), 6)


def prefix_comparison(
    this: Job,
    embedder: EmbedProvider,
    documents: Sequence[Document],
    vectors: Vectors,
    asked: Vectors,
    spending: Spending,
    emit: Callable[..., None],
) -> dict[str, Any] | None:
    """Quality with the provider's prompts and without, on the same exact search; None without prompts.

    Args:
        this: the job.
        embedder: as it was measured.
        documents: those embedded, in the order of ``vectors``.
        vectors: float32 ``(n, dim)``.
        asked: float32 ``(m, dim)``, the queries' as measured; a row of zeros for one that failed.
        spending: of the process; what is paid for is announced and held to the budget.
        emit: answers the parent.

    Returns:
        ``change`` (:data:`NO_PREFIXES` or :data:`SAME_ROLE`), ``metric``, its values ``with`` and
        ``without`` per judged query, and ``reason``, why these were not measured, else empty.
    """
    fingerprint = embedder.fingerprint
    own = fingerprint.query_template, fingerprint.document_template
    if own == ("{text}", "{text}") or not any(own):
        return None
    change = NO_PREFIXES if all("{text}" in template for template in own) else SAME_ROLE
    found: dict[str, Any] = {"change": change, "reason": "", "metric": MAIN, "with": [], "without": []}
    try:
        if change == SAME_ROLE:
            plain, bare = vectors, _embedded(this, embedder, "queries", "document", spending, emit)
        else:
            changed = _unprompted(embedder, spending)
            plain = _embedded(this, changed, documents, "document", spending, emit)
            bare = _embedded(this, changed, "queries", "query", spending, emit)
    except RagCoreError as error:
        return found | {"reason": str(error)}
    relevance = this.dataset.relevance
    for name, rows, queries in (("with", vectors, asked), ("without", plain, bare)):
        lists = exact_lists(this, documents, rows, queries)
        found[name] = evaluate(lists, relevance, [MAIN])[MAIN].tolist()
    return found


def _unprompted(embedder: EmbedProvider, spending: Spending) -> EmbedProvider:
    """``embedder`` without its templates, within the same budget.

    Raises:
        RagCoreError: it cannot leave them out.
    """
    change = getattr(embedder, "with_templates", None)
    if change is None:
        raise RagCoreError(f"{embedder.name} has no with_templates(query, document)")
    _, held = spending.watch(change("{text}", "{text}"), "embed")
    return held  # type: ignore[no-any-return]


def _embedded(
    this: Job,
    embedder: EmbedProvider,
    what: Sequence[Document] | str,
    role: Role,
    spending: Spending,
    emit: Callable[..., None],
) -> Vectors:
    texts = [q.text for q in this.queries] if isinstance(what, str) else [d.indexed_text for d in what]
    meter = Meter(embedder, "embed")
    if meter.is_paid and (text := spending.expect(meter, meter.most_units(texts), "texts", len(texts))):
        emit("note", text=text)
    vectors = np.zeros((len(texts), embedder.dim), np.float32)
    for start in range(0, len(texts), 64):
        vectors[start : start + 64] = embedder.embed(texts[start : start + 64], role=role)
        emit("progress", stage="prefixes", done=min(start + 64, len(texts)), total=len(texts))
    return vectors


def exact_lists(
    this: Job, documents: Sequence[Document], vectors: Vectors, asked: Vectors, depth: int = DEPTH
) -> dict[str, list[str]]:
    """Query id → ids of the ``depth`` nearest documents within its scope: score, then id, falling.

    A query whose row is all zeros, blank or failed, finds nothing.
    """
    # by id, falling, so that a stable sort by score leaves equal ones in the order of the stores
    order = sorted(range(len(documents)), key=lambda row: documents[row].doc_id, reverse=True)
    ids = [documents[row].doc_id for row in order]
    placed = vectors[order]
    masks: dict[str, Any] = {}
    out: dict[str, list[str]] = {}
    for query, vector in zip(this.queries, asked):
        if not vector.any():
            out[query.query_id] = []
            continue
        scores = placed @ vector
        if condition := this.where(query):
            key = repr(condition)
            if key not in masks:
                matches = compile_where(condition)
                masks[key] = np.array([matches(documents[row].metadata) for row in order], bool)
            scores = np.where(masks[key], scores, -np.inf)
        best = np.argsort(-scores, kind="stable")[:depth]
        out[query.query_id] = [ids[row] for row in best if np.isfinite(scores[row])]
    return out

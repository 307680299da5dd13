"""What every store checks before it writes or searches, and the one way scores are worked out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.embedding import normalised_rows
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Vectors
from rag_core.types import Ranking

__all__ = ["ROUNDING", "checked_metadata", "checked_rows", "checked_vectors", "rescored", "unit_query"]

#: Rows whose score in single precision is this close to the k-th best are scored again in float64.
ROUNDING = 1e-5


def checked_rows(
    path: Path,
    identity: Fingerprint,
    ids: Sequence[str],
    vectors: Vectors,
    metadata: Sequence[Mapping[str, Any]] | None,
) -> tuple[Vectors, list[str]]:
    """Rows of length 1, float32 ``(n, dim)``, and the metadata of each as JSON text.

    Raises:
        InvalidArgumentError: another number or width, a repeated or empty id, a row without direction,
            metadata that are no JSON object, text that is not valid Unicode.
    """
    return checked_vectors(path, identity, ids, vectors), checked_metadata(path, ids, metadata)


def checked_vectors(path: Path, identity: Fingerprint, ids: Sequence[str], vectors: Vectors) -> Vectors:
    """The vectors alone, see :func:`checked_rows`."""
    if len(set(ids)) != len(ids) or not all(ids):
        raise InvalidArgumentError(f"{path}: ids must be distinct and non-empty; got {len(ids)} ids")
    for doc_id in ids:
        if not doc_id.isascii() and not _is_unicode(doc_id):
            raise InvalidArgumentError(f"{path}: id {doc_id!r} holds half a surrogate pair; accepted: text")
    try:
        return normalised_rows(vectors, len(ids), identity.dim, str(identity))
    except ProviderError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


def checked_metadata(
    path: Path, ids: Sequence[str], metadata: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """The metadata alone, see :func:`checked_rows`."""
    if metadata is None:
        return ["{}"] * len(ids)
    if len(metadata) != len(ids):
        raise InvalidArgumentError(f"{path}: {len(metadata)} metadata for {len(ids)} ids")
    texts = []
    for doc_id, fields in zip(ids, metadata):
        try:
            text = json.dumps(dict(fields), ensure_ascii=False, allow_nan=False)
            text.encode("utf-8")
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"{path}: the metadata of {doc_id!r} are no JSON object: {error}"
            ) from error
        texts.append(text)
    return texts


def unit_query(path: Path, identity: Fingerprint, vector: Vectors) -> Vectors | None:
    """``vector`` as float32 ``(dim,)`` of length 1; None for the zero vector of a blank query.

    Raises:
        InvalidArgumentError: another width, or values that are not finite.
    """
    query = np.asarray(vector, dtype=np.float32).ravel()
    if query.shape != (identity.dim,):
        raise InvalidArgumentError(
            f"{path}: the query vector is {query.size} wide; the store is {identity.dim} wide"
        )
    length = float(np.sqrt(np.dot(query.astype(np.float64), query)))
    if not np.isfinite(length):
        raise InvalidArgumentError(f"{path}: the query vector has length {length}; accepted: finite values")
    return None if length == 0 else np.asarray(query / length, dtype=np.float32)


def rescored(ids: Sequence[str], rows: Vectors, unit: Vectors, k: int) -> Ranking:
    """The best ``k`` of ``rows``, float32 ``(n, dim)``: dot products with ``unit`` in float64.

    Equal rows score equally, whatever their position and whichever store kept them.
    """
    scores = np.einsum("ij,j->i", rows, unit, dtype=np.float64)
    return Ranking.from_scores(zip(ids, scores.tolist()), k)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

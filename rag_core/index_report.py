"""What an ingest did, and what it would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["IngestPlan", "IngestReport"]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest or rebuild did.

    Attributes:
        added: ids that the index did not hold.
        updated: ids whose text, title or metadata are new.
        removed: ids that the index no longer holds.
        unchanged: ids left alone: neither embedded nor rewritten.
        empty: of the ids given, those without anything to index; they are known and never hits.
        failed: id -> why it has no vector. A new one is in neither leg, a changed one keeps its old version;
            both are tried again by the next ingest that brings them.
        embedded_texts: texts sent to the embedder that came back with a vector.
        reused_vectors: vectors that were at hand: of an ingest that was cut short, or of a row of which only
            the metadata changed.
        skipped: file -> why it was not read; where files were read.
        oversize: chunks above the limit, because they are one word that cannot be split.
        seconds: from the first document read to the new version in place.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    empty: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    embedded_texts: int = 0
    reused_vectors: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)
    oversize: int = 0
    seconds: float = 0.0

    @property
    def is_partial(self) -> bool:
        """Whether something that was given is not searchable in its present form."""
        return bool(self.failed)


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What :meth:`rag_core.index.Index.ingest` would do; nothing was embedded or written.

    Attributes:
        added, updated, removed, unchanged, empty, skipped, oversize: as in :class:`IngestReport`.
        texts: those that would be sent to the embedder, for its ``cost_estimate`` and ``count_tokens``.
    """

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    empty: int = 0
    texts: Sequence[str] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    oversize: int = 0

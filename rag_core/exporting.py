"""What a plug-in's model exporter answers: see ``Spec.export`` in :mod:`rag_core.registry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Exported", "ExportedFile"]


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an exported model.

    Attributes:
        dtype: of its weights.
        name: within the folder.
        size_bytes: on disk.
        agreement: ``minimum`` and ``p1`` cosine to the original's vectors over the built-in sentences, or
            ``spearman`` of a classifier's scores.
        agrees: whether that reaches what its dtype must reach.
        accepted: what it must reach, in words.
    """

    dtype: str
    name: str
    size_bytes: int
    agreement: Mapping[str, float]
    agrees: bool
    accepted: str


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported model.

    Attributes:
        folder: where it is.
        files: one a dtype.
        command: what to run next.
        notes: what else its user should know.
    """

    folder: Path
    files: tuple[ExportedFile, ...]
    command: str
    notes: tuple[str, ...] = ()

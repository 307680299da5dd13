"""Which providers of a run are variants of one model, and whether each agrees with the model's reference.

An entry of ``ResultDocument.parity`` holds ``kind`` (``embedder`` or ``reranker``), ``provider``,
``target``, ``dtype`` and ``model`` of the variant; ``reference`` (the same three of the provider it was
compared with, or null); ``fp32_reference``; the fields of :class:`harness.parity.Agreement` where there
was a comparison; ``verdict`` and ``reason``. Beside the verdicts of :mod:`harness.parity`:
``reference``, and ``not compared`` (vectors of an earlier run were not kept). A provider whose vectors
change with their neighbours differs from itself: it has an entry even where no other of its model ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.parity import DIFFERS, agree, same_space
from harness.results import CellKey, CellResult, ResultDocument, file_name
from rag_core.protocols import Vectors

__all__ = ["SELF_CHECK", "VECTORS", "compare_variants", "drop_large", "save_vectors", "vector_file"]

#: Folder of the vectors inside that of the result.
VECTORS = "vectors"
#: Key of ``CellResult.settings``: ``min_cosine`` of texts alone and among others, ``least``, ``passed``.
SELF_CHECK = "self_check"
REFERENCE, NOT_COMPARED = "reference", "not compared"
METRIC = "ndcg@10"
#: Vectors of one provider beyond this go when the run is complete.
KEPT_BYTES = 32 * 2**20
#: Documents that show whether two providers embed into one space.
SAMPLE = 256
#: Stands for a number format that is not known.
UNTOLD = "-"
#: Of two number formats the one with the lower rank is the reference.
PRECISION = {"fp32": 0, UNTOLD: 1, "fp16": 2, "bf16": 3}
COARSEST = 4
NOT_KEPT = "vectors of an earlier run were not kept; measure again with: bench run --fresh"


def vector_file(folder: Path, key: CellKey) -> Path:
    """Where the vectors of the provider of ``key`` stand; one file for all its cells."""
    return folder / f"{file_name(CellKey('', key.provider, key.target, '-', '-', 'vectors', '-'))}.npy"


def save_vectors(path: Path, documents: Vectors, queries: Vectors) -> None:
    """Write both, (n, d) and (m, d) in float32, one after the other into one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as stream:
        for rows in (documents, queries):
            np.save(stream, np.ascontiguousarray(rows, np.float32), allow_pickle=False)
    os.replace(temporary, path)


def _load(path: Path) -> tuple[Vectors, Vectors] | None:
    """Documents and queries; None where they were not kept or cannot be read."""
    try:
        with path.open("rb") as stream:
            documents, queries = (np.load(stream, allow_pickle=False) for _ in range(2))
    except (OSError, ValueError, EOFError):
        return None
    return documents, queries


def drop_large(folder: Path) -> None:
    """Delete what is larger than :data:`KEPT_BYTES`: later runs keep the agreement, not the vectors."""
    for path in folder.glob("*.npy"):
        if path.stat().st_size > KEPT_BYTES:
            path.unlink()


#: Entries of the run that this one continues, by kind, provider, target and dtype.
Earlier = Mapping[tuple[Any, ...], Mapping[str, Any]]


@dataclass(slots=True)
class Provider:
    """One provider of a run with its measured cells."""

    position: int
    cells: list[CellResult]
    file: Path

    @property
    def key(self) -> CellKey:
        return self.cells[0].key

    @property
    def identity(self) -> dict[str, str]:
        return {name: getattr(self.key, name) for name in ("provider", "target", "dtype")}

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return self.cells[0].fingerprint or {}

    @property
    def check(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.cells[0].settings.get(SELF_CHECK) or {}
        return found

    @property
    def unstable(self) -> bool:
        """Whether its vectors change with their neighbours."""
        return not self.check.get("passed", True)

    @property
    def rank(self) -> tuple[bool, int, bool, int]:
        """The lowest of a model is its reference."""
        precision = PRECISION.get(self.key.dtype, COARSEST)
        return self.unstable, precision, self.key.target != "cpu", self.position


def compare_variants(document: ResultDocument, folder: Path) -> list[dict[str, Any]]:
    """One entry per provider that shares a model with another, and per provider that is unstable.

    Args:
        document: the run with its cells, and in ``parity`` the entries of the run that it continues.
        folder: where :func:`save_vectors` put the vectors of each provider.

    Returns:
        The entries, each model's reference first. Earlier ones are kept where vectors are gone.
    """
    providers = _providers(document, folder)
    earlier = {_identity(entry): entry for entry in document.parity}
    entries = []
    for reference, *others in _groups(providers, earlier):
        if others or reference.unstable:
            entries.append(_entry(reference))
        entries += [_compared(reference, other, document, earlier) for other in others]
    return entries


def _providers(document: ResultDocument, folder: Path) -> list[Provider]:
    found: dict[tuple[str, str], Provider] = {}
    for cell in document.cells:
        if cell.status != "ok" or not cell.fingerprint:
            continue
        file = vector_file(folder, cell.key)
        place = (cell.key.provider, cell.key.target)
        found.setdefault(place, Provider(len(found), [], file)).cells.append(cell)
    return list(found.values())


def _groups(providers: Iterable[Provider], earlier: Earlier) -> list[list[Provider]]:
    """Providers by model, the reference of each model first."""
    groups: list[list[Provider]] = []
    for provider in sorted(providers, key=lambda p: p.rank):
        group = next((g for g in groups if _belongs(provider, g, earlier)), None)
        if group is None:
            groups.append([provider])
        else:
            group.append(provider)
    return groups


def _belongs(provider: Provider, group: Sequence[Provider], earlier: Earlier) -> bool:
    if not _meant_alike(provider, group[0]):
        return False
    if _kept(provider, group[0], earlier):
        return True
    if any(member.fingerprint.get("model") == provider.fingerprint.get("model") for member in group):
        return True
    ours, theirs = _load(provider.file), _load(group[0].file)
    return bool(ours and theirs and same_space(theirs[0][:SAMPLE], ours[0][:SAMPLE]))


def _meant_alike(a: Provider, b: Provider) -> bool:
    """Whether both were told to do the same: equal width and templates, and a window that did not matter.

    A template or a shorter window chosen on purpose gives other vectors, which is no fault.
    """
    names = ["dim", "query_template", "document_template"]
    cut = [
        p.cells[0].counts.get(n, 0) for p in (a, b) for n in ("n_truncated_documents", "n_truncated_queries")
    ]
    if any(cut):
        names.append("max_tokens")
    return all(a.fingerprint.get(name) == b.fingerprint.get(name) for name in names)


def _compared(
    reference: Provider, other: Provider, document: ResultDocument, earlier: Earlier
) -> dict[str, Any]:
    theirs, ours = _load(reference.file), _load(other.file)
    if theirs is None or ours is None:
        kept = _kept(other, reference, earlier)
        return dict(kept) if kept else _entry(other, reference, verdict=NOT_COMPARED, reason=NOT_KEPT)
    if not len(ours[0]) or theirs[0].shape != ours[0].shape or theirs[1].shape != ours[1].shape:
        reason = f"vectors of shape {ours[0].shape} against {theirs[0].shape}"
        return _entry(other, reference, verdict=NOT_COMPARED, reason=reason)
    if not (theirs[1].any(axis=1) & ours[1].any(axis=1)).any():
        return _entry(other, reference, verdict=NOT_COMPARED, reason="no query was answered by both")
    base, values = _values(reference, other)
    seed = document.seed
    found = agree(
        other.key.dtype,
        theirs[0],
        ours[0],
        theirs[1],
        ours[1],
        reference_values=base,
        values=values,
        seed=seed,
    )
    return _entry(other, reference, **found.as_dict())


def _values(reference: Provider, other: Provider) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """nDCG@10 by query of both, in the first store and pipeline that both have; vectors alone come first."""

    def measured(provider: Provider) -> dict[tuple[str, str, str], Sequence[float | None]]:
        cells = sorted(provider.cells, key=lambda cell: cell.key.pipeline != "vector")
        return {
            (c.key.store, c.key.pipeline, c.key.reranker): c.metrics[METRIC].per_query
            for c in cells
            if METRIC in c.metrics
        }

    theirs, ours = measured(reference), measured(other)
    shared = next((name for name in theirs if name in ours), None)
    return (theirs[shared], ours[shared]) if shared else ((), ())


def _kept(provider: Provider, reference: Provider, earlier: Earlier) -> Mapping[str, Any] | None:
    """The entry of an earlier run that compared the two."""
    entry = earlier.get(_identity({"kind": "embedder", **provider.identity}))
    return entry if entry and entry.get("reference") == reference.identity else None


def _identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("kind", "provider", "target", "dtype"))


def _entry(
    provider: Provider,
    reference: Provider | None = None,
    *,
    verdict: str = REFERENCE,
    reason: str = "",
    **measured: Any,
) -> dict[str, Any]:
    """The entry of ``provider``, which is its model's reference itself where ``reference`` is None."""
    if provider.unstable:
        check = provider.check
        fault = (
            f"vectors change with their neighbours in a batch: cosine {check['min_cosine']} "
            f"(at least {check['least']} expected)"
        )
        verdict, reason = DIFFERS, f"{reason}; {fault}" if reason else fault
    return {
        "kind": "embedder",
        **provider.identity,
        "model": str(provider.fingerprint.get("model", "")),
        "reference": reference.identity if reference else None,
        "fp32_reference": (reference or provider).key.dtype == "fp32",
        **measured,
        "verdict": verdict,
        "reason": reason,
    }

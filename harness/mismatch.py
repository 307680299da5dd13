"""Whether two results may be compared: the fields that must be equal and are not, and what only explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.config import FREE_SETTINGS, LATER_SETTINGS
from harness.provenance import machine_name, machine_of
from harness.results import CellResult, ResultDocument

__all__ = [
    "Mismatch",
    "cell_mismatches",
    "document_mismatches",
    "machines_of",
    "notes_of",
    "other_machine",
    "speed_mismatches",
]

#: Settings that move times only, and settings that move no figure at all.
SPEED_SETTINGS = ("threads",)
IDLE_SETTINGS = ("metrics", "warmup", "repeats", "min_samples", "seed")
#: Parts of ``CellResult.settings`` that only describe: how often was timed, sizes, what a check found.
IDLE_CELL_SETTINGS = (
    "rounds",
    "bm25.n_documents",
    "bm25.n_empty",
    "bm25.n_terms",
    "self_check",
    "replayed",
    "mean_weights",
)
#: Parts of ``CellResult.settings`` that earlier versions did not record, with what they then were.
LATER_CELL_SETTINGS = {"bm25.scorer": "numpy"}
MACHINE = ("cpu_model", "cpus_usable", "os", "architecture", "threads")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A field that must be equal and is not."""

    field: str
    old: Any
    new: Any


def _differing(names: Iterable[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Mismatch]:
    for name in names:
        if old.get(name) != new.get(name):
            yield Mismatch(name, old.get(name), new.get(name))


def document_mismatches(old: ResultDocument, new: ResultDocument) -> Iterator[Mismatch]:
    """Differences of data set and settings: with one of them nothing may be compared."""
    for found in _differing(
        ("corpus", "queries", "qrels"), old.dataset.get("hash", {}), new.dataset.get("hash", {})
    ):
        yield replace(found, field=f"data set: hash of {found.field}")
    if old.dataset.get("query_ids") != new.dataset.get("query_ids"):
        a, b = (len(d.dataset.get("query_ids", ())) for d in (old, new))
        yield Mismatch("data set: judged queries", f"{a} queries", f"{b} queries")
    free = {*FREE_SETTINGS, *SPEED_SETTINGS, *IDLE_SETTINGS}
    names = [name for name in dict.fromkeys((*old.spec, *new.spec)) if name not in free]
    # an earlier version lacks what it could not do: it ran as is done now where that is not asked for
    for found in _differing(names, *({**LATER_SETTINGS, **document.spec} for document in (old, new))):
        yield replace(found, field=f"setting {found.field}")
    if old.spec == new.spec and old.spec_digest != new.spec_digest:  # a setting that is not recorded
        yield Mismatch("digest of the settings", old.spec_digest, new.spec_digest)


def speed_mismatches(old: ResultDocument, new: ResultDocument) -> Iterator[Mismatch]:
    """Differences of machine and threads: with one of them times may not be compared."""
    yield from _differing(SPEED_SETTINGS, old.spec, new.spec)
    known = list(_differing(MACHINE, old.environment, new.environment))
    yield from known or _differing(("machine_fingerprint",), old.environment, new.environment)


def cell_mismatches(old: CellResult, new: CellResult) -> Iterator[Mismatch]:
    """Differences of identity and settings between two measured cells."""
    if old.status != "ok" or new.status != "ok":
        return
    for name in ("fingerprint", "settings"):
        a, b = (_recorded(_flat(getattr(cell, name) or {})) for cell in (old, new))
        # the digest follows from the other fields: it is named only where they are all equal
        idle = {*IDLE_CELL_SETTINGS, "digest"}
        fields = [f for f in dict.fromkeys((*a, *b)) if idle.isdisjoint((f, f.partition(".")[0]))]
        found = list(_differing(fields, a, b)) or list(_differing(("digest",), a, b))
        yield from (replace(m, field=f"{name} {m.field}") for m in found)
    yield from _hash_mismatches(old, new)


def _hash_mismatches(old: CellResult, new: CellResult) -> Iterator[Mismatch]:
    """Other weights or another tokenizer under the same fingerprint; earlier results record neither."""
    a, b = (cell.runtime.get("hashes") or {} for cell in (old, new))
    for found in _differing([name for name in a if name in b], a, b):
        yield replace(found, field=f"hash of the {found.field}")


def machines_of(a: CellResult, old: ResultDocument, b: CellResult, new: ResultDocument) -> str:
    """The machines of a pair that was not measured on one, where a cell says so itself."""
    if a.environment is b.environment is None:
        return ""  # those of the documents: named once, for all cells
    first, second = machine_of(a, old), machine_of(b, new)
    if not list(_differing(MACHINE, first, second)):
        return ""
    return f"{machine_name(first)} / {machine_name(second)}"


def _recorded(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with those of :data:`LATER_CELL_SETTINGS` that stand in a part it has."""
    parts = {name.partition(".")[0] for name in values}
    later = {name: value for name, value in LATER_CELL_SETTINGS.items() if name.partition(".")[0] in parts}
    return {**later, **values}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{prefix}{name}.")
        else:
            out[f"{prefix}{name}"] = value
    return out


def notes_of(old: ResultDocument, new: ResultDocument) -> Iterator[str]:
    """What differs and may well explain a change: packages, code, a result that is not complete."""
    packages = [dict(d.environment.get("packages") or {}) for d in (old, new)]
    for found in _differing(sorted({*packages[0], *packages[1]}), *packages):
        yield f"package {found.field}: {found.old or 'absent'} / {found.new or 'absent'}"
    revisions = [(d.environment.get("git") or {}).get("revision") for d in (old, new)]
    if revisions[0] != revisions[1]:
        yield "revision: {} / {}".format(*(str(r)[:12] if r else "unknown" for r in revisions))
    codes = [d.environment.get("code") for d in (old, new)]
    if all(codes) and codes[0] != codes[1]:
        yield f"code of this project: digest {codes[0]} / {codes[1]}"
    for which, document in (("old", old), ("new", new)):
        if document.status != "complete":
            yield f"the {which} result is not complete: {document.status}"


def other_machine(old: ResultDocument, new: ResultDocument) -> Iterator[str]:
    """What is compared although it may not be, because it was asked for."""
    for found in speed_mismatches(old, new):
        yield f"times and memory are compared although {found.field} differs: {found.old} / {found.new}"

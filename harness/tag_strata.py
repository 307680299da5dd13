"""The judged queries in parts by a tag: language, kind, category, whatever a data set says of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.results import ResultDocument
from harness.rows import UNTAGGED, strata_places
from harness.strata import LEAST_PER_SIDE, Part, Split, stratify

__all__ = ["FIRST", "compared_parts", "scope_tag", "tag_names", "tag_split", "tag_strata"]

#: Tags in this order; others follow by name.
FIRST = ("lang", "kind", "category")


def tag_names(document: ResultDocument, least: int = LEAST_PER_SIDE) -> list[str]:
    """The tags that divide the judged queries: two values or more with ``least`` queries each, which hold
    at least half of all between them (what has a value of its own for most queries is no stratum)."""
    tags: Mapping[str, Mapping[str, object]] = document.dataset.get("query_tags") or {}
    query_ids: Sequence[str] = document.dataset.get("query_ids") or ()
    names = {name for query_id in query_ids for name in tags.get(query_id, {})}
    order = sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    out = []
    for name in order:
        groups = strata_places(document, name)
        large = [len(places) for value, places in groups.items() if value != UNTAGGED]
        large = [n for n in large if n >= least]
        if len(large) >= 2 and 2 * sum(large) >= len(query_ids):
            out.append(name)
    return out


def scope_tag(document: ResultDocument) -> str:
    """The tag within which each query searches, which says where it looks rather than what it is."""
    return str(document.spec.get("scope") or "")


def tag_split(document: ResultDocument, tag: str, least: int = 1) -> Split:
    """The judged queries by their value of ``tag``, sorted by value, those without it last.

    Args:
        document: a result.
        tag: its name.
        least: values with fewer queries make no part.
    """
    found = strata_places(document, tag)
    parts = tuple(Part(value, tuple(places)) for value, places in found.items() if len(places) >= least)
    return Split("tag", parts, 0, 0, 0, tag=tag)


def tag_strata(document: ResultDocument, tag: str, metric: str, least: int = LEAST_PER_SIDE) -> Split:
    """:func:`tag_split` with every measured cell's means, and the differences from BM25 where a part has
    ``least`` queries; Holm's correction is over all of these."""
    whole = tag_split(document, tag)
    large = stratify(document, tag_split(document, tag, least), metric)
    by_name = {part.name: part for part in large.parts}
    small = tuple(part for part in whole.parts if part.name not in by_name)
    means = stratify(document, replace(whole, parts=small), metric, compare=False) if small else None
    by_name |= {part.name: part for part in (means.parts if means else ())}
    return replace(large, parts=tuple(by_name[part.name] for part in whole.parts))


def compared_parts(split: Split) -> Sequence[Part]:
    """The parts of a tag that were compared with BM25."""
    return [part for part in split.parts if part.versus]

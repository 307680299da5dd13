"""Means and paired differences from BM25 on parts of the queries: by words shared with what is relevant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.results import CellKey, CellResult, ResultDocument
from harness.rows import Difference, paired

__all__ = [
    "LEAST_FOR_TERCILES",
    "LEAST_PER_SIDE",
    "FusionLoss",
    "Part",
    "Split",
    "fusion_losses",
    "lexical_cell",
    "overlap_split",
    "share_split",
    "stratify",
    "words_split",
]

#: Queries that "none shared" and "some shared" each need; with fewer on a side the split is by share.
LEAST_PER_SIDE = 20
#: Queries from which on terciles are made.
LEAST_FOR_TERCILES = 15


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the judged queries.

    Attributes:
        name: what its queries have in common.
        places: positions of its queries in ``dataset["query_ids"]``, rising.
        means: cell id → mean of the metric over them; None where a value is missing.
        versus: cell id → difference from the BM25 cell, corrected together with all the others of the
            split; no entry for that cell, and for one without values.
    """

    name: str
    places: tuple[int, ...]
    means: Mapping[str, float | None] = field(default_factory=dict)
    versus: Mapping[str, Difference] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many queries."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Split:
    """The judged queries in parts, the one that shares least first.

    Attributes:
        kind: ``words`` (none shared, some shared), ``share`` (terciles of the idf-weighted share), or
            ``tag`` (see :mod:`harness.tag_strata`).
        parts: two or three, none of them empty.
        n_without_words: judged queries without a content word, which belong to no part.
        n_none, n_some: queries that share no word, and some, with a relevant document.
        reference: id of the BM25 cell that the parts compare with; None without one.
        tag: the tag that ``tag`` parts go by.
    """

    kind: str
    parts: tuple[Part, ...]
    n_without_words: int
    n_none: int
    n_some: int
    reference: str | None = None
    tag: str = ""


def overlap_split(document: ResultDocument) -> Split | None:
    """The queries by ``dataset["query_overlap"]``; None where the file has none, or too few to split.

    :func:`words_split` where both sides have enough, otherwise :func:`share_split`.
    """
    return words_split(document) or share_split(document)


def words_split(document: ResultDocument) -> Split | None:
    """Queries that share no content word against the rest; None below :data:`LEAST_PER_SIDE` on a side."""
    _, none, some, n_blank = _by_words(document)
    if min(len(none), len(some)) < LEAST_PER_SIDE:
        return None
    sides = (Part("no word shared", none), Part("some shared", some))
    return Split("words", sides, n_blank, len(none), len(some))


def share_split(document: ResultDocument, weight: str = "idf_share") -> Split | None:
    """Terciles of the share of a query's words that a relevant document has.

    Queries with equal shares stay together, so that the parts may differ in size, and two may be left.
    None below :data:`LEAST_FOR_TERCILES`.

    Args:
        document: a result.
        weight: ``idf_share``, each word by its idf, or ``share``, each word alike.
    """
    filled, none, some, n_blank = _by_words(document)
    weighted = [(place, float(v[weight])) for place, v in filled if v.get(weight) is not None]
    if len(weighted) < LEAST_FOR_TERCILES:
        return None
    parts = _terciles(weighted)
    return Split("share", parts, n_blank, len(none), len(some)) if len(parts) > 1 else None


def _by_words(
    document: ResultDocument,
) -> tuple[list[tuple[int, Mapping[str, Any]]], tuple[int, ...], tuple[int, ...], int]:
    """Queries with a content word, those that share none and some, and how many have no content word."""
    recorded: Mapping[str, Mapping[str, Any]] = document.dataset.get("query_overlap") or {}
    query_ids = document.dataset.get("query_ids", ())
    known = [(place, recorded[q]) for place, q in enumerate(query_ids) if q in recorded]
    filled = [(place, values) for place, values in known if values.get("words")]
    none = tuple(place for place, values in filled if not values["shared"])
    some = tuple(place for place, values in filled if values["shared"])
    return filled, none, some, len(known) - len(filled)


def _terciles(shares: Sequence[tuple[int, float]]) -> tuple[Part, ...]:
    values = [share for _, share in shares]
    below_most = [share for share in values if share < max(values)]
    if not below_most:
        return ()
    # an edge is a value that occurs: between two of them rounding would decide who is on which side
    thirds = np.quantile(values, (1 / 3, 2 / 3), method="inverted_cdf")
    low, high = (min(float(edge), max(below_most)) for edge in thirds)
    wanted = [
        (f"share up to {low:.2f}", -math.inf, low),
        (f"{low:.2f} to {high:.2f}", low, high),
        (f"above {high:.2f}", high, math.inf),
    ]
    made = [
        Part(name, tuple(place for place, share in shares if above < share <= most))
        for name, above, most in wanted
    ]
    return tuple(part for part in made if part.n)


def lexical_cell(document: ResultDocument) -> CellResult | None:
    """The measured BM25 cell."""
    return next(
        (cell for cell in document.cells if cell.status == "ok" and cell.key.pipeline == "bm25"), None
    )


def stratify(document: ResultDocument, split: Split, metric: str, compare: bool = True) -> Split:
    """``split`` with every measured cell's means and paired differences from BM25.

    Bootstrap intervals and p values as in :func:`harness.rows.paired`; Holm's correction is over all
    cells and parts at once. Without ``compare`` there are means alone.
    """
    reference = lexical_cell(document)
    cells = [cell for cell in document.cells if _values(cell, metric)]
    wanted: list[tuple[int, str]] = []
    pairs = []
    for number, part in enumerate(split.parts):
        for cell in cells:
            if compare and reference is not None and cell is not reference and _values(reference, metric):
                wanted.append((number, cell.key.cell_id))
                pairs.append((_picked(cell, metric, part), _picked(reference, metric, part)))
    versus: list[dict[str, Difference]] = [{} for _ in split.parts]
    for (number, cell_id), found in zip(wanted, paired(pairs, document.seed)):
        if found is not None:
            versus[number][cell_id] = found
    parts = tuple(
        replace(
            part,
            means={cell.key.cell_id: _mean(_picked(cell, metric, part)) for cell in cells},
            versus=versus[number],
        )
        for number, part in enumerate(split.parts)
    )
    return replace(split, parts=parts, reference=reference.key.cell_id if reference else None)


@dataclass(frozen=True, slots=True)
class FusionLoss:
    """A hybrid cell on one part against the better of its two legs there.

    Attributes:
        part: the queries.
        leg: id of the leg with the higher mean on them.
        versus: hybrid minus that leg, corrected for the comparisons on all parts.
    """

    part: Part
    leg: str
    versus: Difference


def fusion_losses(document: ResultDocument, split: Split, hybrid: CellKey, metric: str) -> list[FusionLoss]:
    """``hybrid`` against its better leg on every part of a split that :func:`stratify` made.

    Empty where the BM25 cell, the vector cell of the same provider and store, or ``hybrid`` is missing.
    """
    cells = {cell.key.cell_id: cell for cell in document.cells if _values(cell, metric)}
    vector = replace(hybrid, pipeline="vector").cell_id
    if split.reference is None or not {split.reference, vector, hybrid.cell_id} <= set(cells):
        return []
    legs = [
        max((vector, split.reference), key=lambda leg, part=part: part.means.get(leg) or 0.0)  # type: ignore[misc]
        for part in split.parts
    ]
    found = paired(
        [
            (_picked(cells[hybrid.cell_id], metric, part), _picked(cells[leg], metric, part))
            for part, leg in zip(split.parts, legs)
        ],
        document.seed,
    )
    return [FusionLoss(part, leg, gap) for part, leg, gap in zip(split.parts, legs, found) if gap]


def _values(cell: CellResult, metric: str) -> list[float | None]:
    found = cell.metrics.get(metric)
    return found.per_query if cell.status == "ok" and found is not None and found.mean is not None else []


def _picked(cell: CellResult, metric: str, part: Part) -> list[float | None]:
    values = _values(cell, metric)
    return [values[place] if place < len(values) else None for place in part.places]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None

"""Findings by tag in sentences: where word search collapses, and which system is weak on one part alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.render.format import score, signed
from harness.results import ResultDocument
from harness.rows import Difference, Row
from harness.strata import Part, Split
from harness.strata_findings import COLLAPSE, gap_text
from harness.tag_strata import compared_parts, scope_tag, tag_names, tag_strata

__all__ = ["MOST_SENTENCES", "WEAKER", "tag_sentences"]

#: A system is weak on a part where it stands this much lower against BM25 than on another part.
WEAKER = 0.1
MOST_SENTENCES = 3
#: Tags beyond these are looked at in strata.csv alone.
MOST_TAGS = 4


@dataclass(frozen=True, slots=True)
class _Finding:
    weight: float
    system: str
    text: str


def tag_sentences(document: ResultDocument, rows: Sequence[Row], metric: str) -> list[str]:
    """At most :data:`MOST_SENTENCES`: the largest differences from BM25 that are sure, one a provider.

    The baseline and a system that is marked as unlike its model's reference are not spoken of. A loss is
    told where the same system stands at least :data:`WEAKER` higher against BM25 on another part of that
    tag: what is lost everywhere is no matter of the tag.
    """
    usable = [row for row in rows if row.ok and not row.doubt and not row.is_baseline]
    losses: list[_Finding] = []
    collapses: list[_Finding] = []
    tags = [tag for tag in tag_names(document) if tag != scope_tag(document)]
    for tag in tags[:MOST_TAGS]:
        split = tag_strata(document, tag, metric)
        if split.reference is None:
            continue
        losses += _losses(split, usable)
        collapses += _collapses(split, usable)
    ranked = sorted(losses, key=lambda found: -found.weight)
    # of one model's pipelines the worst speaks for the others
    first = list({found.system: found for found in reversed(ranked)}.values())
    best = sorted(collapses, key=lambda found: -found.weight)[:1]
    chosen = [*best, *sorted(first, key=lambda found: -found.weight)]
    return [found.text for found in chosen[:MOST_SENTENCES]]


def _losses(split: Split, rows: Sequence[Row]) -> list[_Finding]:
    out = []
    parts = compared_parts(split)
    for row in rows:
        own = row.cell.key.cell_id
        found = [(part, part.versus[own]) for part in parts if own in part.versus]
        if len(found) < 2:
            continue
        (worst, gap), (other, best) = (pick(found, key=lambda pair: pair[1].mean) for pick in (min, max))
        if gap.sure and gap.mean < 0 and best.mean - gap.mean >= WEAKER:
            out.append(
                _Finding(
                    -gap.mean,
                    row.cell.key.provider,
                    f"{row.label} is weak on {_named(split, worst)}: {score(worst.means.get(own))} against "
                    f"BM25's {score(worst.means.get(split.reference or ''))}, {gap_text(gap)}; on "
                    f"{_named(split, other)} {signed(best.mean)}.",
                )
            )
    return out


def _collapses(split: Split, rows: Sequence[Row]) -> list[_Finding]:
    out = []
    words = split.reference or ""
    for part in compared_parts(split):
        rest = [other for other in split.parts if other is not part and other.means.get(words) is not None]
        n = sum(other.n for other in rest)
        own = part.means.get(words)
        if own is None or not n:
            continue
        elsewhere = sum((other.means[words] or 0.0) * other.n for other in rest) / n
        above = [row for row in rows if (gap := part.versus.get(row.cell.key.cell_id)) and _higher(gap)]
        if own >= COLLAPSE * elsewhere or not above:
            continue
        best = max(above, key=lambda row: part.versus[row.cell.key.cell_id].mean)
        gap = part.versus[best.cell.key.cell_id]
        text = (
            f"On {_named(split, part)} BM25 falls to {score(own)} ({score(elsewhere)} on the other {n}) and "
            f"{best.label} reaches {score(part.means.get(best.cell.key.cell_id))}: {gap_text(gap)}."
        )
        out.append(_Finding(gap.mean, best.cell.key.provider, text))
    return out


def _higher(gap: Difference) -> bool:
    return gap.sure and gap.mean > 0


def _named(split: Split, part: Part) -> str:
    return f"the {part.n} queries of {split.tag} {part.name}"

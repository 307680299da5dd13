"""The strata in sentences: where word search collapses, what holds there, whether fusion keeps both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.render.format import corrected_p, score, signed
from harness.results import ResultDocument
from harness.rows import Difference, Row
from harness.strata import FusionLoss, Part, Split, fusion_losses, overlap_split, stratify

__all__ = ["COLLAPSE", "HOLDS", "described", "gap_text", "overlap_sentences"]

#: BM25 collapses where its mean falls below this part of what it reaches on the other queries.
COLLAPSE = 0.5
#: A system holds where it keeps at least this part.
HOLDS = 0.75


def described(split: Split) -> str:
    """Which queries the first part holds, as a sentence goes on after "On the 12 queries"."""
    if split.kind == "words":
        return "that share no word with a relevant document"
    return "that share least with their relevant documents"


def gap_text(gap: Difference) -> str:
    """``+0.289, 95 % interval +0.200 to +0.380, corrected p < 0.001``."""
    return (
        f"{signed(gap.mean)}, 95 % interval {signed(gap.low)} to {signed(gap.high)}, "
        f"{corrected_p(gap.adjusted)}"
    )


def overlap_sentences(document: ResultDocument, rows: Sequence[Row], metric: str) -> list[str]:
    """At most two sentences: BM25 against vectors where words are not shared, and what fusion makes of both.

    None where BM25 does not collapse there, or no vector cell is surely above it. Cells that are marked
    as unlike their model's reference are not spoken of.
    """
    plain = overlap_split(document)
    if plain is None:
        return []
    split = stratify(document, plain, metric)
    low, high = split.parts[0], split.parts[-1]
    named = {row.cell.key.cell_id: row for row in rows}
    vectors = [
        row
        for row in rows
        if row.ok
        and not row.doubt
        and row.cell.key.pipeline == "vector"
        and (found := low.versus.get(row.cell.key.cell_id)) is not None
        and found.sure
        and found.mean > 0
    ]
    words = split.reference
    if words is None or not vectors or not _collapses(low, high, words):
        return []
    best = max(vectors, key=lambda row: _of(low, row.cell.key.cell_id))
    own = best.cell.key.cell_id
    gap = low.versus[own]
    kept = "holds at" if _of(low, own) >= HOLDS * _of(high, own) else "reaches"
    out = [
        f"On the {low.n} queries {described(split)} {named[words].label} falls to {score(_of(low, words))} "
        f"({score(_of(high, words))} on the {high.n} that share {_rest(split)}) and {best.label} {kept} "
        f"{score(_of(low, own))} ({score(_of(high, own))}): {gap_text(gap)}."
    ]
    # of several methods of fusion the one that does best: what it loses none of them keeps
    fused = max(
        (row for row in rows if row.ok and not row.doubt and _is_fused(row, best)),
        key=lambda row: row.cell.mean(metric) or 0.0,
        default=None,
    )
    losses = fusion_losses(document, split, fused.cell.key, metric) if fused else []
    if fused and losses:
        out.append(_fusion_sentence(fused, losses, named))
    return out


def _is_fused(row: Row, vectors: Row) -> bool:
    key = row.cell.key
    return key.pipeline == "hybrid" and replace(key, pipeline="vector") == vectors.cell.key


def _of(part: Part, cell_id: str) -> float:
    return part.means.get(cell_id) or 0.0


def _collapses(low: Part, high: Part, words: str) -> bool:
    return _of(low, words) < COLLAPSE * _of(high, words)


def _rest(split: Split) -> str:
    return "some" if split.kind == "words" else "most"


def _fusion_sentence(fused: Row, losses: Sequence[FusionLoss], named: dict[str, Row]) -> str:
    shown = []
    for loss in losses:
        unsure = "" if loss.versus.sure else ", not told apart"
        shown.append(
            f"{loss.part.name} {score(_of(loss.part, fused.cell.key.cell_id))} "
            f"({signed(loss.versus.mean)} from {named[loss.leg].label}{unsure})"
        )
    lost = any(loss.versus.sure and loss.versus.mean < 0 for loss in losses)
    start = "Fusion does not keep both" if lost else "Fusion keeps both"
    return f"{start}: {fused.label}, {'; '.join(shown)}."

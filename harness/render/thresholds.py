"""The section of ``report.md`` on score thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.render.blocks import escape
from harness.render.format import MISSING, share, signed
from harness.rows import Row
from harness.tables import pipe_table
from harness.thresholds import LEAST_KEPT, LEAST_QUERIES, MOST_LEAK, Point, Thresholds, thresholds

__all__ = ["found_thresholds", "score_text", "score_thresholds"]

LEAKS = {
    "unanswerable": (
        "leak: queries that no document of the corpus answers (judged so, or without any judgement) whose "
        "highest score is at least t"
    ),
    "others": (
        f"leak: with fewer than {LEAST_QUERIES} queries without an answer, the best candidate of every query "
        "that is not judged relevant stands in for a false answer; where judgements have gaps some of these "
        "are answers"
    ),
}


def found_thresholds(rows: Sequence[Row], seed: int = 0) -> list[tuple[Row, Thresholds]]:
    """Every measured row with scores of its own; where two rows read the same scores, the first of them."""
    out, seen = [], set()
    for row in rows:
        key = row.cell.key
        place = replace(key, pipeline="rerank" if key.reranker != "-" else key.pipeline)
        found = thresholds(row.cell, seed) if row.ok else None
        if found is not None and place not in seen:
            seen.add(place)
            out.append((row, found))
    return out


def score_thresholds(rows: Sequence[Row], seed: int = 0) -> str:
    """The section, or nothing where no row kept scores."""
    chosen = found_thresholds(rows, seed)
    if not chosen:
        return ""
    body = [[row.label, _scored_by(row, found), found.verdict, *_fields(found)] for row, found in chosen]
    columns = ["system", "scores of", "verdict", "queries", "threshold", "95 % interval", "kept", "leak"]
    columns += ["kept − leak"]
    lines = [f"- {escape(_sentence(row, found))}\n" for row, found in chosen]
    leaks = {found.leak_of for _, found in chosen}
    return (
        "## Score thresholds\n\n"
        + "".join(lines)
        + "\n"
        + pipe_table(columns, body, numeric=6)
        + "\nKept: queries with a relevant document in the pool whose best one scores at least t; "
        + "; ".join(text for name, text in LEAKS.items() if name in leaks)
        + f". The threshold has the greatest kept − leak among those that surely keep {share(LEAST_KEPT)}; "
        f"it is suggested where the leak surely stays within {share(MOST_LEAK)}, and stands in brackets "
        "where not. Queries: behind kept and leak. Intervals: exact binomial of the "
        "shares, bootstrap of the threshold and of kept − leak, from which the optimism of choosing and "
        "judging on the same queries is taken off.\n\n"
        "A reranker's threshold is the `score_threshold` of `Index.hybrid_search` with that reranker, and "
        "`bench run --score-threshold` measures what it does. One for `vector` is a cosine, for a search by "
        "vectors alone: without a reranker `hybrid_search` holds its threshold against fused scores. "
        "Thresholds do not carry over to another model, dtype, engine or window, not even of the same "
        "weights: a quantised reranker may keep the order and move every score.\n"
    )


def score_text(value: float) -> str:
    """Four significant digits, the sign as in the tables."""
    return f"{value:.4g}".replace("-", "−")


def _fields(found: Thresholds) -> list[str]:
    queries = f"{found.n_kept} / {found.n_leak}"
    best = found.best
    if best is None or found.low is None or found.high is None:
        return [queries, *[MISSING] * 5]
    shown = score_text(best.threshold) if found.separates else f"({score_text(best.threshold)})"
    gain = f"{signed(found.gain)} ({signed(found.gain_low)} to {signed(found.gain_high)})"
    bounds = f"{score_text(found.low)} to {score_text(found.high)}"
    return [queries, shown, bounds, _kept(best), _leak(best), gain]


def _scored_by(row: Row, found: Thresholds) -> str:
    """The model that the scores belong to, its dtype included."""
    if found.scores == "vector":
        return escape(f"{row.cell.model}, {row.cell.key.dtype}, cosine")
    return escape(str(row.cell.settings.get("reranker", row.cell.key.reranker)))


def _kept(best: Point) -> str:
    return f"{share(best.kept)} ({share(best.kept_low)} to {share(best.kept_high)})"


def _leak(best: Point) -> str:
    return f"{share(best.leak)} ({share(best.leak_low)} to {share(best.leak_high)})"


def _sentence(row: Row, found: Thresholds) -> str:
    if not found.separates or found.best is None:
        return f"{row.label}: {found.verdict}: {found.reason}."
    return f"{row.label}: score_threshold={found.best.threshold:.4g} is suggested: {found.reason}."

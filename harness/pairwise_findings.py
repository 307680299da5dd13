"""Gaps between systems in sentences: how sure, how many queries would tell, who is close enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.differences import SURE, Difference
from harness.pairwise import EQUIVALENT, FEWEST, NOT_WORSE, OPEN, WORSE, Pair, margin_verdict
from harness.power import detectable, queries_needed
from harness.render.format import corrected_p, listed, number, percent, score, signed
from harness.rows import Row

__all__ = ["about", "evidence", "margin_sentences", "rival_sentences", "tally", "would_tell"]

#: From this many queries on the figure only says that no data set will do.
MOST = 1_000_000
#: Systems that a sentence about a margin names.
MOST_NAMED = 5


def evidence(found: Difference) -> str:
    """``+0.289 (+55 %), 95 % interval +0.200 to +0.380, corrected p < 0.001``."""
    relative = f" ({percent(found.relative)})" if found.relative is not None else ""
    return (
        f"{signed(found.mean)}{relative}, 95 % interval {signed(found.low)} to {signed(found.high)}, "
        f"{corrected_p(found.adjusted)}"
    )


def tally(pair: Pair) -> str:
    """``wins 92, ties 60, losses 28``."""
    return f"wins {pair.wins}, ties {pair.ties}, losses {pair.losses}"


def about(queries: int) -> str:
    """A number of queries with two digits, rounded up: ``about 1,900``."""
    if queries > MOST:
        return "more than a million"
    step = 10 ** max(0, len(str(queries)) - 2)
    return f"about {-(-queries // step) * step:,}"


def would_tell(pair: Pair, family: int | None = None) -> str:
    """``about 1,900 queries would tell such a difference; these 180 tell 0.031``; empty where it is no help.

    ``family``: comparisons corrected together, where they are others than the pair's own.
    """
    level = SURE / (family or pair.family)
    n, mean = pair.difference.n, pair.difference.mean
    needed = pair.needed if family is None else queries_needed(mean, pair.sd, level)
    least = pair.detectable if family is None else detectable(n, pair.sd, level)
    if pair.sure or pair.sd == 0:
        return ""
    own = (
        f"these {number(n)} tell {score(least)}" if least is not None else f"{number(n)} are too few to tell"
    )
    if needed is None:
        return f"no number of queries tells equal means apart; {own}"
    if needed <= n:  # the formula takes the differences as normal; skewed ones need more
        return ""
    return f"{about(needed)} queries would tell such a difference; {own}"


def rival_sentences(others: Sequence[Row], apart: Mapping[str, Pair], equals: Sequence[Row]) -> list[str]:
    """The best against the runner-up, then whom else it cannot be told apart from.

    Args:
        others: all but the best, best first.
        apart: cell id → the best against that cell.
        equals: those of ``others`` that are not told apart from the best.
    """
    if not others or all(row.is_baseline for row in others):
        return []
    runner_up, pair = others[0], apart.get(others[0].cell.key.cell_id)
    name = f"the runner-up {runner_up.label} ({_mean(runner_up)})"
    if pair is None:
        first = f"The difference from {name} was not measured: no query has both values."
    else:
        start = "It is ahead of" if pair.sure else "It cannot be told apart from"
        family = f" (Holm, {pair.family} pairs)" if pair.family > 1 else ""
        first = f"{start} {name}: {evidence(pair.difference)}{family}; {tally(pair)}"
        more = would_tell(pair)
        first += f": {more}." if more else "."
    rest = [row for row in equals if row is not runner_up]
    if not rest:
        return [first]
    named = ", ".join(f"{row.label} ({_mean(row)})" for row in rest)
    return [first, f"Nor from: {named}." if runner_up in equals else f"Not told apart either: {named}."]


def margin_sentences(others: Sequence[Row], apart: Mapping[str, Pair], margin: float | None) -> list[str]:
    """Who is shown to be close enough to the best, one sentence for each verdict; none without a margin."""
    if margin is None:
        return []
    found: dict[str, list[str]] = {EQUIVALENT: [], NOT_WORSE: [], WORSE: [], OPEN: []}
    needed = 0
    for row in others:
        pair = apart.get(row.cell.key.cell_id)
        if pair is not None:
            verdict = margin_verdict(pair, margin)
            found[verdict].append(row.label)
            if verdict == OPEN:
                needed = max(needed, FEWEST, queries_needed(margin, pair.sd, 2 * SURE) or 0)
    size = f"{margin:g}"
    heads = {
        EQUIVALENT: f"Equivalent to the best within {size}",
        NOT_WORSE: f"Not worse than the best by more than {size}",
        WORSE: f"Worse than the best by more than {size}",
        OPEN: f"Not shown to be within {size} of the best, nor to be worse by more",
    }
    out = [
        f"{heads[v]} (one-sided 95 % bound): {listed(names, MOST_NAMED)}"
        for v, names in found.items()
        if names
    ]
    if found[OPEN]:
        out[-1] += f"; {about(needed)} queries would show it of each that is equal in truth"
    return [f"{line}." for line in out]


def _mean(row: Row) -> str:
    return score(row.cell.mean(row.main) or 0.0)

"""``report.md``, "How sure": the best system against every other, and the leaders among themselves."""

from __future__ import annotations

from collections.abc import Sequence

from harness.margins import parse_margins
from harness.pairwise import FEWEST, Pair, all_pairs, margin_verdict
from harness.pairwise_findings import MOST, about
from harness.render.format import MISSING, number, p_value, score, signed
from harness.results import ResultDocument
from harness.rows import Row, winner
from harness.tables import pipe_table

__all__ = ["how_sure"]

#: Leaders that are also compared with one another: all their pairs stand in the table.
MOST_LEADERS = 5
#: Below this many queries the report says that intervals are somewhat narrow.
FEW = 100


def how_sure(document: ResultDocument, rows: Sequence[Row], metric: str) -> str:
    """The section; empty where there are not two systems to compare. Marked cells take no part."""
    best = winner(rows)
    seed = document.seed
    pairs = all_pairs([row.cell for row in rows if row.ok and not row.doubt], metric, seed)
    if best is None or not pairs:
        return ""
    own = best.cell.key.cell_id
    with_best = [pair for pair in pairs if pair.better == own]
    leaders = [pair.other for pair in with_best if not pair.sure][: MOST_LEADERS - 1]
    among = [pair for pair in pairs if pair.better in leaders and pair.other in leaders]
    margin = parse_margins(document.spec.get("margins") or ()).get(metric)
    label = {row.cell.key.cell_id: row.label for row in rows}
    columns = ["better", "other", "verdict", "Δ", "95 % interval", "corrected p", "wins / ties / losses"]
    columns += ["d_z", "queries that would tell", "these tell"]
    if margin is not None:
        columns.insert(3, f"margin {margin:g}")
    body = [_fields(pair, label, margin) for pair in [*with_best, *among]]
    return "## How sure\n\n" + pipe_table(columns, body, numeric=7) + _caption(pairs[0], margin)


def _fields(pair: Pair, label: dict[str, str], margin: float | None) -> list[str]:
    found = pair.difference
    return [
        label[pair.better],
        label[pair.other],
        "told apart" if pair.sure else "cannot be told apart",
        *([margin_verdict(pair, margin)] if margin is not None else []),
        signed(found.mean),
        f"{signed(found.low)} to {signed(found.high)}",
        p_value(found.adjusted),
        f"{pair.wins} / {pair.ties} / {pair.losses}",
        number(pair.effect) if pair.effect is not None else MISSING,
        _needed(pair),
        score(pair.detectable),
    ]


def _needed(pair: Pair) -> str:
    if pair.sure or pair.needed is None or pair.needed <= pair.difference.n:
        return MISSING
    return f"> {MOST:,}" if pair.needed > MOST else about(pair.needed).removeprefix("about ")


def _caption(pair: Pair, margin: float | None) -> str:
    lines = [
        f"\nRandomisation test over the queries, two-sided; all {pair.family} pairs of systems are corrected "
        "together (Holm), because the best is picked by the same figures. d_z: mean difference over the "
        "standard deviation of the differences (Cohen). Queries that would tell: for a true difference as "
        f"large as the one seen, with 80 % power at 0.05 / {pair.family} (Guenther's formula for the paired "
        "t test); these tell: the smallest difference that the queries at hand find so.\n"
    ]
    if pair.difference.n < FEW:
        lines.append(
            "\nWith few queries a bootstrap interval is somewhat narrow: at 30 a 95 % interval covers about "
            "93 % (benchmarks/significance.py). To be told apart, two systems must pass the test as well.\n"
        )
    if margin is not None:
        lines.append(
            f"\nMargin {margin:g}: by the one-sided 95 % bound, each pair on its own. *Not worse*: the "
            "other is behind by less; *equivalent*: nor is it ahead by more; *worse*: behind by more. "
            f"Below {FEWEST} queries nothing is claimed.\n"
        )
    return "".join(lines)

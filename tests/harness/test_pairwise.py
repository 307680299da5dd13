"""Every system against every other, in figures and in sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.differences import Difference
from harness.pairwise import EQUIVALENT, NOT_WORSE, OPEN, WORSE, Pair, all_pairs, margin_verdict
from harness.pairwise_findings import about, margin_sentences, tally, would_tell
from harness.power import queries_needed
from harness.results import ResultDocument
from harness.rows import make_rows
from harness.significance import holm, paired_difference
from harness.summary import verdict

E5_HYBRID, E5_VECTOR = "e5-small/cpu/q4/flat/hybrid/-", "e5-small/cpu/q4/flat/vector/-"


def pair(lower: float = -0.01, upper: float = 0.03, **more: object) -> Pair:
    found = Difference(0.01, -0.02, 0.04, 0.3, 0.6, 180, 0.02, lower, upper)
    made = Pair("a", "b", found, 92, 60, 28, 0.2, 0.05, 1874, 0.0421, 3)
    return replace(made, **more)  # type: ignore[arg-type]


def test_all_pairs_are_the_paired_differences_corrected_together(document: ResultDocument) -> None:
    pairs = all_pairs(document.cells, "ndcg@10")
    assert len(pairs) == 15
    assert {p.family for p in pairs} == {15}
    (found,) = (p for p in pairs if (p.better, p.other) == (E5_HYBRID, E5_VECTOR))
    a, b = (np.array(document.cell(i).metrics["ndcg@10"].per_query, float) for i in (E5_HYBRID, E5_VECTOR))  # type: ignore[union-attr]
    expected = paired_difference(a, b)
    assert (found.difference.mean, found.difference.p_value) == (expected.mean, expected.p_value)
    assert [p.difference.adjusted for p in pairs] == holm([p.difference.p_value for p in pairs])
    assert (found.wins, found.ties, found.losses) == (
        int(np.sum(a > b)),
        int(np.sum(a == b)),
        int(np.sum(a < b)),
    )
    assert found.sd == pytest.approx(np.std(a - b, ddof=1))
    assert found.effect == pytest.approx(expected.mean / found.sd)
    assert found.needed == queries_needed(expected.mean, found.sd, alpha=0.05 / 15)
    means = {cell.key.cell_id: cell.mean("ndcg@10") for cell in document.cells}
    assert all(means[p.better] >= means[p.other] for p in pairs)  # type: ignore[operator]


def test_the_same_run_twice_is_a_tie_that_no_number_of_queries_breaks(document: ResultDocument) -> None:
    cell = document.cells[2]
    twin = replace(cell, key=replace(cell.key, store="chroma"))
    (found,) = all_pairs([cell, twin], "ndcg@10")
    assert (found.wins, found.ties, found.losses) == (0, 40, 0)
    assert (found.sd, found.effect, found.needed) == (0.0, None, None)
    assert not found.sure
    assert would_tell(found) == ""


def test_one_shared_query_and_none(document: ResultDocument) -> None:
    one, other = document.cells[2], document.cells[3]
    other.metrics["ndcg@10"].per_query[1:] = [None] * 39
    (found,) = all_pairs([one, other], "ndcg@10")
    assert (found.difference.n, found.sd, found.detectable) == (1, 0.0, None)
    other.metrics["ndcg@10"].per_query[0] = None
    assert all_pairs([one, other], "ndcg@10") == []
    assert all_pairs([one], "ndcg@10") == []


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (-0.005, 0.008, EQUIVALENT),
        (-0.02, 0.008, NOT_WORSE),
        (-0.02, 0.03, OPEN),
        (0.005, 0.03, OPEN),
        (0.015, 0.03, WORSE),
        (None, None, OPEN),
    ],
)
def test_the_margin_is_read_off_the_one_sided_bounds(
    lower: float | None, upper: float | None, expected: str
) -> None:
    assert margin_verdict(pair(lower, upper), 0.01) == expected  # type: ignore[arg-type]


def test_nothing_is_claimed_of_a_margin_from_few_queries() -> None:
    few = replace(pair().difference, lower=0.0, upper=0.0, n=29)
    assert margin_verdict(pair(difference=few), 0.01) == OPEN
    assert margin_verdict(pair(difference=replace(few, n=30)), 0.01) == EQUIVALENT


def test_numbers_of_queries_are_rounded_up_to_two_digits() -> None:
    assert [about(n) for n in (7, 99, 101, 1874, 999_001, 2_000_000)] == [
        "about 7",
        "about 99",
        "about 110",
        "about 1,900",
        "about 1,000,000",
        "more than a million",
    ]


def test_what_would_tell_two_apart() -> None:
    assert tally(pair()) == "wins 92, ties 60, losses 28"
    assert would_tell(pair()) == "about 1,900 queries would tell such a difference; these 180 tell 0.042"
    assert (
        would_tell(pair(needed=None)) == "no number of queries tells equal means apart; these 180 tell 0.042"
    )
    assert would_tell(pair(detectable=None)).endswith("; 180 are too few to tell")
    # the formula promises what the test just failed to see: nothing is said
    assert would_tell(pair(needed=150)) == ""
    # another correction, another number
    assert would_tell(pair(), family=1) == (
        f"{about(queries_needed(0.01, 0.2) or 0)} queries would tell such a difference; these 180 tell 0.042"
    )


def test_the_verdict_tells_wins_and_how_many_queries_would_tell(document: ResultDocument) -> None:
    (said,) = (s for s in verdict(document).sentences if "runner-up" in s)
    assert said.startswith("It cannot be told apart from the runner-up e5-small · vector (0.781): +0.015 (")
    (found,) = (
        p for p in all_pairs(document.cells, "ndcg@10") if (p.better, p.other) == (E5_HYBRID, E5_VECTOR)
    )
    more = f"{about(found.needed or 0)} queries would tell such a difference"
    own = f"these 40 tell {found.detectable:.3f}"
    assert said.endswith(f" (Holm, 15 pairs); {tally(found)}: {more}; {own}.")


def test_the_best_is_tested_with_all_pairs_corrected(document: ResultDocument) -> None:
    said = verdict(document)
    pairs = all_pairs(document.cells, "ndcg@10")
    assert said.against_runner_up == pairs[0].difference


def test_margins_are_told_for_each_verdict(document: ResultDocument) -> None:
    rows = {row.cell.key.cell_id: row for row in make_rows(document)}
    names = list(rows)[:4]
    bounds = [(-0.005, 0.008), (-0.02, 0.008), (0.015, 0.03), (-0.02, 0.03)]
    apart = {name: pair(*ends) for name, ends in zip(names, bounds)}
    said = margin_sentences([rows[n] for n in names], apart, 0.01)
    assert said[0] == f"Equivalent to the best within 0.01 (one-sided 95 % bound): {rows[names[0]].label}."
    assert said[1].startswith("Not worse than the best by more than 0.01 (")
    assert said[2].startswith("Worse than the best by more than 0.01 (")
    needed = about(queries_needed(0.01, 0.2, alpha=0.10) or 0)
    assert said[3].endswith(
        f"{rows[names[3]].label}; {needed} queries would show it of each that is equal in truth."
    )
    assert margin_sentences([rows[names[0]]], apart, None) == []
    document.spec["margins"] = ["ndcg@10=0.3"]
    assert any(s.startswith("Equivalent to the best within 0.3") for s in verdict(document).sentences)
    assert not any("the best within" in s for s in verdict(document, "map@100").sentences)


def test_many_within_a_margin_are_counted(document: ResultDocument) -> None:
    rows = make_rows(document)[:6] + make_rows(document)[:1]
    apart = {row.cell.key.cell_id: pair(0.02, 0.03) for row in rows}
    (said,) = margin_sentences(rows, apart, 0.01)
    assert said.endswith(f"{rows[3].label} and 3 others.")

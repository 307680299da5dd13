"""The verdict: what it says in each situation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.results import CellResult, ResultDocument
from harness.summary import metric_title, verdict

E5_HYBRID = "e5-small/cpu/q4/flat/hybrid/-"
E5_VECTOR = "e5-small/cpu/q4/flat/vector/-"


def text(document: ResultDocument) -> str:
    return "\n".join(verdict(document).sentences)


def shifted(cell: CellResult, by: float) -> None:
    for found in cell.metrics.values():
        found.per_query = [None if v is None else v + by for v in found.per_query]
        if found.mean is not None:
            found.mean += by


def test_winner_evidence_and_price(document: ResultDocument) -> None:
    said = verdict(document)
    assert said.winner == E5_HYBRID
    assert said.runner_up == E5_VECTOR
    assert said.metric == "ndcg@10"
    assert said.sentences[0] == (
        "e5-small · hybrid scores highest: nDCG@10 0.796 (95 % interval 0.740–0.839, 40 judged queries)."
    )
    assert said.sentences[1].startswith("It beats the baseline (fake · hybrid, 0.425): +0.370 (+87 %), 95 %")
    assert said.sentences[1].endswith("corrected p < 0.001 (Holm, 5 comparisons); wins 37, ties 0, losses 3.")
    assert (
        "On the 5 headline queries it reaches 0.687 against the baseline's 0.498 (+38 %)." in said.sentences
    )
    assert said.headline_change == pytest.approx(0.687 / 0.498 - 1, abs=0.005)
    costs = next(s for s in said.sentences if s.startswith("It costs"))
    assert "p95 52.3 ms, 410 MB of memory at its peak; the baseline: p50 549 µs" in costs


def test_the_terminal_leaves_the_parts_of_the_queries_to_the_report(document: ResultDocument) -> None:
    said = verdict(document)
    assert said.lead == tuple(s for s in said.sentences if s not in said.details) + (
        (f"{len(said.details)} further findings stand in the report.",) if len(said.details) > 1 else ()
    )
    many = replace(said, details=said.sentences[-2:], sentences=said.sentences)
    assert many.lead == (*said.sentences[:-2], "2 further findings stand in the report.")
    one = replace(said, details=said.sentences[-1:])
    assert one.lead[-1] == "1 further finding stands in the report."


def test_no_warning_is_left_to_the_report(document: ResultDocument) -> None:
    said = verdict(document)
    assert set(said.cautions) <= set(said.lead)
    assert said.lead[0] == said.sentences[0]


def test_two_that_cannot_be_told_apart(document: ResultDocument) -> None:
    said = verdict(document)
    assert said.equals == (E5_VECTOR,)
    assert said.against_runner_up is not None
    assert not said.against_runner_up.sure
    assert "It cannot be told apart from the runner-up e5-small · vector (0.781): +0.015" in text(document)


def test_a_clear_runner_up(document: ResultDocument) -> None:
    document.cells = [cell for cell in document.cells if cell.key.cell_id != E5_VECTOR]
    said = verdict(document)
    assert "It is ahead of the runner-up bm25 (0.513)" in text(document)
    assert said.equals == ()


def test_the_faster_of_equals_is_named(document: ResultDocument) -> None:
    vector = document.cell(E5_VECTOR)
    assert vector is not None
    vector.speed["p95_s"] = 0.02
    assert "e5-small · vector answers fastest: p95 20.0 ms against 52.3 ms." in text(document)


def test_the_others_it_cannot_be_told_apart_from_are_listed(document: ResultDocument) -> None:
    twin = document.cell(E5_VECTOR)
    assert twin is not None
    document.cells.append(replace(twin, key=replace(twin.key, store="chroma")))
    said = text(document)
    assert "Nor from: e5-small · vector (chroma) (0.781)." in said


def test_fusion_below_its_better_leg_names_the_leg(document: ResultDocument) -> None:
    said = [s for s in verdict(document).sentences if s.startswith("Fusion does not pay")]
    assert len(said) == 1  # the baseline's 0.425 is left out: its vectors know nothing on purpose
    assert "minilm · hybrid 0.441 is below its better leg, bm25 0.513" in said[0]
    assert said[0].endswith("(not told apart).")


def test_an_english_model_on_other_languages(document: ResultDocument) -> None:
    (warned,) = [s for s in verdict(document).sentences if s.startswith("Warning")]
    assert warned == (
        "Warning: minilm is made for en; the data set also has es, pt "
        "(minilm · vector, nDCG@10: en 0.804, es 0.291, pt 0.340)."
    )


def test_failures_and_skips_and_lost_queries(document: ResultDocument) -> None:
    document.cells[-1].status = "skipped"
    document.cells[-1].reason = "no key"
    document.cells[0].counts["n_failed"] = 1
    said = text(document)
    assert "1 of 8 cells failed: broken · vector: RuntimeError: the weights are upside down" in said
    assert "1 of 8 cells could not run here: broken · hybrid: no key." in said
    assert "bm25: 1 query failed and count 0." in said
    assert "3 queries have no relevant document and no part in the means." in said


def test_many_warnings_are_counted(document: ResultDocument) -> None:
    document.cells[0].warnings = [f"warning number {i}" for i in range(9)]
    assert "4 further warnings stand in the report." in text(document)


def test_a_run_that_was_interrupted_says_so(document: ResultDocument) -> None:
    document.status = "interrupted"
    assert "The run is not complete (interrupted)" in text(document)


def test_the_baseline_may_win(document: ResultDocument) -> None:
    shifted(document.cells[1], 0.5)
    said = verdict(document)
    assert said.winner == document.baseline
    assert said.against_baseline is None
    assert said.sentences[1] == "That is the baseline itself: nothing measured here scores higher."


def test_no_better_than_the_baseline(document: ResultDocument) -> None:
    document.cells = [c for c in document.cells if c.key.provider != "e5-small" and c.key.provider != "bm25"]
    said = text(document)
    assert "minilm · vector scores highest" in said
    assert "It cannot be told apart from the baseline (fake · hybrid, 0.425): +0.061" in said


def test_without_a_baseline(document: ResultDocument) -> None:
    document.baseline = None
    assert "Nothing is compared with the baseline: it was not measured." in text(document)


def test_nothing_measured(document: ResultDocument) -> None:
    document.cells = document.cells[-2:]
    said = verdict(document)
    assert said.winner is None
    assert said.sentences[0] == "Not measured: no cell has a value of nDCG@10."
    assert "2 of 2 cells failed" in text(document)


def test_the_only_system_has_no_rival(document: ResultDocument) -> None:
    document.cells = document.cells[1:2]
    assert "runner-up" not in text(document)


def test_values_that_are_missing_are_not_compared(document: ResultDocument) -> None:
    """O37: not a number in every query of the winner: no difference, and that is said."""
    best = document.cell(E5_HYBRID)
    assert best is not None
    best.metrics["ndcg@10"].per_query = [math.nan] * 40
    best.speed = {}
    said = text(document)
    assert "The difference from the baseline (fake · hybrid, 0.425) was not measured" in said
    assert "The difference from the runner-up e5-small · vector (0.781) was not measured" in said
    assert "It costs, per query and warm: not measured" in said
    assert "nan" not in said.lower()


def test_another_metric(document: ResultDocument) -> None:
    said = verdict(document, "map@100")
    assert said.metric == "map@100"
    assert "MAP@100" in said.sentences[0]
    assert metric_title("mrr@10") == "MRR@10"
    assert metric_title("answer_f1") == "answer_f1"


def test_a_variant_that_differs_is_neither_winner_nor_rival(marked: ResultDocument) -> None:
    said = verdict(marked)
    assert said.winner == "bm25/cpu/-/-/bm25/-"
    assert said.runner_up == "minilm/cpu/int8/flat/vector/-"
    assert not {E5_HYBRID, E5_VECTOR} & set(said.equals)
    assert said.sentences[0].startswith(
        "e5-small · hybrid scores highest (0.796) but is not recommended: top-10 overlap 0.31 (at least 0.8 "
        "expected). Next is bm25: nDCG@10 "
    )
    assert (
        "Compared with minilm (cpu, int8), for want of an fp32 reference: e5-small (cpu, q4) differs (cosine "
        "at least 0.4128, top-10 overlap 0.310, nDCG@10 −0.100)."
    ) in said.sentences
    assert (
        "e5-small (cpu, q4) is not recommended: top-10 overlap 0.31 (at least 0.8 expected)."
        in said.sentences
    )


def test_variants_that_agree_are_told_with_their_speed(marked: ResultDocument) -> None:
    reference, other = marked.parity
    reference["fp32_reference"] = True
    other |= {"verdict": "equivalent", "reason": ""}
    said = verdict(marked)
    assert said.winner == E5_HYBRID
    assert (
        "Compared with minilm (cpu, int8): e5-small (cpu, q4) gives other vectors but equivalent results "
        "(cosine at least 0.4128, top-10 overlap 0.310, nDCG@10 −0.100) at 1.00 × the documents a second."
    ) in said.sentences
    for missing in ("min_cosine", "overlap_at_10", "difference"):
        del other[missing]
    other |= {"verdict": "not compared", "reason": "vectors were not kept"}
    assert "e5-small (cpu, q4) was not compared: vectors were not kept." in verdict(marked).sentences


def test_nothing_is_recommended_where_all_are_marked(marked: ResultDocument) -> None:
    marked.cells = [c for c in marked.cells if c.key.provider == "e5-small"]
    said = verdict(marked)
    assert (said.winner, said.equals) == (None, ())
    assert said.sentences[0] == (
        "Nothing can be recommended: e5-small · hybrid scores highest, but top-10 overlap 0.31 (at least 0.8 "
        "expected)."
    )

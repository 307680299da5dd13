"""What is said of a sweep, from documents made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.sweep_result import SweepDocument
from harness.sweep_summary import (
    agreement_word,
    best_point,
    caveats,
    overlapping,
    rows,
    sentences,
    short_label,
    variant_names,
)

Make = Callable[..., SweepDocument]


def test_the_first_sentence_names_the_batch_size_and_what_one_costs(make_sweep: Make) -> None:
    said = sentences(make_sweep({"e5@cpu?dtype=fp32": {1: 20, 8: 60, 32: 100, 64: 99}}))
    assert said == [
        "Batch size 32 is fastest for e5 · cpu · fp32: 100 passages/s (95.0 to 105). "
        "Batch size 1 is 5.00 times slower (20.0 passages/s). "
        "Not told apart from it: 64 (their rounds overlap)."
    ]


def test_noise_makes_no_winner(make_sweep: Make) -> None:
    (first,) = sentences(make_sweep({"e5@cpu": {1: 99, 8: 98, 32: 100}}))
    assert first == (
        "The batch size makes no difference that can be told for e5 · cpu · fp32: "
        "100 passages/s (95.0 to 105) at 32."
    )


def test_the_fastest_variant_that_agrees_wins_and_a_faster_wrong_one_is_named(make_sweep: Make) -> None:
    document = make_sweep(
        {
            "e5@cpu?dtype=fp32": {1: 20, 8: 60},
            "e5@cpu?dtype=int8": {1: 40, 8: 120},
            "e5@mlx?dtype=int8": {1: 400, 8: 500},
        },
        differs={("e5@mlx?dtype=int8", 1), ("e5@mlx?dtype=int8", 8)},
    )
    said = sentences(document)
    assert said[0].startswith("Batch size 8 is fastest for e5 · cpu · int8: 120 passages/s")
    assert said[1] == (
        "Of 2 variants that agree, e5 · cpu · int8 is fastest: 2.00 times e5 · cpu · fp32 "
        "(60.0 passages/s at batch size 8)."
    )
    assert said[2] == (
        "Not recommended, failed the check against e5@cpu?dtype=fp32: e5 · mlx · int8 at batch size 1, 8: "
        "cosine 0.7100 to the reference."
    )
    assert [agreement_word(row) for row in rows(document)] == ["same"] * 4 + ["DIFFERS"] * 2


def test_two_variants_that_overlap_are_not_told_apart(make_sweep: Make) -> None:
    said = sentences(make_sweep({"e5@cpu?dtype=fp32": {8: 99}, "e5@cpu?dtype=bf16": {8: 100}}))
    assert "not told apart from e5 · cpu · fp32" in said[1]


def test_nothing_is_recommended_where_nothing_agrees(make_sweep: Make) -> None:
    said = sentences(make_sweep({"e5@cpu": {8: 99}}, differs={("e5@cpu", 8)}))
    assert said[0] == "No setting can be recommended: none agrees with its reference."


def test_a_point_that_was_not_compared_is_not_recommended(make_sweep: Make) -> None:
    document = make_sweep({"e5@cpu": {1: 10, 8: 99}})
    document.variants[0].points[1].agreement = None
    assert best_point(document.variants[0].points) is document.variants[0].points[0]
    assert agreement_word(rows(document)[1]) == "not compared"
    document.variants[0].points[1].status = "failed"
    assert agreement_word(rows(document)[1]) == "failed"


def test_overlap_is_of_the_rounds(make_sweep: Make) -> None:
    points = make_sweep({"e5@cpu": {1: 80, 8: 92, 16: 100}}).variants[0].points
    # 92 + 5 % reaches 100 - 5 %, 80 + 5 % does not
    assert [p.batch_size for p in overlapping(points[2], points)] == [8]


def test_failed_and_skipped_variants_are_named_with_the_reason(make_sweep: Make) -> None:
    document = make_sweep({"e5@cpu": {8: 99}, "e5@mlx": {}})
    document.variants[1].status, document.variants[1].reason = "skipped", "no Apple Silicon"
    assert sentences(document)[-1] == "e5 · mlx · fp32: skipped: no Apple Silicon"
    assert sentences(make_sweep({})) == ["Nothing was measured."]


def test_caveats_say_what_the_figures_hold_for(make_sweep: Make) -> None:
    said = " ".join(caveats(make_sweep({"e5@cpu": {8: 99}})))
    assert "Holds for 128 texts of civic on Test CPU, 2 CPUs, median of 3 rounds" in said
    assert "No fp32 variant" not in said
    alone = make_sweep({"e5@cpu?dtype=q4": {1: 9, 8: 99}})
    said = " ".join(caveats(alone))
    assert "No fp32 variant was measured beside e5 · cpu · q4" in said
    assert caveats(make_sweep({})) == []


def test_a_number_format_that_changes_nothing_is_pointed_out(make_sweep: Make) -> None:
    document = make_sweep({"e5@cpu?dtype=fp32": {8: 60}, "e5@cpu?dtype=int8": {8: 60}})
    assert "may not have taken effect" not in " ".join(caveats(document))
    found = document.variants[1].points[0].agreement
    assert found is not None
    found["min_cosine"] = 1 - 1e-12
    assert "e5 · cpu · int8: the vectors are those of fp32" in " ".join(caveats(document))


@pytest.mark.parametrize(
    "change, words",
    [
        ((0.05, 0.02, 0.08), "cross is best at a pool of 20: nDCG@10 +0.050 on 0.700"),
        ((0.01, -0.01, 0.03), "cross cannot be told from no reranking; at its best depth, 20"),
        ((-0.1, -0.2, -0.05), "cross makes the order worse at every depth; least so at 20"),
    ],
)
def test_rerankers_are_judged_by_their_interval(
    make_sweep: Make, change: tuple[float, float, float], words: str
) -> None:
    document = make_sweep({}, pools={"cross@cpu": {10: (0.71, change), 20: (0.75, change)}})
    (said,) = sentences(document)
    assert said.startswith(words.replace("cross", "cross", 1))
    assert "optimistic" in " ".join(caveats(document))


def test_names_are_short_unless_two_would_be_the_same(make_sweep: Make) -> None:
    assert short_label("st:/models/a/mini?path=/x/y&dtype=fp32&layers=3") == "st:mini path=y layers=3"
    clash = make_sweep({"st:/one/mini@cpu": {1: 1}, "st:/two/mini@cpu": {1: 1}, "fake@cpu": {1: 1}})
    assert list(variant_names(clash).values()) == [
        "st:/one/mini@cpu",
        "st:/two/mini@cpu",
        "fake · cpu · fp32",
    ]


def test_the_document_round_trips(make_sweep: Make) -> None:
    document = make_sweep({"e5@cpu": {1: 1.5}}, pools={"noop": {10: (0.7, (0.0, 0.0, 0.0))}})
    values: dict[str, Any] = document.as_dict()
    assert SweepDocument.from_dict(values).as_dict() == values

"""Reading the document of a sweep: what is wrong is named with the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.results import ResultError
from harness.sweep_result import Point, SweepDocument, VariantResult, load_sweep


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "not a JSON document"),
        ("[]", "sweep_version is None; accepted: 1"),
        ('{"sweep_version": 2}', "sweep_version is 2"),
        ('{"sweep_version": 1}', "not the document of a sweep"),
    ],
)
def test_what_is_not_a_sweep_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(text)
    with pytest.raises(ResultError, match=words) as caught:
        load_sweep(tmp_path)
    assert str(file) in str(caught.value)


def test_points_stand_in_the_order_of_their_size() -> None:
    variant = VariantResult("fake@cpu", "fake", "cpu", "fp32", "ok")
    for size in (8, None, 1, 8):
        variant.put(Point(size, n_texts=size or 0))
    assert [point.name for point in variant.points] == ["own", "1", "8"]
    assert variant.complete
    variant.put(Point(8, "failed", "no room"))
    assert not variant.complete


def test_not_a_number_never_reaches_the_file(
    make_sweep: Callable[..., SweepDocument], tmp_path: Path
) -> None:
    document = make_sweep({"fake@cpu": {1: 10}})
    document.variants[0].points[0].passages_per_s = float("nan")
    document.write(tmp_path)
    assert load_sweep(tmp_path).variants[0].points[0].passages_per_s is None

"""Hybrid rows beside their legs and the better leg of each query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.fusion_rows import fusion_rows
from harness.results import MetricResult, ResultDocument
from harness.rows import clean, make_rows
from harness.summary import verdict

METRIC = "ndcg@10"


def put(document: ResultDocument, cell_id: str, values: list[float]) -> None:
    cell = document.cell(cell_id)
    assert cell is not None
    cell.metrics[METRIC] = MetricResult(float(np.mean(values)), 0.0, 1.0, list(values))


def legs(document: ResultDocument, vector: list[float], bm25: list[float], hybrid: list[float]) -> None:
    for cell in document.cells:
        for values, provider, pipeline in (
            (vector, "e5-small", "vector"), (bm25, "bm25", "bm25"), (hybrid, "e5-small", "hybrid"),
        ):  # fmt: skip
            if (cell.key.provider, cell.key.pipeline) == (provider, pipeline):
                put(document, cell.key.cell_id, values)


def test_better_worse_and_the_better_leg_of_each_query(document: ResultDocument) -> None:
    legs(document, [1.0, 0.0] * 20, [0.0, 0.5] * 20, [0.5, 0.5] * 20)
    by_label = {one.row.label: one for one in fusion_rows(make_rows(document), METRIC)}
    one = by_label["e5-small · hybrid"]
    assert one.worse is not None
    assert (one.better.label, one.worse.label) == ("e5-small · vector", "bm25")
    assert one.oracle == pytest.approx(0.75)
    assert one.to_better is not None
    assert one.to_worse is not None
    assert one.to_oracle is not None
    assert one.to_better.mean == pytest.approx(0.0)
    assert one.to_worse.mean == pytest.approx(0.25)
    assert one.to_oracle.mean == pytest.approx(-0.25)
    assert not one.lost
    # of the baseline no vector cell was measured: nothing is known of a ceiling
    assert (by_label["fake · hybrid"].worse, by_label["fake · hybrid"].oracle) == (None, None)
    assert by_label["fake · hybrid"].to_oracle is None


def test_each_method_of_fusion_has_its_own_row_with_the_same_legs(document: ResultDocument) -> None:
    hybrid = next(c for c in document.cells if (c.key.provider, c.key.pipeline) == ("e5-small", "hybrid"))
    document.cells.append(replace(hybrid, key=replace(hybrid.key, fusion="adaptive")))
    found = [one for one in fusion_rows(make_rows(document), METRIC) if "e5-small" in one.row.label]
    assert [one.row.cell.key.fusion for one in found] == ["rrf", "adaptive"]
    assert found[0].better.cell.key == found[1].better.cell.key
    assert found[0].to_better == found[1].to_better


def test_a_sure_loss_names_the_leg_to_use(document: ResultDocument) -> None:
    spread = np.linspace(0, 0.1, 40).tolist()
    legs(document, [0.8 + v for v in spread], [0.3] * 40, [0.6 + v / 2 for v in spread])
    said = [s for s in verdict(document).sentences if s.startswith("Fusion does not pay for e5-small")]
    assert len(said) == 1
    assert said[0].endswith(": take e5-small · vector alone.")


def test_values_that_are_missing_are_left_out_of_the_ceiling(document: ResultDocument) -> None:
    legs(document, [1.0, 0.0] * 20, [0.0, 0.5] * 20, [0.5, 0.5] * 20)
    vector = next(c for c in document.cells if (c.key.provider, c.key.pipeline) == ("e5-small", "vector"))
    vector.metrics[METRIC].per_query[0] = None
    one = next(o for o in fusion_rows(make_rows(clean(document)), METRIC) if "e5" in o.row.label)
    assert one.oracle == pytest.approx((19 * 1.0 + 20 * 0.5) / 39)
    assert one.to_oracle is not None
    assert one.to_oracle.n == 39

"""Checks before a write or a search; every store has the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core.errors import InvalidArgumentError
from rag_core.fingerprint import Fingerprint
from rag_core.stores.rows import checked_rows, rescored, unit_query

IDENTITY = Fingerprint("fake", "m", "1", 4, "fp32", "mean")
PATH = Path("s")


def test_rows_come_back_with_length_one_and_metadata_as_json() -> None:
    rows, texts = checked_rows(
        PATH, IDENTITY, ["a", "é"], np.eye(4, dtype=np.float32)[:2] * 3, [{"n": 1}, {"é": None}]
    )
    assert np.array_equal(rows, np.eye(4)[:2])
    assert texts == ['{"n": 1}', '{"é": null}']
    assert checked_rows(PATH, IDENTITY, ["a"], np.ones((1, 4), np.float32), None)[1] == ["{}"]


@pytest.mark.parametrize(
    ("ids", "metadata", "words"),
    [
        (["a", "a"], None, "distinct"),
        (["a", ""], None, "non-empty"),
        (["a", "\ud800"], None, "surrogate"),
        (["a", "b"], [{}], "1 metadata for 2 ids"),
        (["a", "b"], [{}, {"x": float("nan")}], "metadata of 'b' are no JSON object"),
        (["a", "b"], [{}, {"x": {1, 2}}], "no JSON object"),
        (["a", "b"], [{}, {"x": "\udfff"}], "no JSON object"),
    ],
)
def test_what_is_refused(ids: list[str], metadata: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        checked_rows(PATH, IDENTITY, ids, np.eye(4, dtype=np.float32)[:2], metadata)


def test_queries() -> None:
    unit = unit_query(PATH, IDENTITY, np.array([0, 3, 0, 4], np.float64))
    assert unit is not None
    assert unit.dtype == np.float32
    assert unit == pytest.approx([0, 0.6, 0, 0.8])
    assert unit_query(PATH, IDENTITY, np.zeros(4)) is None
    for bad, words in ((np.zeros(3), "3 wide; the store is 4 wide"), (np.array([0, np.nan, 0, 1]), "finite")):
        with pytest.raises(InvalidArgumentError, match=words):
            unit_query(PATH, IDENTITY, bad)


def test_scores_do_not_depend_on_the_position_of_a_row() -> None:
    """O27: one row at 33 places, which a product of matrices may round in several ways."""
    rng = np.random.default_rng(1)
    row, unit = rng.standard_normal((2, 37)).astype(np.float32)
    found = rescored([f"d{i:02}" for i in range(33)], np.tile(row, (33, 1)), unit, 3)
    assert found.doc_ids == ("d32", "d31", "d30")
    assert len(set(found.scores)) == 1

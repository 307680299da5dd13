"""Vectors on disk against those of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.datasets import Dataset, load_dataset
from harness.sweep_agreement import judge_points, reference_of, vector_folder
from harness.sweep_plan import SweepSpec
from harness.sweep_result import Point, VariantResult
from harness.sweep_worker import chosen_queries

SPEC = SweepSpec("mini", ("fake",))


@pytest.fixture
def dataset() -> Dataset:
    return load_dataset("mini")


def stored(out: Path, label: str, dataset: Dataset, *, dim: int = 16, dtype: str = "int8") -> VariantResult:
    """A variant of one point, its vectors drawn from a seed."""
    variant = VariantResult(
        label, "m", label.partition("@")[2].partition("?")[0], dtype, "ok", points=[Point(1)]
    )
    folder = vector_folder(out, variant)
    folder.mkdir(parents=True)
    drawn = np.random.default_rng(0)
    n_documents = sum(not document.is_empty for document in dataset.documents)
    for name, n in (("reference", n_documents), ("queries", len(chosen_queries(dataset, SPEC)))):
        np.save(folder / f"{name}.npy", drawn.normal(size=(n, dim)).astype(np.float32))
    np.save(folder / "batch-1.npy", np.load(folder / "reference.npy"))
    return variant


def judged(variant: VariantResult, reference: VariantResult, dataset: Dataset, out: Path) -> dict[str, Any]:
    judge_points(variant, reference, dataset, SPEC, out)
    return variant.points[0].agreement or {}


def test_the_reference_is_fp32_on_the_cpu_before_others(tmp_path: Path, dataset: Dataset) -> None:
    int8 = stored(tmp_path, "m@cpu?dtype=int8", dataset)
    other = stored(tmp_path, "m@mlx?dtype=fp32", dataset, dtype="fp32")
    assert reference_of(int8, [int8], tmp_path) is int8
    assert reference_of(int8, [int8, other], tmp_path) is other
    first = stored(tmp_path, "m@cpu?dtype=fp32", dataset, dtype="fp32")
    assert reference_of(int8, [int8, other, first], tmp_path) is first
    stranger = VariantResult("n@cpu", "n", "cpu", "int8")
    assert reference_of(stranger, [int8, first, stranger], tmp_path) is stranger


def test_equal_vectors_are_the_same_with_no_difference_of_ndcg(tmp_path: Path, dataset: Dataset) -> None:
    a, b = (stored(tmp_path, label, dataset) for label in ("m@cpu", "m@mlx"))
    found = judged(b, a, dataset, tmp_path)
    assert (found["verdict"], found["reference"], found["itself"]) == ("same", "m@cpu", False)
    assert found["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert found["min_cosine"] == pytest.approx(1.0)


def test_other_widths_differ(tmp_path: Path, dataset: Dataset) -> None:
    a, b = stored(tmp_path, "m@cpu", dataset), stored(tmp_path, "m@mlx", dataset, dim=8)
    found = judged(b, a, dataset, tmp_path)
    assert found["verdict"] == "differs"
    assert found["reason"] == "vectors are 8 wide, those of the reference 16"


def test_without_queries_documents_stand_in(tmp_path: Path, dataset: Dataset) -> None:
    bare = Dataset("bare", dataset.documents, (), ())
    found = judged(stored(tmp_path, "m@cpu", bare), stored(tmp_path, "m@mlx", bare), bare, tmp_path)
    assert (found["verdict"], found["difference"], found["overlap_at_10"]) == ("same", None, 1.0)


def test_a_large_corpus_has_no_ndcg(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.sweep_agreement.WHOLE_CORPUS", 3)
    variant = stored(tmp_path, "m@cpu", dataset)
    assert judged(variant, variant, dataset, tmp_path)["difference"] is None


def test_points_without_vectors_are_left_alone(tmp_path: Path, dataset: Dataset) -> None:
    variant = VariantResult("m@cpu", "m", "cpu", "int8", "ok", points=[Point(1)])
    assert judged(variant, variant, dataset, tmp_path) == {}

"""The result document: round trip, strict JSON, atomic writing, readable refusals."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.results import (
    CellKey,
    CellResult,
    MetricResult,
    ResultDocument,
    ResultError,
    file_name,
    load_result,
    strict,
    write_atomic,
)


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is no JSON")


def test_a_document_survives_the_file(document: ResultDocument, tmp_path: Path) -> None:
    document.write(tmp_path / "result.json")
    assert load_result(tmp_path) == document
    assert load_result(tmp_path / "result.json").as_dict() == document.as_dict()


def test_the_same_document_gives_the_same_bytes(
    factory: Callable[[], ResultDocument], tmp_path: Path
) -> None:
    factory().write(tmp_path / "a.json")
    factory().write(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_numbers_that_json_lacks_become_null(document: ResultDocument, tmp_path: Path) -> None:
    """O37: the writer gives strict JSON, numpy numbers plain."""
    cell = document.cells[0]
    cell.metrics["ndcg@10"] = MetricResult(math.nan, -math.inf, math.inf, [math.nan, 0.5])
    cell.speed = {"p50_s": math.inf, "score": np.float32(0.5), "n": np.int64(3)}  # type: ignore[dict-item]
    document.write(tmp_path / "result.json")
    values = json.loads((tmp_path / "result.json").read_text(), parse_constant=refuse)
    written = values["cells"][0]
    assert written["metrics"]["ndcg@10"] == {
        "mean": None,
        "low": None,
        "high": None,
        "per_query": [None, 0.5],
    }
    assert written["speed"] == {"p50_s": None, "score": 0.5, "n": 3}
    assert isinstance(written["speed"]["n"], int)


def test_strict_takes_containers_apart() -> None:
    assert strict({1: (np.bool_(True), {Path("a/b")}), "x": np.array([1.0, np.nan])}) == {
        "1": [True, ["a/b"]],
        "x": [1.0, None],
    }
    with pytest.raises(TypeError, match="object"):
        strict({"x": object()})


def test_put_replaces_the_cell_of_the_same_key(document: ResultDocument) -> None:
    count = len(document.cells)
    again = CellResult(document.cells[2].key, "failed", reason="later")
    document.put(again)
    assert len(document.cells) == count
    assert document.cell(again.key.cell_id) is again
    document.put(CellResult(CellKey("civic", "new", "cpu", "-", "flat", "vector", "-"), "ok"))
    assert len(document.cells) == count + 1
    assert document.cell("nowhere") is None
    assert again.mean("ndcg@10") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON document"),
        ("[]", "schema_version is None; accepted: 1"),
        ('{"schema_version": 99}', "schema_version is 99; accepted: 1"),
        ('{"schema_version": 1}', "not a result document"),
        ('{"schema_version": 1, "cells": []}', "not a result document"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(ResultError, match=words) as caught:
        load_result(tmp_path)
    assert str(file) in str(caught.value)


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="bench run"):
        load_result(tmp_path / "nothing")


def test_unknown_fields_of_a_later_minor_version_are_ignored(
    document: ResultDocument, tmp_path: Path
) -> None:
    values = document.as_dict() | {"later": 1}
    values["cells"][0]["later"] = 2
    (tmp_path / "result.json").write_text(json.dumps(values))
    assert load_result(tmp_path) == document


def test_writing_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep" / "result.json"
    write_atomic(file, "old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in file.parent.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("pipeline", "given", "fusion"),
    [
        ("vector", "", "-"),
        ("vector", "adaptive", "-"),
        ("hybrid", "", "rrf"),
        ("hybrid+rerank", "-", "rrf"),
        ("hybrid", "zscore", "zscore"),
    ],
)
def test_a_key_knows_how_its_legs_were_fused(pipeline: str, given: str, fusion: str) -> None:
    assert CellKey("d", "p", "cpu", "q4", "flat", pipeline, "-", given).fusion == fusion


def test_keys_of_results_without_a_fusion_stay_what_they_were() -> None:
    values = {"data": "d", "provider": "p", "target": "cpu", "dtype": "q4", "store": "flat"}
    old = CellKey(**values, pipeline="hybrid", reranker="-")
    assert old == CellKey(**values, pipeline="hybrid", reranker="-", fusion="rrf")
    assert old.cell_id == "p/cpu/q4/flat/hybrid/-"
    other = CellKey(**values, pipeline="hybrid", reranker="-", fusion="adaptive")
    assert other.cell_id == "p/cpu/q4/flat/hybrid/-/adaptive"
    assert file_name(other) != file_name(old)

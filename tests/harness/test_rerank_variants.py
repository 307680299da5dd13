"""Rerankers of one model, told apart and compared by the raw scores beside the runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from harness.render.markdown import render
from harness.rerank_variants import compare_rerankers
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, file_name, result_schema
from harness.rows import make_rows
from harness.summary import verdict

IDS = [f"d{i}" for i in range(20)]
SETTINGS = "max_tokens=512&windows=1&batching=any"


def cell(
    spec: str, target: str = "cpu", settings: str = SETTINGS, model: str = "tiny", **more: Any
) -> CellResult:
    key = CellKey("d", more.pop("provider", "fake"), "cpu", "fp32", "flat", "hybrid+rerank", spec)
    metrics = {"ndcg@10": MetricResult(0.5, 0.4, 0.6, [0.5] * 3)}
    fingerprint = f"cross-encoder:{model}@{target}#abc?{settings}"
    return CellResult(
        key, "ok", settings={"reranker": fingerprint}, metrics=metrics, speed={"p50_s": 0.01}, **more
    )


def store(runs: Path, one: CellResult, scores: list[Any], ids: list[str] = IDS) -> None:
    runs.mkdir(exist_ok=True)
    pools = {f"q{i}": {"doc_ids": ids, "scores": row} for i, row in enumerate(scores)}
    (runs / f"{file_name(one.key)}.pool.json").write_text(json.dumps({"queries": pools}))


def scores(seed: int = 0) -> list[list[float]]:
    return np.random.default_rng(seed).normal(size=(3, 20)).tolist()  # type: ignore[no-any-return]


def test_variants_of_a_reranker_are_compared_and_marked(document: ResultDocument, tmp_path: Path) -> None:
    plain, near, far = cell("tiny"), cell("tiny?dtype=fp16"), cell("tiny?dtype=int8", "nvidia")
    other = cell("else", model="else")
    document.cells += [far, near, plain, other]
    store(tmp_path, plain, scores())
    store(tmp_path, near, [[2 * s + 1 for s in row] for row in scores()])
    store(tmp_path, far, scores(1))
    store(tmp_path, other, scores(2))
    document.parity = compare_rerankers(document, tmp_path)
    found = [(e["provider"], e["target"], e["dtype"], e["verdict"]) for e in document.parity]
    assert found == [
        ("tiny", "cpu", "-", "reference"),
        ("tiny?dtype=fp16", "cpu", "fp16", "same"),
        ("tiny?dtype=int8", "nvidia", "int8", "differs"),
    ]
    jsonschema.validate(document.as_dict(), result_schema())
    assert [row.cell.key.reranker for row in make_rows(document) if row.doubt] == ["tiny?dtype=int8"]
    report = render(document)
    assert "## Agreement of rerankers" in report
    assert (
        "| tiny?dtype=fp16 | cpu | fp16 | tiny (cpu, -) | same | 1.00000 | 1.00000 | 1.000 | 1.000 |"
        in report
    )
    assert "| ! tiny?dtype=int8 | nvidia | int8 |" in report
    assert any(
        "tiny?dtype=fp16 (cpu, fp16) gives the same scores (rank correlation at least 1.0000" in sentence
        for sentence in verdict(document).sentences
    )


def test_other_settings_or_another_model_are_no_variants(document: ResultDocument, tmp_path: Path) -> None:
    document.cells = [
        cell("a"),
        cell("b", settings="max_tokens=64&windows=1&batching=any"),
        cell("c", model="d"),
    ]
    assert compare_rerankers(document, tmp_path) == []
    document.cells[1].settings["reranker"] = (
        "cross-encoder:tiny@cpu#x?max_tokens=512&windows=1&batching=single"
    )
    assert [e["verdict"] for e in compare_rerankers(document, tmp_path)] == ["reference", "not compared"]
    document.cells[0].settings["reranker"] = "noop"
    assert compare_rerankers(document, tmp_path) == []


@pytest.mark.parametrize(
    ("values", "ids"),
    [([None] * 3, IDS), (scores(), IDS[::-1])],
)
def test_pools_that_do_not_match_are_not_compared(
    document: ResultDocument, tmp_path: Path, values: list[Any], ids: list[str]
) -> None:
    document.cells = [cell("a"), cell("b")]
    store(tmp_path, document.cells[0], scores())
    store(tmp_path, document.cells[1], values, ids)
    entry = compare_rerankers(document, tmp_path)[1]
    assert (entry["verdict"], entry["reason"]) == ("not compared", "no pool was scored by both")
    document.cells[1].key = cell("b", provider="other").key
    assert compare_rerankers(document, tmp_path)[1]["verdict"] == "not compared"


def test_scores_that_are_no_numbers_are_ranked_last(document: ResultDocument, tmp_path: Path) -> None:
    document.cells = [cell("a"), cell("b")]
    odd = [["Infinity", *range(18), None]] * 3
    store(tmp_path, document.cells[0], odd)
    store(tmp_path, document.cells[1], odd)
    entry = compare_rerankers(document, tmp_path)[1]
    assert (entry["verdict"], entry["min_correlation"], entry["n_queries"]) == ("same", 1.0, 3)

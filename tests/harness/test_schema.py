"""The published JSON Schema accepts what is written and refuses everything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from harness.results import CellResult, MetricResult, ResultDocument, StageTimes, result_schema


@pytest.fixture
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(result_schema())


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(result_schema())
    assert result_schema()["$schema"].endswith("2020-12/schema")


def test_it_accepts_a_document(document: ResultDocument, validator: jsonschema.Draft202012Validator) -> None:
    assert list(validator.iter_errors(document.as_dict())) == []


def test_it_accepts_nulls_where_nothing_was_measured(
    document: ResultDocument, validator: jsonschema.Draft202012Validator
) -> None:
    """O37: not a number is null, and null is allowed."""
    cell = document.cells[0]
    cell.metrics["ndcg@10"] = MetricResult(math.nan, None, None, [math.nan])
    cell.stages["bm25"] = StageTimes([math.nan, 0.1], [])
    document.baseline = None
    document.cells.append(CellResult(document.cells[-1].key, "skipped", reason="no key"))
    assert list(validator.iter_errors(document.as_dict())) == []


def test_it_accepts_the_agreement_of_variants_and_files_from_before(
    marked: ResultDocument, validator: jsonschema.Draft202012Validator
) -> None:
    values = marked.as_dict()
    assert list(validator.iter_errors(values)) == []
    values["parity"][1]["verdict"] = "fine"
    assert [error.json_path for error in validator.iter_errors(values)] == ["$.parity[1].verdict"]
    del values["parity"]
    assert list(validator.iter_errors(values)) == []
    assert ResultDocument.from_dict(values).parity == []


Edit = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.update(more=1),
        lambda d: d.pop("spec_digest"),
        lambda d: d.update(schema_version=2),
        lambda d: d.update(status="done"),
        lambda d: d.update(baseline=3),
        lambda d: d["dataset"].update(more=1),
        lambda d: d["dataset"]["hash"].pop("qrels"),
        lambda d: d["dataset"].update(n_queries=-1),
        lambda d: d["dataset"].update(query_ids=["a", "a"]),
        lambda d: d["cells"][0].update(status="fine"),
        lambda d: d["cells"][0].update(more=1),
        lambda d: d["cells"][0].pop("counts"),
        lambda d: d["cells"][0]["key"].pop("dtype"),
        lambda d: d["cells"][0]["key"].update(model="x"),
        lambda d: d["cells"][0]["counts"].update(n_failed=0.5),
        lambda d: d["cells"][0]["speed"].update(p50_s="fast"),
        lambda d: d["cells"][0]["metrics"]["ndcg@10"].update(mean="high"),
        lambda d: d["cells"][0]["metrics"]["ndcg@10"].update(p=0.5),
        lambda d: d["cells"][0]["metrics"].update({"NDCG 10": d["cells"][0]["metrics"]["ndcg@10"]}),
        lambda d: d["cells"][0]["stages"]["bm25"].pop("warmup_s"),
        lambda d: d["cells"][0].update(total_s=[None]),
        lambda d: d["cells"][-1].update(reason=None),
        lambda d: d["cells"][-1].update(reason=""),
    ],
)
def test_it_refuses(document: ResultDocument, validator: jsonschema.Draft202012Validator, edit: Edit) -> None:
    values = document.as_dict()
    edit(values)
    assert list(validator.iter_errors(values))

"""Against what trec_eval itself printed, and against per-query values of runs with heavy ties."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from harness.formats.trec import read_qrels, read_run
from harness.metrics import evaluate, evaluated_queries

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
REFERENCE = SHARED / "trec_eval_reference"
pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="needs the reference data beside the checkout")

FAMILIES = {"ndcg_cut": "ndcg", "P": "precision", "recall": "recall", "success": "success", "map_cut": "map"}
WHOLE = {"map": "map", "recip_rank": "mrr", "ndcg": "ndcg", "set_P": "precision", "set_recall": "recall"}


def ours(name: str) -> str | None:
    """Our name of a trec_eval measure; None for one that we do not have."""
    if name in WHOLE:
        return WHOLE[name]
    family, _, cutoff = name.rpartition("_")
    return f"{FAMILIES[family]}@{cutoff}" if family in FAMILIES and cutoff.isdigit() else None


def relevance(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for qrel in read_qrels(path):
        grades.setdefault(qrel.query_id, {})[qrel.doc_id] = qrel.relevance
    return grades


@pytest.mark.parametrize(
    ("out", "qrels", "results", "least"),
    [
        ("out.test", "qrels.test", "results.test", 11),
        ("out.test", "qrels.test.with-comments", "results.test", 11),
        ("out.comment.test", "qrels.comment.test", "results.comment.test", 11),
        ("out.test.a", "qrels.test", "results.test", 40),
        ("out.test.aq", "qrels.test", "results.test", 160),
        ("out.test.aqc", "qrels.test", "results.trunc", 160),
        ("out.test.meas_params", "qrels.test", "results.test", 36),
    ],
)
def test_trec_evals_own_output(out, qrels, results, least):
    folder = REFERENCE / "trec_eval"
    printed: dict[str, dict[str, float]] = {}
    n_queries = 3
    for line in (folder / out).read_text().splitlines():
        name, query_id, value = line.split("\t")
        if name.strip() == "num_q":
            n_queries = int(value)
        if ours(name.strip()):
            printed.setdefault(ours(name.strip()), {})[query_id.strip()] = float(value)
    grades, run = relevance(folder / qrels), read_run(folder / results)
    if "c" not in out.rpartition(".")[2]:  # without -c only queries in the run take part
        grades = {query_id: judged for query_id, judged in grades.items() if query_id in run.rankings}
    found = evaluate(run.rankings, grades, printed)
    query_ids = evaluated_queries(grades)
    compared = 0
    for name, by_query in printed.items():
        # trec_eval's mean has queries without a relevant document in it, as 0; ours leaves them out
        values = dict(zip(query_ids, found[name])) | {"all": np.sum(found[name]) / n_queries}
        for query_id, value in by_query.items():
            assert values[query_id] == pytest.approx(value, abs=5.0001e-5), (name, query_id)
            compared += 1
    assert compared >= least


@pytest.mark.parametrize(
    "name", ["adi-en.bm25", "cranfield-en.bm25", "cranfield-en.bm25.ties", "faquad-pt.bm25"]
)
def test_per_query_values_to_the_last_digits(name):
    folder = REFERENCE / "generated"
    expected = json.loads((folder / f"{name}.expected.json").read_text())
    grades = relevance(folder / f"{name.partition('.')[0]}.qrels")
    measures = {measure: ours(measure) for measure in expected["mean"] if ours(measure)}
    found = evaluate(read_run(folder / f"{name}.run").rankings, grades, measures.values())
    query_ids = evaluated_queries(grades)
    assert set(query_ids) == set(expected["per_query"])
    assert len(measures) == 12
    for measure, metric in measures.items():
        values = [expected["per_query"][query_id][measure] for query_id in query_ids]
        assert found[metric] == pytest.approx(np.array(values), abs=1e-9), measure
        assert np.mean(found[metric]) == pytest.approx(expected["mean"][measure], abs=1e-9)

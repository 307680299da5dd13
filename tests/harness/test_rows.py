"""Rows, their distance from the baseline, names and strata."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.results import CellKey, ResultDocument
from harness.rows import (
    UNTAGGED,
    Difference,
    clean,
    difference,
    doubt,
    labels,
    main_metric,
    make_rows,
    metric_names,
    once,
    paired,
    strata,
    winner,
)
from harness.significance import paired_difference
from harness.summary import verdict

BASE = "fake/cpu/fp32/flat/hybrid/-"


def key(provider: str = "e5", pipeline: str = "hybrid", reranker: str = "-", **more: str) -> CellKey:
    values = {"target": "cpu", "dtype": "fp32", "store": "flat", **more}
    return CellKey("d", provider, values["target"], values["dtype"], values["store"], pipeline, reranker)


def test_names_are_as_short_as_they_can_be() -> None:
    keys = [key(), key("bm25", "bm25"), key(pipeline="hybrid+rerank", reranker="noop")]
    assert list(labels(keys).values()) == ["e5 · hybrid", "bm25", "e5 · hybrid+rerank · noop"]


def test_names_tell_cells_apart() -> None:
    keys = [key(dtype="q4"), key(), key(target="nvidia"), key(store="chroma"), key("other")]
    names = labels(keys)
    assert names[keys[0].cell_id] == "e5 · hybrid (q4, flat)"
    assert names[keys[2].cell_id] == "e5@nvidia · hybrid"
    assert names[keys[4].cell_id] == "other · hybrid"
    assert len(set(names.values())) == 5


def test_the_rows_stand_in_the_documents_order_with_baseline_and_winner(document: ResultDocument) -> None:
    rows = make_rows(document)
    assert [row.cell.key for row in rows] == [cell.key for cell in document.cells]
    assert [row.label for row in rows if row.is_baseline] == ["fake · hybrid"]
    assert [row.label for row in rows if row.is_winner] == ["e5-small · hybrid"]
    assert winner(rows) == next(row for row in rows if row.is_winner)
    assert [row.versus is None for row in rows] == [False, True, False, False, False, False, True, True]


def test_the_difference_is_the_paired_one_corrected_for_all(document: ResultDocument) -> None:
    row = next(row for row in make_rows(document) if row.label == "minilm · vector")
    cell, base = row.cell, document.cell(BASE)
    assert base is not None
    a, b = (c.metrics["ndcg@10"].per_query for c in (cell, base))
    expected = paired_difference(np.array(a, float), np.array(b, float))
    assert row.versus is not None
    assert row.versus.mean == pytest.approx(expected.mean)
    # products of matrices: the last bit depends on how many threads the BLAS has free
    assert (row.versus.low, row.versus.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert row.versus.p_value == expected.p_value
    assert row.versus.adjusted >= row.versus.p_value
    assert row.versus.relative == pytest.approx(expected.mean / np.mean(np.array(b, float)))
    alone = difference(cell, base, "ndcg@10")
    assert alone is not None
    assert alone.adjusted == alone.p_value == row.versus.p_value


def test_the_headline_mean_is_that_of_the_named_queries(document: ResultDocument) -> None:
    row = make_rows(document)[0]
    values = row.cell.metrics["ndcg@10"].per_query
    assert row.headline == pytest.approx(np.mean([values[i] for i in (1, 4, 7, 10, 13)]))  # type: ignore[arg-type]
    assert row.headline_n == 5


def test_a_headline_query_without_value_leaves_the_mean_out(document: ResultDocument) -> None:
    document.cells[0].metrics["ndcg@10"].per_query[4] = None
    rows = make_rows(document)
    assert rows[0].headline is None
    assert rows[1].headline is not None


def test_sure_needs_the_interval_and_the_corrected_p() -> None:
    found = Difference(0.1, 0.01, 0.2, 0.001, 0.01, 40, None)
    assert found.sure
    assert not replace(found, adjusted=0.2).sure
    assert not replace(found, low=-0.01).sure
    assert replace(found, mean=-0.1, low=-0.2, high=-0.01).sure


def test_pairs_that_lack_a_value_are_left_out() -> None:
    found, none = paired([([0.5, None, 1.0], [0.0, 1.0, None]), ([None], [1.0])])
    assert found is not None
    assert (found.n, found.mean, found.relative) == (1, 0.5, None)
    assert none is None


def test_what_is_not_a_number_is_missing(document: ResultDocument) -> None:
    document.cells[2].metrics["ndcg@10"].mean = math.nan
    row = make_rows(document)[2]
    assert not row.ok
    assert row.versus is None
    assert clean(document).cells[2].metrics["ndcg@10"].mean is None


def test_a_clean_document_is_judged_once_and_any_other_afresh(document: ResultDocument) -> None:
    made: list[str] = []
    plain = clean(document)
    for name in ("a", "b", "a"):
        assert once(plain, name, lambda name=name: made.append(name) or name) == name  # type: ignore[misc]
        once(document, name, lambda: made.append("afresh"))
    assert made == ["a", "afresh", "b", "afresh", "afresh"]
    assert verdict(plain) is verdict(plain)
    assert verdict(plain, "recall@10").metric == "recall@10"
    rows = make_rows(plain)
    rows.clear()
    assert make_rows(plain)
    assert not make_rows(replace(plain, cells=[]))
    document.cells = document.cells[:1]
    assert len(make_rows(document)) == 1


def test_without_a_measured_baseline_nothing_is_compared(document: ResultDocument) -> None:
    document.baseline = None
    assert all(row.versus is None and not row.is_baseline for row in make_rows(document))
    document.cells = []
    assert make_rows(document) == []
    assert winner([]) is None


def test_the_main_metric(document: ResultDocument) -> None:
    assert main_metric(document) == "ndcg@10"
    document.spec["metrics"] = ["map@100"]
    for cell in document.cells:
        cell.metrics = {n: m for n, m in cell.metrics.items() if n in ("map@100", "mrr@10")}
    assert metric_names(document) == ["map@100", "mrr@10"]
    assert main_metric(document) == "map@100"
    document.spec, document.cells = {}, []
    assert main_metric(document) == "ndcg@10"


def test_strata_are_means_over_the_tagged_judged_queries(document: ResultDocument) -> None:
    parts = strata(document, "lang", "ndcg@10")
    assert [(part.value, part.n) for part in parts] == [("en", 14), ("es", 13), ("pt", 13)]
    cell = document.cells[0]
    values = cell.metrics["ndcg@10"].per_query
    assert parts[1].means[cell.key.cell_id] == pytest.approx(np.mean(values[1::3]))  # type: ignore[arg-type]
    assert parts[0].means[document.cells[-1].key.cell_id] is None


def test_untagged_queries_are_a_stratum_of_their_own_and_come_last(document: ResultDocument) -> None:
    document.dataset["query_tags"]["q00"] = {}
    assert [part.value for part in strata(document, "lang", "ndcg@10")] == ["en", "es", "pt", UNTAGGED]
    assert strata(document, "nothing", "ndcg@10") == []


def test_a_missing_value_is_never_averaged_away(document: ResultDocument) -> None:
    document.cells[0].metrics["ndcg@10"].per_query[0] = None
    parts = strata(document, "lang", "ndcg@10")
    assert parts[0].means[document.cells[0].key.cell_id] is None
    assert parts[1].means[document.cells[0].key.cell_id] is not None


def test_a_mark_follows_provider_and_target_or_the_reranker(marked: ResultDocument) -> None:
    rows = make_rows(marked)
    assert {row.label for row in rows if row.doubt} == {"e5-small · vector", "e5-small · hybrid"}
    assert [row.label for row in rows if row.is_winner] == ["bm25"]
    assert winner([row for row in rows if row.doubt]) is None
    entry = marked.parity[1]
    assert doubt(key("e5-small", target="nvidia"), [entry]) == ""
    assert doubt(key("e5-small"), [{**entry, "verdict": "equivalent"}]) == ""
    judge = {**entry, "kind": "reranker", "provider": "maxsim?dtype=int8", "reason": "another order"}
    assert doubt(key("any", "hybrid+rerank", "maxsim?dtype=int8"), [entry, judge]) == "another order"
    both = doubt(key("e5-small", "hybrid+rerank", "maxsim?dtype=int8"), [entry, judge])
    assert both == "top-10 overlap 0.31 (at least 0.8 expected); another order"

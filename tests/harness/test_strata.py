"""Strata by shared words: the split, the differences on each part, and the data set that shows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from harness.datasets import load_dataset
from harness.judging import judge
from harness.metrics import evaluated_queries
from harness.overlap import overlap_record
from harness.render.markdown import render
from harness.results import CellKey, CellResult, MetricResult, ResultDocument, result_schema
from harness.rows import paired
from harness.strata import fusion_losses, overlap_split, stratify
from harness.summary import verdict
from rag_core.analysis import Analyser
from rag_core.lexical import get_lexical
from rag_core.types import Run

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
CROSS = SHARED / "datasets" / "xquad-es-en"
BM25 = CellKey("made", "bm25", "cpu", "-", "-", "bm25", "-")
VECTOR = CellKey("made", "e5-small", "cpu", "q4", "flat", "vector", "-")
HYBRID = replace(VECTOR, pipeline="hybrid")
HEADING = "## nDCG@10 by words shared with the relevant documents"


def overlaps(shared: Sequence[int], words: int = 4) -> list[dict[str, Any]]:
    return [{"words": words, "shared": s, "share": s / words, "idf_share": s / words} for s in shared]


def weighted(*shares: float | None) -> list[dict[str, Any]]:
    return [
        {"words": 0 if share is None else 3, "shared": 1, "share": share, "idf_share": share}
        for share in shares
    ]


def made(
    document: ResultDocument,
    overlap: Sequence[dict[str, Any]],
    values: dict[CellKey, Sequence[float]] | None = None,
) -> ResultDocument:
    """``document`` with these queries and, if any are given, with cells of these values alone."""
    ids = [f"q{i:03d}" for i in range(len(overlap))]
    document.dataset |= {"query_ids": ids, "query_tags": {}, "headline": []}
    document.dataset["query_overlap"] = dict(zip(ids, overlap))
    document.cells = [
        CellResult(
            key,
            "ok",
            metrics={"ndcg@10": MetricResult(float(np.mean(found)), 0.0, 1.0, [float(v) for v in found])},
        )
        for key, found in (values or {}).items()
    ]
    document.baseline = None
    return document


def noisy(*levels: tuple[float, int], seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    each = [np.clip(generator.normal(level, 0.1 if level else 0, n), 0, 1) for level, n in levels]
    return np.concatenate(each).tolist()


@pytest.fixture
def crossed(document: ResultDocument) -> ResultDocument:
    """30 queries that share nothing, where BM25 is blind, and 60 that do; fusion lies between the legs."""
    return made(
        document,
        overlaps([0] * 30 + [2] * 60),
        {
            BM25: noisy((0.0, 30), (0.7, 60), seed=1),
            VECTOR: noisy((0.85, 30), (0.9, 60), seed=2),
            HYBRID: noisy((0.6, 30), (0.9, 60), seed=3),
        },
    )


def test_none_and_some_where_both_have_enough(document: ResultDocument) -> None:
    split = overlap_split(made(document, overlaps([0, 3] * 20)))
    assert split is not None
    assert (split.kind, [(part.name, part.n) for part in split.parts]) == (
        "words",
        [("no word shared", 20), ("some shared", 20)],
    )
    assert split.parts[0].places == tuple(range(0, 40, 2))


def test_thirds_by_share_where_a_side_is_short(document: ResultDocument) -> None:
    split = overlap_split(made(document, overlaps([0] * 19 + [1] * 11 + [2] * 20 + [4] * 10)))
    assert split is not None
    assert (split.kind, split.n_none, split.n_some) == ("share", 19, 41)
    assert [(part.name, part.n) for part in split.parts] == [
        ("share up to 0.25", 30),
        ("0.25 to 0.50", 20),
        ("above 0.50", 10),
    ]
    places = [place for part in split.parts for place in part.places]
    assert sorted(places) == list(range(60))


def test_thirds_are_by_the_weighted_share(document: ResultDocument) -> None:
    found = weighted(*(i / 30 for i in range(30)))
    for values in found:
        values["share"] = 1.0
    split = overlap_split(made(document, found))
    assert split is not None
    assert [part.places for part in split.parts] == [
        tuple(range(10)),
        tuple(range(10, 20)),
        tuple(range(20, 30)),
    ]


def test_equal_shares_stay_together_and_may_leave_two_parts_or_none(document: ResultDocument) -> None:
    split = overlap_split(made(document, weighted(*[0.2] * 8, *[1.0] * 30)))
    assert split is not None
    assert [(part.name, part.n) for part in split.parts] == [("share up to 0.20", 8), ("above 0.20", 30)]
    assert overlap_split(made(document, weighted(*[0.5] * 40))) is None


def test_queries_without_words_stand_in_no_part(document: ResultDocument) -> None:
    split = overlap_split(made(document, weighted(None, *(i / 30 for i in range(30)), None)))
    assert split is not None
    assert split.n_without_words == 2
    assert sum(part.n for part in split.parts) == 30


def test_too_few_queries_and_files_without_overlap(document: ResultDocument) -> None:
    assert overlap_split(document) is None
    assert HEADING not in render(document)
    assert overlap_split(made(document, weighted(*(i / 14 for i in range(14))))) is None


def test_each_part_is_compared_with_bm25_and_corrected_over_all(crossed: ResultDocument) -> None:
    plain = overlap_split(crossed)
    assert plain is not None
    split = stratify(crossed, plain, "ndcg@10")
    assert split.reference == BM25.cell_id
    values = {cell.key: cell.metrics["ndcg@10"].per_query for cell in crossed.cells}
    low, high = split.parts
    assert low.means[BM25.cell_id] == 0.0
    assert high.means[VECTOR.cell_id] == pytest.approx(np.mean(values[VECTOR][30:]))
    expected = paired(
        [
            (values[key][side], values[BM25][side])
            for side in (slice(30), slice(30, 90))
            for key in (VECTOR, HYBRID)
        ]
    )
    got = [part.versus[key.cell_id] for part in split.parts for key in (VECTOR, HYBRID)]
    assert got == expected
    assert BM25.cell_id not in low.versus


def test_without_bm25_there_are_means_alone(crossed: ResultDocument) -> None:
    crossed.cells = crossed.cells[1:]
    plain = overlap_split(crossed)
    assert plain is not None
    split = stratify(crossed, plain, "ndcg@10")
    assert split.reference is None
    assert [dict(part.versus) for part in split.parts] == [{}, {}]
    assert split.parts[0].means[VECTOR.cell_id] is not None
    assert fusion_losses(crossed, split, HYBRID, "ndcg@10") == []


def test_a_cell_with_a_gap_has_no_mean_there(crossed: ResultDocument) -> None:
    crossed.cells[1].metrics["ndcg@10"].per_query[3] = None
    plain = overlap_split(crossed)
    assert plain is not None
    low, high = stratify(crossed, plain, "ndcg@10").parts
    assert low.means[VECTOR.cell_id] is None
    assert low.versus[VECTOR.cell_id].n == 29
    assert high.means[VECTOR.cell_id] is not None


def test_the_verdict_says_that_bm25_collapses_and_fusion_does_not_keep_both(crossed: ResultDocument) -> None:
    said = verdict(crossed).sentences
    (found,) = [s for s in said if s.startswith("On the 30 queries")]
    assert found.startswith(
        "On the 30 queries that share no word with a relevant document bm25 falls to 0.000 (0.6"
    )
    assert "on the 60 that share some) and e5-small · vector holds at 0.8" in found
    (fused,) = [s for s in said if s.startswith("Fusion does not keep both")]
    assert "e5-small · hybrid, no word shared 0.6" in fused
    assert "from e5-small · vector)" in fused
    assert "not told apart" in fused  # on the others it is as good as its better leg


def test_fusion_that_keeps_both_is_said_too(crossed: ResultDocument) -> None:
    crossed.cells[2].metrics = crossed.cells[1].metrics
    assert any(s.startswith("Fusion keeps both: e5-small · hybrid") for s in verdict(crossed).sentences)


def test_of_several_methods_of_fusion_the_best_is_spoken_of(crossed: ResultDocument) -> None:
    best = replace(crossed.cells[2], key=replace(HYBRID, fusion="adaptive"), metrics=crossed.cells[1].metrics)
    crossed.cells.append(best)
    (said,) = [s for s in verdict(crossed).sentences if s.startswith("Fusion ") and " keep" in s]
    assert said.startswith("Fusion keeps both: e5-small · hybrid · adaptive, no word shared 0.8")


def test_nothing_is_said_where_bm25_does_not_collapse_or_vectors_are_no_better(
    crossed: ResultDocument,
) -> None:
    bm25, vector, _ = crossed.cells
    kept, vector.metrics = vector.metrics, bm25.metrics
    assert not any("that share" in s for s in verdict(crossed).sentences)
    vector.metrics = kept
    bm25.metrics = {"ndcg@10": MetricResult(0.6, 0.5, 0.7, [0.6] * 90)}
    assert not any("that share" in s for s in verdict(crossed).sentences)


def test_a_cell_that_is_marked_is_not_praised(crossed: ResultDocument) -> None:
    crossed.parity = [
        {
            "kind": "embedder",
            "provider": "e5-small",
            "target": "cpu",
            "dtype": "q4",
            "model": "m",
            "reference": None,
            "fp32_reference": False,
            "verdict": "differs",
            "reason": "neighbours",
        }
    ]
    assert not any("that share" in s for s in verdict(crossed).sentences)


def test_the_section(crossed: ResultDocument) -> None:
    lines = render(crossed).split(HEADING + "\n\n")[1].split("\n## ")[0].splitlines()
    assert lines[0] == (
        "| system | no word shared (n = 30) | Δ BM25 | corrected p | some shared (n = 60) | Δ BM25 "
        "| corrected p |"
    )
    assert lines[2].startswith("| bm25 | 0.000 | BM25 | BM25 | 0.6")
    assert lines[3].startswith("| e5-small · vector | 0.8")
    assert "| < 0.001 |" in lines[3]
    assert lines[-1].startswith("Queries none of whose content words occur in a relevant document")


def test_the_section_says_which_split_is_shown(document: ResultDocument) -> None:
    document.dataset["query_overlap"] = dict(
        zip(document.dataset["query_ids"], weighted(*(i / 38 for i in range(38)), 0.5, None))
    )
    text = render(document).split(HEADING)[1].split("\n## ")[0]
    assert "0 queries share no content word with a relevant document and 39 share one; with fewer" in text
    assert "1 without a content word stands in no part." in text


def test_the_schema_takes_it(crossed: ResultDocument) -> None:
    validator = jsonschema.Draft202012Validator(result_schema())
    values = crossed.as_dict()
    assert list(validator.iter_errors(values)) == []
    values["dataset"]["query_overlap"]["q000"]["shared"] = -1
    values["dataset"]["query_overlap"]["q001"].pop("share")
    assert len(list(validator.iter_errors(values))) == 2


@pytest.mark.skipif(not CROSS.is_dir(), reason=f"no reference data set at {CROSS}")
def test_bm25_finds_nothing_where_no_word_is_shared(document: ResultDocument) -> None:
    """Spanish questions over English texts: a third shares no word, and there BM25 scores exactly 0.

    How many that are depends on stems and function words: 309 by the reference's analyser, 412 by ours.
    """
    dataset = load_dataset(str(CROSS))
    analyser = Analyser.for_languages((*dataset.languages, *dataset.query_languages))
    run = get_lexical("bm25", dataset.documents, analyser).search(dataset.queries, 100)
    judged = judge(Run("bm25", run.rankings), dataset, ["ndcg@10"])
    values = judged.values["ndcg@10"].tolist()
    document.dataset["query_ids"] = list(evaluated_queries(dataset.relevance))
    document.dataset["query_overlap"] = overlap_record(dataset)
    document.cells = [CellResult(BM25, "ok", metrics={"ndcg@10": MetricResult(0.5, 0, 1, values)})]
    plain = overlap_split(document)
    assert plain is not None
    none, some = stratify(document, plain, "ndcg@10").parts
    assert none.n + some.n == 1190
    assert 309 <= none.n <= 450
    assert none.means[BM25.cell_id] == 0.0
    whole = sum(values) / 1190
    assert some.means[BM25.cell_id] == pytest.approx(whole * 1190 / some.n)
    assert whole == pytest.approx(0.525, abs=0.005)

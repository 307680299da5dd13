"""Sets in their own form and as BEIR folders are the same sets, with the same figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.datasets import Dataset, load_dataset
from harness.judging import judge
from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.types import Run

SHARED = Path(os.environ.get("RAG_SHARED", Path(__file__).resolve().parents[3].parent / "shared"))
DATASETS = SHARED / "datasets"
pytestmark = pytest.mark.skipif(not DATASETS.is_dir(), reason="needs the data sets beside the checkout")


def bm25_ndcg(data: Dataset) -> float:
    """nDCG@10 of BM25 over the first 150 queries, each within its scope."""
    index = BM25.build(data.documents, Analyser.for_languages(data.languages))
    queries = data.queries[:150]
    rankings = {}
    for query in queries:
        where = {data.scope: query.metadata[data.scope]} if data.scope else None
        rankings.update(index.search([query], 10, where).rankings)
    wanted = {query.query_id: data.relevance[query.query_id] for query in queries}
    return judge(Run("bm25", rankings), wanted, ["ndcg@10"]).means["ndcg@10"]


@pytest.mark.parametrize(
    ("own", "beir"),
    [("locomo10.json", "locomo-en"), ("xquad.es.json", "xquad-es"), ("faquad.json", "faquad-pt")],
)
def test_the_same_set_in_both_forms(own, beir):
    read, expected = load_dataset(DATASETS / "raw" / own), load_dataset(DATASETS / beir)
    assert read.documents == expected.documents
    assert read.queries == expected.queries
    assert read.hashes == expected.hashes
    assert (read.scope, read.languages, read.query_languages) == (
        expected.scope,
        expected.languages,
        expected.query_languages,
    )
    found = bm25_ndcg(read)
    assert found == bm25_ndcg(expected)
    assert 0.4 < found < 1


def test_what_locomo_leaves_out_is_counted():
    notes = load_dataset(DATASETS / "raw" / "locomo10.json").notes
    assert [note for note in notes if "language" not in note] == [
        "pieces of evidence that cannot be read: 1",
        "pieces of evidence that name an unknown turn: 2",
        "questions of category 5, without an answer, left out: 446",
        "questions whose evidence names no turn, left out: 4",
    ]

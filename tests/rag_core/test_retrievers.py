"""Vector, hybrid and reranked retrieval over the same seam."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rag_core import Document, Query, get_embedder, get_reranker
from rag_core.bm25 import BM25
from rag_core.errors import IdentityMismatchError, InvalidArgumentError, ProviderError, UnknownNameError
from rag_core.fusion import METHODS, Leg, fuse, rrf
from rag_core.protocols import Retriever
from rag_core.reranking import interpolate, reorder
from rag_core.retrievers import HybridRetriever, RerankedRetriever, VectorRetriever
from rag_core.stores.flat import FlatStore

DOCUMENTS = [
    Document("ferry", "The ferry leaves the old port at nine.", "Ferry", {"kind": "transport"}),
    Document("bus", "The night bus leaves the port at one.", "Bus", {"kind": "transport"}),
    Document("tax", "Property tax is due in May.", "Tax", {"kind": "money"}),
]
QUERIES = [Query("q1", "when does the ferry leave"), Query("q2", "tax in may"), Query("q3", "zebra")]


def vector_leg(path: Path, provider: str = "fake") -> VectorRetriever:
    embedder = get_embedder(provider)
    store = FlatStore.create(path, embedder.fingerprint)
    vectors = embedder.embed([d.indexed_text for d in DOCUMENTS])
    store.upsert([d.doc_id for d in DOCUMENTS], vectors, [d.metadata for d in DOCUMENTS])
    return VectorRetriever(embedder, store)


def test_all_are_retrievers_and_answer_every_query(tmp_path: Path) -> None:
    vector, words = vector_leg(tmp_path), BM25.build(DOCUMENTS)
    hybrid = HybridRetriever([vector, words])
    texts = {d.doc_id: d.indexed_text for d in DOCUMENTS}
    reranked = RerankedRetriever(hybrid, get_reranker("fake-overlap"), texts.__getitem__)
    for retriever in (vector, words, hybrid, reranked):
        assert isinstance(retriever, Retriever)
        run = retriever.search(QUERIES, 10)
        assert set(run.rankings) == {"q1", "q2", "q3"}
        assert max(len(r) for r in run.rankings.values()) <= 3  # O23: k past the corpus
    assert len(words.search(QUERIES, 10).rankings["q3"]) == 0
    assert reranked.search(QUERIES, 1).rankings["q1"].doc_ids == ("ferry",)
    assert reranked.name == "hybrid(vector:fake, bm25)+fake-overlap"


def test_many_queries_answer_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search of the store for all of them, where it offers that; its failure is each query's."""
    leg = vector_leg(tmp_path)
    queries = [*QUERIES, Query("blank", " ")]
    alone = {query.query_id: leg.search([query], 2).rankings[query.query_id] for query in queries}
    assert leg.search(queries, 2).rankings == alone
    monkeypatch.setattr(leg.store, "search", None)
    assert leg.search(queries, 2, {"kind": "money"}).rankings["q1"].doc_ids == ("tax",)
    with pytest.raises(InvalidArgumentError, match="unknown operator"):
        leg.search(queries, 2, {"kind": {"$near": 1}})
    leg.store.close()
    run = leg.search(queries, 2)
    assert set(run.failed) == {"q1", "q2", "q3", "blank"}
    assert "is closed" in run.failed["q1"]


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_the_same_error_everywhere(tmp_path: Path, k: int) -> None:
    """O23."""
    vector = vector_leg(tmp_path)
    hybrid = HybridRetriever([vector, BM25.build(DOCUMENTS)])
    for retriever in (
        vector,
        BM25.build(DOCUMENTS),
        hybrid,
        RerankedRetriever(hybrid, get_reranker("noop"), str),
    ):
        with pytest.raises(InvalidArgumentError, match=f"k is {k}; accepted: a whole number from 1"):
            retriever.search(QUERIES, k)


def test_hybrid_is_rrf_of_the_legs(tmp_path: Path) -> None:
    legs = [vector_leg(tmp_path), BM25.build(DOCUMENTS)]
    lists = [leg.search(QUERIES, 2).rankings["q1"] for leg in legs]
    found = HybridRetriever(legs, pool=2, rrf_k=10, weights=[2, 1]).search(QUERIES, 9).rankings["q1"]
    assert found == rrf(lists, k=10, weights=[2, 1])


@pytest.mark.parametrize("method", METHODS[1:])
def test_hybrid_by_another_method(tmp_path: Path, method: str) -> None:
    near, words = vector_leg(tmp_path), BM25.build(DOCUMENTS)
    hybrid = HybridRetriever([near, words], pool=2, fusion=method, weights=[2, 1])
    query, where = QUERIES[0], {"kind": "transport"}
    lists = [leg.search([query], 2, where).rankings["q1"] for leg in (near, words)]
    legs = [
        Leg("vector:fake", lists[0], depth=2, floor=-1.0),
        Leg("bm25", lists[1], words.evidence(query, lists[1], where), 2),
    ]
    expected = fuse(legs, method, weights=[2, 1]).ranking
    assert hybrid.search([query], 9, where).rankings["q1"] == expected
    assert hybrid.name == f"hybrid {method}(vector:fake, bm25)"
    with pytest.raises(UnknownNameError, match="fusion 'best'"):
        HybridRetriever([words], fusion="best")


def test_noop_keeps_the_fused_order_bit_for_bit(tmp_path: Path) -> None:
    hybrid = HybridRetriever([vector_leg(tmp_path), BM25.build(DOCUMENTS)])
    reranked = RerankedRetriever(
        hybrid, get_reranker("noop"), {d.doc_id: d.text for d in DOCUMENTS}.__getitem__
    )
    before, after = hybrid.search(QUERIES, 10), reranked.search(QUERIES, 10)
    assert {q: r.doc_ids for q, r in after.rankings.items()} == {
        q: r.doc_ids for q, r in before.rankings.items()
    }


def test_reranked_by_ranks_is_the_interpolated_order(tmp_path: Path) -> None:
    hybrid = HybridRetriever([vector_leg(tmp_path), BM25.build(DOCUMENTS)])
    texts = {d.doc_id: d.text for d in DOCUMENTS}
    reranker = get_reranker("fake-overlap")
    run = RerankedRetriever(hybrid, reranker, texts.__getitem__, rerank_mix="ranks").search(QUERIES, 10)
    assert run.name == "hybrid(vector:fake, bm25)+fake-overlap+rrf"
    for query in QUERIES:
        fused = hybrid.search([query], 50).rankings[query.query_id]
        scores = reranker.rerank(query.text, [texts[d] for d in fused.doc_ids])
        assert run.rankings[query.query_id] == interpolate(fused, reorder(fused, scores).ranking)
    with pytest.raises(InvalidArgumentError, match="rerank_mix is 'no'"):
        RerankedRetriever(hybrid, reranker, str, rerank_mix="no")


def test_filters_reach_every_leg(tmp_path: Path) -> None:
    hybrid = HybridRetriever([vector_leg(tmp_path), BM25.build(DOCUMENTS)])
    found = hybrid.search([QUERIES[0]], 10, {"kind": "money"}).rankings["q1"]
    assert found.doc_ids == ("tax",)


def test_a_store_of_another_embedder_is_refused_at_once(tmp_path: Path) -> None:
    """O21, O33."""
    leg = vector_leg(tmp_path)
    with pytest.raises(IdentityMismatchError, match="fake-cohere"):
        VectorRetriever(get_embedder("fake-cohere"), leg.store)


def test_a_failing_leg_fails_the_query_not_the_run(tmp_path: Path) -> None:
    """O04: the failure is recorded, the others are answered."""
    good = vector_leg(tmp_path)
    vector = VectorRetriever(get_embedder("fake?fail=ferry"), good.store)
    run = HybridRetriever([vector, BM25.build(DOCUMENTS)]).search(QUERIES, 10)
    assert set(run.failed) == {"q1"}
    assert set(run.rankings) == {"q2", "q3"}


def test_a_failing_reranker_is_recorded(tmp_path: Path) -> None:
    class Broken:
        name = model = fingerprint = "broken"
        target = "cpu"

        def is_available(self) -> bool:
            return True

        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            raise ProviderError("no luck")

    inner = HybridRetriever([VectorRetriever(get_embedder("fake?fail=tax"), vector_leg(tmp_path).store)])
    run = RerankedRetriever(inner, Broken(), str).search(QUERIES, 3)
    assert set(run.failed) == {"q1", "q2", "q3"}
    assert "no luck" in run.failed["q1"]
    assert "holds 'tax'" in run.failed["q2"]


def test_bad_arguments_are_not_taken_for_failed_queries(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown operator"):
        vector_leg(tmp_path).search(QUERIES, 3, {"kind": {"$like": "x"}})


def test_no_legs() -> None:
    with pytest.raises(InvalidArgumentError, match="no legs"):
        HybridRetriever([])

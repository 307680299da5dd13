"""The fusion method of a search, and what hits tell of it."""

from __future__ import annotations

import pytest

from rag_core import Document, Query, get_embedder
from rag_core.errors import UnknownNameError
from rag_core.fusion import METHODS, READ, Leg, fuse, reading_depth
from rag_core.index import Index

DOCUMENTS = [
    Document("ferry", "The ferry leaves the old port at nine.", "Ferry", {"year": 2020}),
    Document("bus", "The night bus leaves the port at one.", "Bus", {"year": 2024}),
    Document("tax", "Property tax is due in May.", "", {"year": 2024}),
    Document("tram", "The tram to the port is new.", "", {"year": 2024}),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return Index.build(tmp_path_factory.mktemp("fusion") / "i", DOCUMENTS, get_embedder("fake"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("where", [None, {"year": 2024}])
def test_every_method_is_that_of_the_library(
    index: Index, method: str, where: dict[str, object] | None
) -> None:
    text, pool = "night ferry port", 3
    result = index.hybrid_search(text, candidate_pool=pool, where=where, fusion=method)
    query, depth = Query("q", text), reading_depth(method, pool)
    version = index._version
    words = version.bm25.search([query], depth, where).rankings["q"]
    near = version.store.search(get_embedder("fake").embed([text], role="query")[0], depth, where)
    legs = (
        Leg("vector", near, depth=depth, floor=-1.0),
        Leg("bm25", words, version.bm25.evidence(query, words, where), depth),
    )
    expected = fuse(legs, method)
    assert tuple(hit.document.doc_id for hit in result) == expected.ranking.doc_ids
    assert tuple(hit.score for hit in result) == expected.ranking.scores
    assert result.fusion == expected.describe()


def test_the_reranker_gets_its_pool_whatever_the_legs_are_asked_for(index: Index) -> None:
    seen: list[int] = []

    class Counting:
        def rerank(self, query: str, documents: list[str]) -> list[float]:
            seen.append(len(documents))
            return [float(len(text)) for text in documents]

    for method in METHODS:
        result = index.hybrid_search("night ferry port", candidate_pool=1, fusion=method, reranker=Counting())
        # rank fusion reads one of each leg; a method by scores all four
        assert len(result) == (len(index) if reading_depth(method, 1) == READ else 2)
    assert seen == [1] * len(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_a_hit_add_up_to_its_fused_score(index: Index, method: str) -> None:
    for hit in index.hybrid_search("night ferry port", fusion=method):
        assert set(hit.parts) == {"vector", "bm25"}
        assert sum(hit.parts.values()) == pytest.approx(hit.scores["fused"])


def test_adaptive_says_why(index: Index) -> None:
    fusion = index.hybrid_search("ferry zebra", fusion="adaptive").fusion
    assert sum(fusion["weights"].values()) == pytest.approx(1)
    assert "of the query's idf mass" in fusion["why"]["bm25"]
    assert index.hybrid_search("ferry").fusion["why"] == {}


@pytest.mark.parametrize("method", METHODS)
def test_fields_are_the_same_when_no_word_is_found(index: Index, method: str) -> None:
    """O28."""
    result = index.hybrid_search("zzz", fusion=method)
    assert [hit.ranks["vector"] for hit in result] == [1, 2, 3, 4]
    assert all(set(hit.parts) == {"vector", "bm25"} for hit in result)


def test_one_leg_is_not_fused(index: Index) -> None:
    alone = Index.open(index.path)
    result = alone.hybrid_search("ferry", fusion="adaptive")
    assert result.fusion == {}
    assert result[0].parts == {}


def test_unknown_methods_are_refused(index: Index) -> None:
    with pytest.raises(UnknownNameError, match="fusion 'best'; accepted: rrf"):
        index.hybrid_search("ferry", fusion="best")

"""The index folder and hybrid search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rag_core import Document, get_embedder, get_reranker
from rag_core.errors import IdentityMismatchError, InvalidArgumentError, ProviderError, StoreError
from rag_core.fusion import rrf
from rag_core.index import Index

DOCUMENTS = [
    Document("ferry", "The ferry leaves the old port at nine.", "Ferry", {"kind": "transport"}),
    Document("bus", "The night bus leaves the port at one.", "Bus", {"kind": "transport"}),
    Document("tax", "Property tax is due in May.", "Tax", {"kind": "money"}),
    Document("blank", "", "", {"kind": "transport"}),
]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake"))


class Scripted:
    """A reranker that answers what it is told to."""

    name = model = fingerprint = "scripted"
    target = "cpu"

    def __init__(self, scores: Sequence[float] | None) -> None:
        self.scores = scores
        self.seen: list[str] = []

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.seen = list(candidates)
        if self.scores is None:
            raise ProviderError("out of order")
        return list(self.scores)[: len(candidates)]


def ids(result: Sequence[object]) -> list[str]:
    return [hit.document.doc_id for hit in result]  # type: ignore[attr-defined]


def test_with_fake_and_noop_the_order_is_the_fused_one_bit_for_bit(index: Index) -> None:
    for query in ("ferry port", "tax", "leaves at nine", "zebra"):
        vector = index.store.search(index.embedder.embed([query], role="query")[0], 50)
        fused = rrf([vector, index.bm25.top(query, 50)])
        plain = index.hybrid_search(query, 10)
        kept = index.hybrid_search(query, 10, reranker=get_reranker("noop"))
        assert ids(plain) == ids(kept) == list(fused.doc_ids)
        assert [hit.score for hit in plain] == list(fused.scores)
        assert {hit.source for hit in plain} == {"hybrid"}
        assert {hit.source for hit in kept} == {"hybrid+rerank"}


def test_hits_tell_rank_and_score_of_every_stage(index: Index) -> None:
    reranker = Scripted([0.1, 0.9, 0.5])
    result = index.hybrid_search("ferry", 2, reranker=reranker)
    top = result[0]
    assert top.ranks["rerank"] == 1
    assert top.scores["rerank"] == top.score == 0.9
    assert {"vector", "fused"} <= set(top.ranks)
    ferry = next(hit for hit in index.hybrid_search("ferry") if hit.document.doc_id == "ferry")
    assert ferry.ranks["bm25"] == 1
    assert set(result.seconds) == {"embed", "vector", "bm25", "fusion", "texts", "rerank", "hits"}
    assert len(result) == 2
    assert "Ferry\nThe ferry leaves the old port at nine." in reranker.seen


def test_documents_beyond_the_pool_follow_in_fused_order(index: Index) -> None:
    fused = ids(index.hybrid_search("ferry", 10))
    result = index.hybrid_search("ferry", 10, candidate_pool=1, reranker=Scripted([5.0]))
    assert result[0].source == "hybrid+rerank"
    assert result[0].document.doc_id == fused[0]
    assert {hit.source for hit in result[1:]} <= {"hybrid"}


def test_ranks_may_be_fused_with_the_order_before(index: Index) -> None:
    fused = index.hybrid_search("ferry", 10)
    reranker = Scripted([0.1, 0.5, 0.9])
    plain = index.hybrid_search("ferry", 10, reranker=reranker)
    mixed = index.hybrid_search("ferry", 10, reranker=reranker, rerank_mix="ranks")
    assert ids(plain) == ids(fused)[::-1]
    assert ids(mixed) == [ids(fused)[0], ids(fused)[2], ids(fused)[1]]  # equal sums stay as fused
    assert mixed[0].score == mixed[0].scores["mixed"] == pytest.approx(1 / 61 + 1 / 63)
    assert mixed[0].scores["rerank"] == 0.1
    assert (mixed[0].ranks["rerank"], mixed[0].ranks["mixed"], mixed[0].source) == (3, 1, "hybrid+rerank")
    # the threshold speaks of the reranker's scores, whatever the mix
    cut = index.hybrid_search("ferry", reranker=reranker, rerank_mix="ranks", score_threshold=0.4)
    assert ids(cut) == ids(mixed)[1:]


def test_ranks_without_a_reranker_are_the_fused_order(index: Index) -> None:
    broken = index.hybrid_search("ferry", reranker=Scripted(None), rerank_mix="ranks")
    assert ids(broken) == ids(index.hybrid_search("ferry", rerank_mix="ranks"))
    assert "the fused order stands" in broken.warnings[0]
    with pytest.raises(InvalidArgumentError, match="accepted: scores, ranks"):
        index.hybrid_search("ferry", rerank_mix="votes")


def test_rerank_false_skips_it(index: Index) -> None:
    reranker = Scripted(None)
    assert index.hybrid_search("ferry", rerank=False, reranker=reranker).warnings == ()
    assert reranker.seen == []


def test_a_failing_reranker_leaves_the_fused_order_and_a_warning(index: Index) -> None:
    result = index.hybrid_search("ferry", reranker=Scripted(None))
    assert ids(result) == ids(index.hybrid_search("ferry"))
    assert "the fused order stands: out of order" in result.warnings[0]


def test_a_failing_embedder_leaves_bm25_flagged(index: Index, tmp_path: Path) -> None:
    """O21: never another space, but words alone, and said so."""
    opened = Index.open(index.path, get_embedder("fake?fail=ferry"))
    result = opened.hybrid_search("ferry")
    assert ids(result) == ["ferry"]
    assert result[0].source == "bm25"
    assert "BM25 alone" in result.warnings[0]


def test_without_an_embedder_words_alone(index: Index) -> None:
    result = Index.open(index.path).hybrid_search("port")
    assert set(ids(result)) == {"ferry", "bus"}
    assert result.warnings == ("no embedder: BM25 alone",)


def test_threshold_may_return_fewer(index: Index) -> None:
    result = index.hybrid_search("ferry", reranker=Scripted([0.1, 0.9, 0.5]), score_threshold=0.4)
    assert [hit.score for hit in result] == [0.9, 0.5]
    cut = index.hybrid_search("ferry", candidate_pool=1, reranker=Scripted([0.9]), score_threshold=0.001)
    assert len(cut) == 1  # fused scores are not held against a reranker's threshold
    assert len(index.hybrid_search("ferry", score_threshold=9.0)) == 0


def test_where_and_empty_documents(index: Index) -> None:
    """O07: an empty document is a known id, never a hit."""
    assert set(ids(index.hybrid_search("port", where={"kind": "transport"}))) == {"ferry", "bus"}
    assert len(index) == 4
    assert index.store.count() == 3
    assert index.bm25.n_empty == 1


@pytest.mark.parametrize("query", ["", "  \n"])
def test_a_blank_query_finds_nothing(index: Index, query: str) -> None:
    """O09."""
    assert len(index.hybrid_search(query)) == 0


@pytest.mark.parametrize(
    "settings", [{"top_k": 0}, {"candidate_pool": 0}, {"rrf_k": -1}, {"where": {"a": {"$x": 1}}}]
)
def test_bad_arguments(index: Index, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        index.hybrid_search("ferry", **settings)  # type: ignore[arg-type]


def test_reopened_it_answers_the_same(index: Index) -> None:
    index.close()
    again = Index.open(index.path, get_embedder("fake"), reranker=get_reranker("noop"))
    assert again.identity == get_embedder("fake").fingerprint
    assert ids(again.hybrid_search("ferry"))[0] == "ferry"


def test_another_embedder_is_refused_on_opening(index: Index) -> None:
    with pytest.raises(IdentityMismatchError):
        Index.open(index.path, get_embedder("fake-minilm"))


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProviderError):
        Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake?fail=tax"))
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake"), progress=lambda *a: told.append(a))
    assert told == [(3, 3)]


def test_an_empty_folder_is_taken_and_a_full_one_refused(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    assert len(Index.build(tmp_path / "i", [], get_embedder("fake")).hybrid_search("x")) == 0
    with pytest.raises(StoreError, match="not an empty folder"):
        Index.build(tmp_path / "i", [], get_embedder("fake"))


def test_ids_must_be_distinct(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="'d' stands twice"):
        Index.build(tmp_path / "i", [Document("d", "x"), Document("d", "y")], get_embedder("fake"))


def test_damage_is_reported(index: Index, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no index"):
        Index.open(tmp_path)
    manifest = index.path / "index.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(values | {"format": 9}))
    with pytest.raises(StoreError, match="format 9"):
        Index.open(index.path)
    manifest.write_text("{")
    with pytest.raises(StoreError, match="is damaged"):
        Index.open(index.path)

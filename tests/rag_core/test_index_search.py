"""Hybrid search: the reranker's text and its time limit, filters on both legs, thresholds."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_core import Document, get_embedder, get_reranker
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.fusion import rrf
from rag_core.index import Index

DOCUMENTS = [
    Document("ferry", "The ferry leaves the old port at nine.", "Ferry", {"source": "a.md", "year": 2020}),
    Document("bus", "The night bus leaves the port at one.", "Bus", {"source": "b.md", "year": 2024}),
    Document("tax", "Property tax is due in May.", "", {"year": 2024}),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return Index.build(tmp_path_factory.mktemp("search") / "i", DOCUMENTS, get_embedder("fake"))


class Recording:
    """A reranker that prefers the last candidate, remembers what it read, and may take its time."""

    name = model = fingerprint = "recording"
    target = "cpu"

    def __init__(self, wait: threading.Event | None = None) -> None:
        self.wait, self.seen, self.calls = wait, list[str](), 0

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.calls += 1
        self.seen = list(candidates)
        if self.wait is not None:
            self.wait.wait(30)
        return [float(i) for i in range(len(candidates))]


def ids(result: Any) -> list[str]:
    return [hit.document.doc_id for hit in result]


def test_the_reranker_reads_the_template(index: Index) -> None:
    reranker = Recording()
    template = "{title} ({source}, {year}) {{x}}\n{text}"
    result = index.hybrid_search("ferry", reranker=reranker, rerank_template=template)
    assert sorted(reranker.seen) == [
        "(, 2024) {x}\nProperty tax is due in May.",
        "Bus (b.md, 2024) {x}\nThe night bus leaves the port at one.",
        "Ferry (a.md, 2020) {x}\nThe ferry leaves the old port at nine.",
    ]
    assert ids(result) == ids(index.hybrid_search("ferry"))[::-1]


@pytest.mark.parametrize(
    "template", ["", "no field", "{", "{0}", "{}", "{text.__class__}", "{text!r}", "{text:>9}", "{a[b]}"]
)
def test_templates_hold_plain_fields_only(index: Index, template: str) -> None:
    with pytest.raises(InvalidArgumentError, match="rerank_template"):
        index.hybrid_search("ferry", rerank_template=template)


def test_a_late_reranker_leaves_the_fused_order_and_a_warning(index: Index) -> None:
    go = threading.Event()
    late = Recording(go)
    started = time.monotonic()
    result = index.hybrid_search("ferry", reranker=late, rerank_timeout_s=0.05)
    assert time.monotonic() - started < 20  # it waits for 30
    assert ids(result) == ids(index.hybrid_search("ferry"))
    assert {hit.source for hit in result} == {"hybrid"}
    assert result.warnings == (
        "the reranker failed, the fused order stands: it took longer than its limit of 0.05 s",
    )
    # the next one does not pile up on the one that is late
    again = index.hybrid_search("ferry", reranker=late, rerank_timeout_s=0.05)
    assert again.warnings == result.warnings
    assert late.calls == 1
    go.set()
    in_time = index.hybrid_search("ferry", reranker=late, rerank_timeout_s=30.0)
    assert in_time.warnings == ()
    assert ids(in_time) == ids(result)[::-1]


def test_the_limit_changes_nothing_where_it_is_kept(index: Index) -> None:
    plain = index.hybrid_search("ferry", reranker=Recording())
    limited = index.hybrid_search("ferry", reranker=Recording(), rerank_timeout_s=30)
    assert plain.hits == limited.hits

    class Broken(Recording):
        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            raise KeyError("a fault of the reranker's own")

    with pytest.raises(KeyError):  # what is no error of this library is not hidden
        index.hybrid_search("ferry", reranker=Broken(), rerank_timeout_s=30)


@pytest.mark.parametrize("settings", [{"rerank_timeout_s": v} for v in (0, -1.0, float("nan"), float("inf"))])
def test_bad_limits(index: Index, settings: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="rerank_timeout_s"):
        index.hybrid_search("ferry", **settings)  # type: ignore[arg-type]


def test_where_holds_for_both_legs(index: Index) -> None:
    for where, wanted in (
        ({"year": 2024}, {"bus", "tax"}),
        ({"year": {"$lt": 2024}}, {"ferry"}),
        ({"x": 1}, set()),
    ):
        result = index.hybrid_search("ferry port tax", where=where)
        assert set(ids(result)) == wanted
        assert all("vector" in hit.ranks for hit in result)
    with pytest.raises(InvalidArgumentError, match="unknown operator"):
        index.hybrid_search("", where={"$x": 1})  # whatever the query


@pytest.mark.parametrize("query", ["ferry port", "tax", "zebra", "leaves at nine", "the"])
@pytest.mark.parametrize("pool", [1, 2, 50])
def test_fake_and_noop_give_the_fused_order_bit_for_bit(index: Index, query: str, pool: int) -> None:
    vector = index.store.search(index.embedder.embed([query], role="query")[0], pool)  # type: ignore[union-attr]
    fused = rrf([vector, index.bm25.top(query, pool)], k=42.0)
    settings: dict[str, Any] = {"candidate_pool": pool, "rrf_k": 42.0, "rerank_template": "{text}"}
    result = index.hybrid_search(query, reranker=get_reranker("noop"), rerank_timeout_s=30.0, **settings)
    assert ids(result) == list(fused.doc_ids)
    assert [hit.scores["fused"] for hit in result] == list(fused.scores)
    assert [hit.ranks["fused"] for hit in result] == list(range(1, len(fused) + 1))


def test_a_search_under_way_ends_with_the_version_it_began(tmp_path: Path) -> None:
    go, reading = threading.Event(), threading.Event()

    class Waiting(Recording):
        def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
            reading.set()
            go.wait(30)
            return super().rerank(query, candidates)

    index = Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(index.hybrid_search("ferry", reranker=Waiting())))
    thread.start()
    assert reading.wait(30)
    index.delete(["ferry", "bus"])
    go.set()
    thread.join()
    assert set(ids(found[0])) == {"ferry", "bus", "tax"}
    assert ids(index.hybrid_search("ferry")) == ["tax"]


class Counted:
    """The fake embedder, counting its calls; it fails where ``broken``."""

    def __init__(self, broken: bool = False) -> None:
        self._own, self.calls, self.broken = get_embedder("fake"), 0, broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def embed(self, texts: Sequence[str], *, role: str = "document") -> Any:
        self.calls += 1
        if self.broken:
            raise ProviderError("it is down")
        return self._own.embed(texts, role=role)  # type: ignore[arg-type]


def test_one_leg_alone_gives_the_order_of_that_leg(index: Index) -> None:
    counted = Counted()
    index = Index.open(index.path, counted)  # type: ignore[arg-type]
    words = index.hybrid_search("ferry port", pipeline="bm25")
    assert counted.calls == 0
    assert ids(words) == list(index.bm25.top("ferry port", 50).doc_ids)
    assert {hit.source for hit in words} == {"bm25"}
    assert words.warnings == ()
    assert words.fusion == {}
    near = index.hybrid_search("ferry port", pipeline="vector")
    wanted = index.store.search(counted.embed(["ferry port"], role="query")[0], 50)
    assert ids(near) == list(wanted.doc_ids)
    assert [hit.score for hit in near] == list(wanted.scores)
    assert {hit.source for hit in near} == {"vector"}
    assert "bm25" not in near.seconds
    again = index.hybrid_search("ferry port", pipeline="vector", reranker=Recording())
    assert ids(again) == ids(near)[::-1]
    assert {hit.source for hit in again} == {"vector+rerank"}
    assert ids(index.hybrid_search(" ", pipeline="vector")) == []


def test_words_stand_in_for_vectors_that_fail(index: Index) -> None:
    index = Index.open(index.path, Counted(broken=True))  # type: ignore[arg-type]
    found = index.hybrid_search("ferry port", pipeline="vector")
    assert found.degraded == "the vector leg failed, BM25 alone: it is down"
    assert ids(found) == ids(index.hybrid_search("ferry port", pipeline="bm25"))
    assert {hit.source for hit in found} == {"bm25"}


def test_weights_of_the_legs(index: Index) -> None:
    words = index.hybrid_search("ferry port", weights=[0, 1])
    assert ids(words) == ids(index.hybrid_search("ferry port", pipeline="bm25"))
    assert words.fusion["weights"] == {"vector": 0.0, "bm25": 1.0}
    with pytest.raises(InvalidArgumentError, match="weights"):
        index.hybrid_search("ferry port", weights=[1])
    with pytest.raises(InvalidArgumentError, match="pipeline 'both'; accepted: hybrid, vector, bm25"):
        index.hybrid_search("ferry port", pipeline="both")

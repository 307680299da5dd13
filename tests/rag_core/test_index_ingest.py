"""Ingest, delete, rebuild: what is embedded, what is written, what is found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_core import Document, stores
from rag_core.errors import (
    IdentityMismatchError,
    InvalidArgumentError,
    PartialEmbedError,
    ProviderError,
    StoreError,
    TransientError,
    UnknownNameError,
)
from rag_core.index import Index
from rag_core.index_files import Manifest
from rag_core.index_report import IngestReport
from rag_core.stores import STORES, StoreSpec

FERRY = Document("ferry", "The ferry leaves the old port at nine.", "Ferry", {"kind": "transport"})
BUS = Document("bus", "The night bus leaves the port at one.", "Bus", {"kind": "transport"})
TAX = Document("tax", "Property tax is due in May.", "Tax", {"kind": "money"})


@pytest.fixture(scope="module", autouse=True)
def _no_flushing() -> Iterator[None]:
    """Flushing guards against power cuts, which no test makes; it is most of the time of a small write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def embedder(scripted: Callable[..., Any]) -> Any:
    return scripted()


@pytest.fixture
def index(tmp_path: Path, embedder: Any) -> Index:
    made = Index.create(tmp_path / "i", embedder)
    made.ingest([FERRY, BUS, TAX])
    return made


def found(index: Index, query: str, **settings: Any) -> list[str]:
    return [hit.document.doc_id for hit in index.hybrid_search(query, **settings)]


def files(path: Path) -> dict[str, tuple[int, int]]:
    stats = {str(one.relative_to(path)): one.stat() for one in path.rglob("*") if one.is_file()}
    return {name: (stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items() if name != "writer.lock"}


def numbers(report: IngestReport) -> dict[str, int]:
    names = ("added", "updated", "removed", "unchanged", "empty", "embedded_texts", "reused_vectors")
    return {name: value for name in names if (value := getattr(report, name))}


def test_unchanged_is_neither_embedded_nor_rewritten(index: Index, embedder: Any) -> None:
    before, embedder.asked[:] = files(index.path), []
    report = index.ingest([TAX, FERRY, BUS])
    assert numbers(report) == {"unchanged": 3}
    assert embedder.asked == []
    assert files(index.path) == before
    assert index.generation == 2


def test_new_texts_go_into_a_file_of_their_own(index: Index, embedder: Any) -> None:
    before, embedder.asked[:] = files(index.path / "texts"), []
    report = index.ingest([FERRY, Document("tram", "The tram is free."), Document("blank", "  ")])
    assert numbers(report) == {"added": 2, "unchanged": 1, "empty": 1, "embedded_texts": 1}
    assert embedder.asked == [["d The tram is free."]]
    after = files(index.path / "texts")
    assert before.items() <= after.items()
    assert len(after) == 2
    assert set(index.documents) == {"ferry", "bus", "tax", "tram", "blank"}
    assert found(index, "tram")[0] == "tram"


def test_update_replaces_in_both_legs(index: Index) -> None:
    report = index.ingest([Document("ferry", "A zeppelin instead.")])
    assert numbers(report) == {"updated": 1, "embedded_texts": 1}
    assert index.documents["ferry"].text == "A zeppelin instead."
    assert [d.doc_id for d in index.bm25.top("zeppelin", 5)] == ["ferry"]
    assert "ferry" not in index.bm25.top("port nine", 5).doc_ids
    assert index.store.count() == 3


def test_new_metadata_cost_no_embedding(index: Index, embedder: Any) -> None:
    embedder.asked.clear()
    digest = index.digest()
    report = index.ingest([Document(FERRY.doc_id, FERRY.text, FERRY.title, {"kind": "boat"})])
    assert numbers(report) == {"updated": 1, "reused_vectors": 1}
    assert embedder.asked == []
    assert found(index, "port", where={"kind": "boat"}) == ["ferry"]
    assert index.digest() != digest
    index.ingest([FERRY])
    assert index.digest() == digest


def test_equal_texts_are_embedded_once(tmp_path: Path, embedder: Any) -> None:
    index = Index.create(tmp_path / "i", embedder)
    same = [Document(f"d{i}", "the same") for i in range(5)]
    assert numbers(index.ingest(same, batch=2)) == {"added": 5, "embedded_texts": 1}
    assert found(index, "same") == ["d4", "d3", "d2", "d1", "d0"]


def test_delete_and_prune(index: Index) -> None:
    assert index.delete(["bus", "unknown"]) == 1
    assert index.delete(["unknown"]) == 0
    assert index.generation == 3
    assert "bus" not in found(index, "port bus")
    assert index.store.count() == len(index) == len(index.bm25) == 2
    assert numbers(index.ingest([TAX], prune=True)) == {"removed": 1, "unchanged": 1}
    assert list(index.documents) == ["tax"]
    with pytest.raises(InvalidArgumentError, match="one string"):
        index.delete("tax")


def test_the_order_and_the_number_of_runs_do_not_matter(tmp_path: Path, embedder: Any) -> None:
    documents = [Document(f"d{i}", f"text {i}") for i in range(30)]
    whole = Index.build(tmp_path / "whole", documents, embedder)
    parts = Index.create(tmp_path / "parts", embedder)
    parts.ingest(documents[20:])
    parts.ingest(Document(d.doc_id, "first form") for d in documents[:10])
    parts.ingest(reversed(documents), batch=7)
    assert parts.digest() == whole.digest()
    assert found(parts, "text 7") == found(whole, "text 7")
    parts.ingest([Document("d3", "other")])
    assert parts.digest() != whole.digest()


def test_readers_keep_their_version_until_they_refresh(index: Index, embedder: Any) -> None:
    reader, words = Index.open(index.path, embedder), Index.open(index.path)
    before = found(reader, "port"), reader.digest()
    index.ingest([Document("port", "port port port")])
    index.delete(["ferry", "bus"])
    assert (found(reader, "port"), reader.digest()) == before
    assert reader.documents["ferry"] == FERRY
    assert set(found(words, "port")) == {"ferry", "bus"}
    assert reader.refresh() is True
    assert reader.refresh() is False
    assert found(reader, "port")[0] == "port"
    assert set(reader.documents) == {"port", "tax"}
    assert words.refresh()
    assert found(words, "port") == ["port"]


def test_old_versions_do_not_pile_up(index: Index) -> None:
    for i in range(40):
        index.ingest([Document("ferry", f"form {i}"), Document(f"d{i}", f"text {i}")])
    assert len(list((index.path / "generations").iterdir())) == 1
    assert len(list((index.path / "vectors").iterdir())) == 1
    names = Manifest.read(index.path).segments
    assert sorted(names) == sorted(one.name for one in (index.path / "texts").iterdir())
    assert len(names) <= 18
    assert index.documents["ferry"].text == "form 39"
    assert {document.text for document in index.documents.values()} >= {f"text {i}" for i in range(40)}


def test_o08_texts_that_are_refused_are_named_and_tried_again(index: Index, embedder: Any) -> None:
    """O08, O16: the good ones are stored, the index is marked partial until a later ingest repairs it."""
    documents = [Document(f"n{i}", f"new {i}") for i in range(20)]

    def refuse(texts: Sequence[str]) -> BaseException | None:
        bad = {i: "unsupported value: NaN" for i, text in enumerate(texts) if text.endswith(" 13")}
        rows = np.array([embedder._row(text) for text in texts], np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows[list(bad)] = 0
        return PartialEmbedError("a", rows, bad) if bad else None

    embedder.fail = refuse
    report = index.ingest(documents, batch=8)
    assert report.failed == {"n13": "unsupported value: NaN"}
    assert report.is_partial
    assert (report.added, report.embedded_texts) == (19, 19)
    assert "n13" not in index.documents
    again = Index.open(index.path, embedder)
    assert again.failed == {"n13": "unsupported value: NaN"}
    assert again.is_partial
    assert json.loads((index.path / "index.json").read_text())["partial"] is True
    generation = again.generation
    assert again.ingest(documents).failed
    assert again.generation == generation  # nothing new
    embedder.down(None)
    embedder.asked.clear()
    assert numbers(again.ingest(documents)) == {"added": 1, "unchanged": 19, "embedded_texts": 1}
    assert embedder.asked == [["d new 13"]]
    assert not again.is_partial
    assert json.loads((index.path / "index.json").read_text())["partial"] is False


def test_o32_a_failed_update_leaves_the_old_form_searchable(index: Index, embedder: Any) -> None:
    """O32."""
    embedder.fail = lambda texts: ProviderError("NaN") if any("poison" in text for text in texts) else None
    report = index.ingest([Document("ferry", "poison"), Document("tram", "The tram.")])
    assert report.failed == {"ferry": "NaN"}
    assert (report.added, report.updated) == (1, 0)
    assert index.documents["ferry"] == FERRY
    assert found(index, "ferry nine")[0] == "ferry"
    assert index.failed == {"ferry": "NaN"}
    index.delete(["ferry"])
    assert not index.is_partial


def test_a_poisoned_text_is_found_by_halving(tmp_path: Path, embedder: Any) -> None:
    """O08: of 64 texts one; never a zero vector in its place."""
    embedder.fail = lambda texts: ProviderError("NaN") if any(t.endswith(" 37") for t in texts) else None
    index = Index.create(tmp_path / "i", embedder)
    report = index.ingest([Document(f"d{i}", f"text {i}") for i in range(64)], batch=16)
    assert list(report.failed) == ["d37"]
    assert index.store.count() == 63
    assert len(embedder.asked) < 16


def test_an_embedder_that_is_down_ends_the_run_and_loses_one_batch(tmp_path: Path, embedder: Any) -> None:
    """O16: finished batches are not paid for again."""
    index = Index.create(tmp_path / "i", embedder)
    documents = [Document(f"d{i}", f"text {i}") for i in range(50)]
    embedder.fail = lambda texts: TransientError("down") if len(embedder.asked) == 4 else None
    with pytest.raises(TransientError):
        index.ingest(documents, batch=10)
    assert len(index) == 0
    assert index.stats()["pending"] == 30
    assert len(index.plan(documents).texts) == 20
    assert index.delete(["d1"]) == 0
    embedder.asked.clear()
    embedder.down(None)
    assert numbers(index.ingest(documents, batch=10)) == {
        "added": 50,
        "embedded_texts": 20,
        "reused_vectors": 30,
    }
    assert index.stats()["pending"] == 0
    assert index.digest() == Index.build(tmp_path / "whole", documents, embedder).digest()


def test_an_embedder_that_refuses_everything_is_no_partial_success(tmp_path: Path, embedder: Any) -> None:
    embedder.down(ProviderError("the model answers nonsense"))
    index = Index.create(tmp_path / "i", embedder)
    with pytest.raises(ProviderError, match="no text could be embedded: the model answers nonsense"):
        index.ingest([Document(f"d{i}", f"text {i}") for i in range(9)], batch=4)
    assert index.generation == 1


def test_plan_tells_without_doing(index: Index, embedder: Any) -> None:
    before, embedder.asked[:] = files(index.path), []
    plan = index.plan(
        [FERRY, Document("bus", "Other."), Document("x", "New."), Document("y", "")], prune=True
    )
    assert (plan.added, plan.updated, plan.unchanged, plan.removed, plan.empty) == (2, 1, 1, 1, 1)
    assert plan.texts == ("Other.", "New.")
    assert embedder.asked == []
    assert files(index.path) == before


def test_rebuild_with_another_embedder(index: Index, scripted: Callable[..., Any]) -> None:
    other = scripted("b", dim=16)
    index.ingest([Document("blank", "")])
    reader = Index.open(index.path)
    told: list[tuple[str, int, int]] = []
    report = reader.rebuild(other, progress=lambda *a: told.append(a), batch=2)
    assert (report.updated, report.empty, report.embedded_texts) == (3, 1, 3)
    assert ("embed", 3, 3) in told
    assert reader.identity == other.fingerprint
    assert found(reader, "ferry")[0] == "ferry"
    assert found(index, "ferry")[0] == "ferry"  # the version that it has open
    with pytest.raises(IdentityMismatchError):
        index.refresh()
    with pytest.raises(IdentityMismatchError):
        index.ingest([FERRY])
    assert len(list((index.path / "vectors").iterdir())) == 1
    whole = Index.build(index.path.parent / "w", [FERRY, BUS, TAX, Document("blank", "")], other)
    assert reader.digest() == whole.digest()


def test_a_rebuild_that_stops_goes_on_and_one_with_bad_texts_keeps_them(
    index: Index, scripted: Callable[..., Any]
) -> None:
    other = scripted("b")
    other.fail = lambda texts: TransientError("down") if len(other.asked) == 2 else None
    with pytest.raises(TransientError):
        index.rebuild(other, batch=1)
    assert found(index, "ferry")[0] == "ferry"
    other.fail = lambda texts: ProviderError("NaN") if any("tax" in text for text in texts) else None
    report = index.rebuild(other, batch=1)
    assert report.failed == {"tax": "NaN"}
    assert report.embedded_texts == 1  # the first one was at hand
    assert set(index.documents) == {"ferry", "bus"}
    assert index.is_partial
    other.down(None)
    assert index.rebuild(other).embedded_texts == 3
    assert set(index.documents) == {"ferry", "bus", "tax"}
    assert not index.is_partial


def test_create(tmp_path: Path, embedder: Any) -> None:
    Index.create(tmp_path / "i", embedder)
    with pytest.raises(StoreError, match="not an empty folder"):
        Index.create(tmp_path / "i", embedder)
    with pytest.raises(UnknownNameError):
        Index.create(tmp_path / "j", embedder, store="flta")
    Index.create(tmp_path / "j", embedder)  # what was begun there is no obstacle
    assert Index.is_index(tmp_path / "j")
    assert not Index.is_index(tmp_path)


def test_bad_input_changes_nothing(index: Index) -> None:
    digest = index.digest()
    for documents, message in (
        ([FERRY, FERRY], "'ferry' stands twice"),
        ([Document("x", "x", "", {"a": {1, 2}})], "not plain JSON"),
        ([Document("x", "x", "", {"a": float("nan")})], "not plain JSON"),
        ([Document("", "x")], "not a non-empty string"),
        ([Document("\ud800", "x")], "not plain JSON"),
        ([Document("x", "x", "", {"a": "\ud800"})], "not plain JSON"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            index.ingest([Document("new", "new"), *documents])
    with pytest.raises(InvalidArgumentError, match="batch is 0"):
        index.ingest([], batch=0)
    with pytest.raises(InvalidArgumentError, match="without an embedder"):
        Index.open(index.path).ingest([])
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        index.ingest("nowhere")
    assert Index.open(index.path).digest() == digest
    for write in (
        lambda: index.store.upsert([], np.zeros((0, 8), np.float32)),
        lambda: index.store.delete([]),
    ):
        with pytest.raises(StoreError, match="index"):
            write()


def test_stats_are_plain(index: Index) -> None:
    stats = json.loads(json.dumps(index.stats(), allow_nan=False))
    assert (stats["documents"], stats["searchable"], stats["pending"], stats["generation"]) == (3, 3, 0, 2)
    assert stats["size_bytes"] > 1000


def query_of(embedder: Any) -> Any:
    return embedder.embed(["q"], role="query")[0]


class Plain:
    """A store that is no snapshot and offers nothing beyond the protocol, over ``flat``."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in ("upsert", "search", "delete", "count", "close"):
            setattr(self, name, getattr(inner, name))

    @property
    def identity(self) -> Any:
        return self.inner.identity

    @classmethod
    def create(cls, path: Path, identity: Any) -> Plain:
        from rag_core.stores.flat import FlatStore

        return cls(FlatStore.create(path, identity))

    @classmethod
    def open(cls, path: Path, identity: Any = None) -> Plain:
        from rag_core.stores.flat import FlatStore

        return cls(FlatStore.open(path, identity))


def test_a_store_that_changes_under_its_readers(
    tmp_path: Path, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of the version before still finds in both legs what that version held."""
    monkeypatch.setitem(STORES, "plain", StoreSpec("elsewhere:Plain", "for this test"))  # type: ignore[index]
    real = stores.load_attribute
    monkeypatch.setattr(stores, "load_attribute", lambda t: Plain if t == "elsewhere:Plain" else real(t))
    index = Index.create(tmp_path / "i", embedder, store="plain")
    index.ingest([FERRY, BUS, TAX])
    raw = index.store.store
    key = index.store.key_of("ferry")
    assert raw.search(query_of(embedder), 10, None).doc_ids.count(key) == 1
    assert index.store.doc_id_of(key) == "ferry"
    shown = index._version
    index.ingest([Document("ferry", "A zeppelin instead.")])
    assert index.store.store is raw  # one handle, as servers and locked files want it
    assert raw.count() == 4
    query = query_of(embedder)
    assert index.store.key_of("ferry") != key
    with pytest.raises(KeyError):
        index.store.doc_id_of(key)
    with pytest.raises(KeyError):
        index.store.key_of("unknown")
    assert set(shown.store.search(query, 3).doc_ids) == {"ferry", "bus", "tax"}
    assert index.store.count() == len(index.store.search(query, 10)) == 3
    index.delete(["bus"])
    assert raw.count() == 3  # the first form of the ferry went with this write, the bus goes with the next
    assert set(index.store.search(query, 10).doc_ids) == {"ferry", "tax"}
    index.ingest([FERRY])
    assert raw.count() == 3
    assert set(index.store.search(query, 10).doc_ids) == {"ferry", "tax"}

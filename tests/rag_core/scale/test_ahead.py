"""Shards out, fragments back: without a cluster, so what is seen is the format and the counting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_core import Document, get_embedder
from rag_core.errors import InvalidArgumentError, MissingExtraError, ProviderError, TransientError
from rag_core.index import Index
from rag_core.scale import EmbedJob, InProcessEngine, ShardReport
from rag_core.scale import shards as files
from rag_core.scale.work import ShardWorker, report_of

DOCUMENTS = [Document(f"d{i:03d}", f"text {i % 150}", "", {"n": i}) for i in range(200)]


class Breaking(InProcessEngine):
    """Ends after a number of shards, as a driver that is killed does."""

    def __init__(self, provider: str, after: int) -> None:
        super().__init__(provider, shard_texts=32)
        self.after, self.ran = after, 0

    def run(self, job: EmbedJob, n_shards: int) -> Iterator[ShardReport]:
        for report in super().run(job, n_shards):
            if self.ran == self.after:
                raise KeyboardInterrupt
            self.ran += 1
            yield report


class WithoutPlace(InProcessEngine):
    """Embeds, and then has no machine left for the index of vectors."""

    def elsewhere(self, call: Callable[[], None]) -> None:
        raise ProviderError("the cluster broke off; run the same command again")


def made(path: Path, documents: list[Document] = DOCUMENTS) -> Index:
    index = Index.create(path, get_embedder("fake"))
    index.ingest(documents, batch=16)
    return index


@pytest.mark.stores_external
class TestWithPyarrow:
    def test_ends_as_a_build_by_one_process(self, tmp_path: Path) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        report = index.ingest(DOCUMENTS, engine=InProcessEngine("fake", 32), batch=16)
        assert index.digest() == made(tmp_path / "quiet").digest()
        assert (report.added, report.embedded_texts, report.reused_vectors) == (200, 150, 0)

    def test_goes_on_where_it_was(self, tmp_path: Path) -> None:
        """150 texts, shards of 32: two shards are done, a third has its fragment and was not told of."""
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        with pytest.raises(KeyboardInterrupt):
            index.ingest(DOCUMENTS, engine=Breaking("fake", 2), batch=16)
        assert len(index.documents) == 0
        report = index.ingest(DOCUMENTS, engine=InProcessEngine("fake", 32), batch=16)
        assert (report.embedded_texts, report.reused_vectors) == (150 - 3 * 32, 3 * 32)
        assert index.digest() == made(tmp_path / "quiet").digest()

    def test_an_ingest_without_an_engine_goes_on(self, tmp_path: Path) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        with pytest.raises(KeyboardInterrupt):
            index.ingest(DOCUMENTS, engine=Breaking("fake", 2), batch=16)
        assert index.ingest(DOCUMENTS, batch=16).embedded_texts == 150 - 3 * 32
        assert index.digest() == made(tmp_path / "quiet").digest()

    def test_fragments_are_of_no_use_without_the_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        with pytest.raises(KeyboardInterrupt):
            index.ingest(DOCUMENTS, engine=Breaking("fake", 2), batch=16)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert index.plan(DOCUMENTS).added == 200
        assert len(list((tmp_path / "i").glob("pending-*/*.parquet"))) == 3
        assert index.ingest(DOCUMENTS, batch=16).embedded_texts == 150

    def test_a_damaged_fragment_is_made_again(self, tmp_path: Path) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        with pytest.raises(KeyboardInterrupt):
            index.ingest(DOCUMENTS, engine=Breaking("fake", 2), batch=16)
        one, *_ = (tmp_path / "i").glob("pending-*/*.parquet")
        data = bytearray(one.read_bytes())
        data[len(data) // 2] ^= 1
        one.write_bytes(data)
        report = index.ingest(DOCUMENTS, engine=InProcessEngine("fake", 32), batch=16)
        assert report.embedded_texts == 150 - 2 * 32
        assert index.digest() == made(tmp_path / "quiet").digest()

    def test_o32_new_changed_and_unchanged(self, tmp_path: Path) -> None:
        after = [*DOCUMENTS[:100], Document("d100", "another text"), Document("n", "new"), Document("b", " ")]
        quiet, index = made(tmp_path / "quiet"), made(tmp_path / "i")
        quiet.ingest(after, prune=True)
        report = index.ingest(after, prune=True, engine=InProcessEngine("fake"))
        assert index.digest() == quiet.digest()
        assert (report.embedded_texts, report.updated, report.added, report.removed) == (2, 1, 2, 99)

    def test_a_text_that_the_embedder_refuses_is_named_and_not_asked_for_again(self, tmp_path: Path) -> None:
        documents = [
            *DOCUMENTS[:40],
            Document("bad", "a poisonous text"),
            Document("worse", "a poisonous text"),
        ]
        embedder = get_embedder("fake?fail=poisonous")
        index = Index.create(tmp_path / "i", embedder)
        report = index.ingest(documents, engine=InProcessEngine("fake?fail=poisonous", 32), batch=16)
        assert set(report.failed) == {"bad", "worse"}
        assert "holds 'poisonous'" in report.failed["bad"]
        assert (report.added, report.embedded_texts) == (40, 40)
        assert not embedder.sent  # type: ignore[attr-defined]
        quiet = Index.create(tmp_path / "quiet", get_embedder("fake?fail=poisonous"))
        quiet.ingest(documents, batch=16)
        assert index.digest() == quiet.digest()

    def test_an_embedder_that_refuses_everything(self, tmp_path: Path) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        with pytest.raises(ProviderError, match=r"no text could be embedded: .*holds 'text'"):
            index.ingest(DOCUMENTS, engine=InProcessEngine("fake?fail=text", 32))
        assert len(index.documents) == 0

    def test_an_embedder_that_is_down_keeps_what_was_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = Index.create(tmp_path / "i", get_embedder("fake"))
        real, calls = ShardWorker._embed, []

        def down(self: ShardWorker, number: int) -> Any:
            calls.append(number)
            if number == 3:
                raise TransientError("the service is down", 503)
            return real(self, number)

        monkeypatch.setattr(ShardWorker, "_embed", down)
        with pytest.raises(TransientError, match="the service is down"):
            index.ingest(DOCUMENTS, engine=InProcessEngine("fake", 32), batch=16)
        monkeypatch.undo()
        report = index.ingest(DOCUMENTS, engine=InProcessEngine("fake", 32), batch=16)
        assert report.embedded_texts == 150 - 3 * 32

    def test_an_index_of_vectors_that_was_not_built_is_built_by_the_same_ingest_again(
        self, tmp_path: Path
    ) -> None:
        documents = [Document(f"d{i:03d}", f"text {i}") for i in range(300)]
        index = Index.create(tmp_path / "i", get_embedder("fake"), store="lancedb?index=hnsw_sq")
        with pytest.raises(ProviderError, match="the cluster broke off"):
            index.ingest(documents, engine=WithoutPlace("fake", 32), batch=16)
        assert len(index.documents) == 0
        report = index.ingest(documents, engine=InProcessEngine("fake", 32), batch=16)
        assert (report.added, report.embedded_texts, report.reused_vectors) == (300, 0, 300)
        assert index.digest() == made(tmp_path / "quiet", documents).digest()
        stats = index._version.store.store._table.index_stats("vector_idx")  # type: ignore[attr-defined]
        assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 0)

    def test_a_shard_that_is_done_is_not_done_again(self, tmp_path: Path) -> None:
        embedder = get_embedder("fake")
        texts = ["alpha", "beta", "a lone \ud800 surrogate"]
        tags = [bytes([i]) * 16 for i in range(3)]
        (tmp_path / "s").mkdir()
        (tmp_path / "f").mkdir()
        files.write_shard(tmp_path / "s" / "00000000.parquet", tags, texts)
        assert list(files.read_shard(tmp_path / "s" / "00000000.parquet")) == list(zip(tags, texts))
        job = EmbedJob(
            "fake", "cpu", embedder.fingerprint.as_dict(), str(tmp_path / "s"), str(tmp_path / "f"), 2
        )
        assert ShardWorker(job).shard(0) == ShardReport(0, 3)
        (made_,) = (tmp_path / "f").iterdir()
        stamp = made_.stat().st_mtime_ns
        (packed,) = ShardWorker(job)({"number": [0]})["report"]
        assert report_of(packed) == ShardReport(0, 3)
        assert made_.stat().st_mtime_ns == stamp
        assert files.read_fragment(made_)[0] == tags

    def test_reports_survive_the_way_back(self, tmp_path: Path) -> None:
        job = EmbedJob("fake", "cpu", get_embedder("fake").fingerprint.as_dict(), str(tmp_path), "", 2)
        (packed,) = ShardWorker(job)({"number": [7]})["report"]
        report = report_of(packed)
        assert report.number == 7
        assert "could not be written" in str(report.error) or "No such file" in str(report.error)


def test_an_iterator_cannot_be_gone_through_twice(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i", get_embedder("fake"))
    with pytest.raises(InvalidArgumentError, match="goes through the documents twice"):
        index.ingest(iter(DOCUMENTS), engine=InProcessEngine("fake"))


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    index = Index.create(tmp_path / "i", get_embedder("fake"))
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[ray\]'"):
        index.ingest(DOCUMENTS, engine=InProcessEngine("fake"))
    assert index.ingest(DOCUMENTS).added == 200

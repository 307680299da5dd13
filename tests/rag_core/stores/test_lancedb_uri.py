"""One table for many machines: LanceDB on an object store, with a local server in its place."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_core import Document, get_embedder
from rag_core.errors import InvalidArgumentError, StoreError
from rag_core.index import Index
from rag_core.index_files import writing
from rag_core.scale import RayEngine
from rag_core.stores import create_store, discard_store, open_store
from rag_core.stores.lance_index import Upkeep

pytestmark = pytest.mark.stores_external
SECRET = "a-secret-that-must-not-be-kept"
DOCUMENTS = [Document(f"d{i}", f"alpha text {i}") for i in range(5)]
URI = "lancedb?uri=s3://bucket/indexes"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A bucket, and the environment that leads to it."""
    pytest.importorskip("lancedb")
    server_module = pytest.importorskip("moto.server")
    import boto3

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "reader",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield client
        client.close()
    server.stop()


def objects(bucket: Any) -> list[str]:
    return [entry["Key"] for entry in bucket.list_objects_v2(Bucket="bucket").get("Contents", [])]


def found(index: Index, query: str) -> set[str]:
    return {hit.document.doc_id for hit in index.hybrid_search(query, top_k=10)}


def test_o32_readers_keep_their_version_until_they_refresh(bucket: Any, tmp_path: Path) -> None:
    """O32: many readers, one writer; each reader sees one version, whole."""
    embedder = get_embedder("fake")
    writer = Index.build(tmp_path / "i", DOCUMENTS, embedder, store=URI)
    first, second = (Index.open(tmp_path / "i", embedder) for _ in range(2))
    assert found(first, "alpha text") == {f"d{i}" for i in range(5)}
    writer.ingest([Document("d1", "gamma"), Document("n", "beta alpha")])
    writer.delete(["d0"])
    for reader in (first, second):
        assert found(reader, "alpha text") <= {f"d{i}" for i in range(5)}
        assert {"d1", "d2", "d3", "d4"} <= found(reader, "alpha text")
    assert first.refresh()
    assert found(first, "alpha text") >= {"n", "d2"}
    assert "d0" not in found(first, "alpha text")
    with writing(tmp_path / "i"), pytest.raises(StoreError, match="one writer at a time"):
        second.ingest([Document("x", "y")])


def test_the_answers_are_those_of_the_exact_store(bucket: Any, tmp_path: Path) -> None:
    embedder = get_embedder("fake")
    far = Index.build(tmp_path / "far", DOCUMENTS, embedder, store=URI)
    near = Index.build(tmp_path / "near", DOCUMENTS, embedder)
    assert far.digest() == near.digest()
    got, wanted = (index.hybrid_search("alpha text 3", top_k=5) for index in (far, near))
    assert [hit.document.doc_id for hit in got] == [hit.document.doc_id for hit in wanted]


def test_nothing_secret_is_kept_or_shown(bucket: Any, tmp_path: Path) -> None:
    index = Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake"), store=URI)
    kept = [path.read_bytes() for path in (tmp_path / "i").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in kept)
    (about,) = (tmp_path / "i" / "vectors").glob("*/store.json")
    settings = json.loads(about.read_text())["settings"]
    assert settings["uri"] == "s3://bucket/indexes"
    assert settings["place"].startswith("s3://bucket/indexes/000001-")
    assert not list((tmp_path / "i" / "vectors").rglob("*.lance"))
    assert SECRET not in repr(index.store)


def test_a_rebuild_removes_the_table_it_replaces(bucket: Any, tmp_path: Path) -> None:
    index = Index.build(tmp_path / "i", DOCUMENTS, get_embedder("fake"), store=URI)
    (about,) = (tmp_path / "i" / "vectors").glob("*/store.json")
    place = json.loads(about.read_text())["settings"]["place"].removeprefix("s3://bucket/")
    assert any(key.startswith(place) and key.endswith(".lance") for key in objects(bucket))
    index.rebuild(get_embedder("fake-e5-small"))
    assert not any(key.startswith(place) and key.endswith(".lance") for key in objects(bucket))
    assert found(index, "alpha text 2") >= {"d2"}


def test_a_folder_as_address(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    embedder = get_embedder("fake")
    for name in ("a", "b"):  # two stores below one address do not meet
        store = create_store(f"lancedb?uri={tmp_path}/shared", tmp_path / name / "s", embedder.fingerprint)
        store.upsert([name], embedder.embed([name]))
        store.close()
    assert open_store("lancedb", tmp_path / "a" / "s").count() == 1
    assert len(list((tmp_path / "shared").glob("s-*/rows.lance"))) == 2
    discard_store(tmp_path / "a" / "s")
    assert len(list((tmp_path / "shared").glob("s-*/rows.lance"))) == 1
    discard_store(tmp_path / "nowhere")


def test_a_node_builds_the_index_where_the_table_stands(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(Upkeep, "__call__", lambda self: pytest.fail("built by the driver"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
    documents = [Document(f"d{i}", f"alpha text {i}") for i in range(300)]
    index = Index.create(tmp_path / "i", get_embedder("fake"), store=f"{URI}&index=hnsw_sq")
    with RayEngine("fake", workers=1) as engine:
        index.ingest(documents, engine=engine)
    stats = index._version.store.store._table.index_stats("vector_idx")  # type: ignore[attr-defined]
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (300, 0)
    index.close()


def test_a_store_that_cannot_be_reached(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_store(URI, tmp_path / "s", get_embedder("fake").fingerprint).close()
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(StoreError, match=r"cannot be opened: .*check AWS_ENDPOINT") as caught:
        open_store("lancedb", tmp_path / "s")
    assert SECRET not in str(caught.value)
    with pytest.raises(StoreError, match="could not create a table"):
        create_store(URI, tmp_path / "t", get_embedder("fake").fingerprint)
    with pytest.raises(StoreError, match="could not be removed"):
        discard_store(tmp_path / "s")


@pytest.mark.parametrize("uri", ["", "s3://key:secret@bucket/x", "s3://bucket/x#f", "s3:///x"])
def test_addresses_that_are_refused(uri: str) -> None:
    from rag_core.stores.lancedb import LanceStore

    with pytest.raises(InvalidArgumentError, match="uri is no address") as caught:
        LanceStore.check_options({"uri": uri})
    assert "secret" not in str(caught.value)

"""SurrealDB: options without the package; with it, filters against the exact store, the graph, HNSW."""

from __future__ import annotations

import doctest
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_core.errors import InvalidArgumentError, MissingExtraError, StoreError
from rag_core.fingerprint import Fingerprint
from rag_core.stores import create_store, open_store
from rag_core.stores.flat import FlatStore
from rag_core.stores.room import Room
from rag_core.stores.surrealdb import Entity, SurrealStore

external = pytest.mark.stores_external


def identity(dim: int = 4) -> Fingerprint:
    return Fingerprint("fake", "m", "1", dim, "fp32", "mean")


def unit(n: int, dim: int, seed: int = 5) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "surrealdb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[surrealdb\]'"):
        create_store("surrealdb", tmp_path / "s", identity())
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"index": "ivf"}, "accepted: exact, hnsw"),
        ({"ef": "0"}, "1 to 1000"),
        ({"m": "many"}, "2 to 100"),
        ({"color": "red"}, "has no option 'color'"),
        ({"url": "http://x"}, "accepted: ws://"),
        ({"database": "d"}, "only with a server"),
        ({"url": "ws://x", "database": "d; REMOVE DATABASE x"}, "letters, digits and underscores"),
    ],
)
def test_options_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        SurrealStore.check_options(options)


def test_the_server_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "url" not in SurrealStore.check_options({})
    monkeypatch.setenv("RAG_SURREAL_URL", "ws://db:8000")
    kept = SurrealStore.check_options({})
    assert (kept["url"], kept["namespace"], kept["database"]) == ("ws://db:8000", "rag", "")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 2.0, -0.0, 2**53 + 1, 2.0**53, 2**62])
    | st.sampled_from(
        ["", "a", "b", "B", "é", "z\0", "1", "x' OR true", "`", "chunk:1", "2020-01-01T00:00:00Z"]
    )
)
NESTED = st.lists(st.sampled_from(["a", "b"]) | st.none(), max_size=2) | st.dictionaries(
    st.sampled_from(["k", "a.b"]), st.integers(0, 1), max_size=2
)
FIELDS = st.sampled_from(["n", "a b", "a.b", "", "in", "`x`", "id", "0", "\0"])
METADATA = st.dictionaries(FIELDS, SCALARS | NESTED, max_size=4)
CONDITIONS = (
    SCALARS
    | NESTED.filter(lambda value: isinstance(value, list))
    | st.fixed_dictionaries({}, optional=dict.fromkeys(("$eq", "$ne"), SCALARS)).filter(bool)
    | st.builds(lambda sign, v: {sign: v}, st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), SCALARS)
    | st.builds(
        lambda sign, v: {sign: v}, st.sampled_from(["$in", "$nin"]), st.lists(SCALARS | NESTED, max_size=3)
    )
)
FILTERS = st.recursive(
    st.dictionaries(FIELDS, CONDITIONS, max_size=2),
    lambda inner: (
        st.builds(
            lambda sign, parts: {sign: parts},
            st.sampled_from(["$and", "$or"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda part: {"$not": part}, inner)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same ten rows in SurrealDB and in the exact store; each example replaces their metadata."""
    folder = tmp_path_factory.mktemp("pair")
    made = create_store("surrealdb", folder / "a", identity()), FlatStore.create(folder / "b", identity())
    yield made
    for store in made:
        store.close()


@external
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(metadata=st.lists(METADATA, min_size=10, max_size=10), where=FILTERS)
def test_filters_select_what_they_select_in_the_exact_store(
    stores: Any, metadata: list[dict[str, Any]], where: dict[str, Any]
) -> None:
    ids, vectors = [f"d{i}" for i in range(10)], unit(10, 4)
    for store in stores:
        store.upsert(ids, vectors, metadata)
    left, right = (store.search(vectors[0], 20, where) for store in stores)
    assert left == right


INJECTIONS = [
    "'; DELETE chunk; '",
    '" OR true',
    "`; REMOVE TABLE chunk; `",
    "= $p0",
    "⟩; DELETE chunk",
    "*/ --",
    "\\",
]


@external
@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_is_taken_for_a_query(tmp_path: Path, text: str) -> None:
    store = SurrealStore.create(tmp_path / "s", identity())
    vectors = unit(3, 4)
    store.upsert([text, "b", "c"], vectors, [{text: text}, {text: "other"}, {}])
    assert store.search(vectors[0], 5, {text: text}).doc_ids == (text,)
    assert set(store.search(vectors[0], 5, {text: {"$ne": text}}).doc_ids) == {"b", "c"}
    assert len(store.search(vectors[0], 5, {"x": {"$in": [text]}})) == 0
    with pytest.raises(InvalidArgumentError):
        store.relate("b", text, "c")
    with pytest.raises(InvalidArgumentError):
        store.related(vectors[0], 3, f"->{text}", "b")
    store.relate(text, "cites", Entity(text), **{"note " + text: text})
    store.relate("b", "cites", Entity(text))
    assert set(store.related(vectors[0], 3, "->cites<-cites", text).doc_ids) == {text, "b"}
    assert store.delete([text]) == 1
    assert store.count() == 2
    store.close()


@external
def test_ids_with_nul_and_metadata_of_every_kind(tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity())
    vectors = unit(3, 4)
    store.upsert(
        ["a\0b", "\U000f00000;", "1"], vectors, [{"x\0": "\0"}, {"big": 10**30}, {"deep": [[{"k": None}]]}]
    )
    assert store.search(vectors[0], 1, {"x\0": "\0"}).doc_ids == ("a\0b",)
    assert store.search(vectors[0], 3, {"big": {"$gt": 2**70}}).doc_ids == ("\U000f00000;",)
    assert store.search(vectors[0], 3, {"deep": [[{"k": None}]]}).doc_ids == ("1",)
    for wrong in ({"x": float("nan")}, {"x": b"bytes"}):
        with pytest.raises(InvalidArgumentError, match="metadata of 'z'"):
            store.upsert(["y", "z"], vectors[:2], [{}, wrong])
    assert store.count() == 3
    store.close()


# --- the graph ---------------------------------------------------------------------------------------

#: Document -> its passages, and the documents it cites.
HANDBOOK = {
    "water-tariff-2026": ["The water tariff rises in March.", "Families of five pay the reduced rate."],
    "water-law": ["The council sets the tariff of water.", "Meters are read every two months."],
    "tax-code": ["Property tax is due in May.", "A late payment costs one percent a month."],
    "festival": ["The lantern festival opens the summer.", "Water is sold at the fountain."],
}
CITES = [("water-tariff-2026", "water-law"), ("water-tariff-2026", "tax-code"), ("festival", "tax-code")]


@pytest.fixture
def handbook(tmp_path: Path) -> Any:
    from rag_core import get_embedder

    embedder = get_embedder("fake")
    store = SurrealStore.create(tmp_path / "s", embedder.fingerprint)
    texts = {f"{doc}#{i}": text for doc, passages in HANDBOOK.items() for i, text in enumerate(passages)}
    metadata = [{"doc": chunk.split("#")[0], "n": int(chunk[-1])} for chunk in texts]
    store.upsert(list(texts), embedder.embed(list(texts.values())), metadata)
    store.relate_many("part_of", [(chunk, Entity(chunk.split("#")[0])) for chunk in texts])
    store.relate_many("cites", [(Entity(a), Entity(b)) for a, b in CITES])
    yield store, embedder, texts
    store.close()


@external
def test_nearest_passages_of_the_documents_that_a_document_cites(handbook: Any) -> None:
    """Graph and nearest neighbours in one query, equal to walking the graph by hand and sorting."""
    store, embedder, texts = handbook
    question = embedder.embed(["who sets the price of water"], role="query")[0]
    found = store.related(question, 3, "->cites<-part_of", Entity("water-tariff-2026"))
    cited = {b for a, b in CITES if a == "water-tariff-2026"}
    expected = [hit for hit in store.search(question, len(texts)) if hit.doc_id.split("#")[0] in cited]
    assert list(found) == expected[:3]
    assert not {hit.doc_id.split("#")[0] for hit in found} & {"water-tariff-2026", "festival"}


@external
def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestFinder().find(SurrealStore.related, "related")
    runner = doctest.DocTestRunner()
    runner.run(examples[0])
    assert runner.summarize().attempted >= 10
    assert runner.failures == 0


@external
def test_the_graph_takes_filters_rows_and_directions(handbook: Any) -> None:
    store, embedder, _ = handbook
    question = embedder.embed(["tariff"], role="query")[0]
    first = store.related(question, 9, "->cites<-part_of", Entity("water-tariff-2026"), {"n": 0})
    assert set(first.doc_ids) == {"water-law#0", "tax-code#0"}
    siblings = store.related(question, 9, "->part_of<-part_of", "festival#0")
    assert set(siblings.doc_ids) == {"festival#0", "festival#1"}
    citing = store.related(question, 9, "<-cites<-part_of", Entity("tax-code"))
    assert {hit.doc_id.split("#")[0] for hit in citing} == {"water-tariff-2026", "festival"}
    assert len(citing) == 4
    assert (
        len(store.related(question, 9, "cites", Entity("water-tariff-2026"))) == 0
    )  # entities have no vector
    assert len(store.related(question, 9, "unknown", "festival#0")) == 0
    assert len(store.related(np.zeros_like(question), 9, "part_of", "festival#0")) == 0
    with pytest.raises(InvalidArgumentError, match="k is 0"):
        store.related(question, 0, "part_of", "festival#0")
    with pytest.raises(InvalidArgumentError, match="wide"):
        store.related(question[:3], 1, "part_of", "festival#0")


@external
def test_edges_are_replaced_removed_and_go_with_their_row(tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity())
    vectors = unit(4, 4)
    store.upsert(["a", "b", "c", "d"], vectors)
    store.relate("a", "cites", "b", page=3, note="see")
    store.relate("a", "cites", "b", page=4, gone=None)
    edges = store.query("SELECT page, note, gone FROM cites")
    assert edges == [{"page": 4, "note": None, "gone": None}]
    store.relate_many("cites", [("a", "c"), ("a", "c"), ("b", "d"), ("a", "later")])
    store.relate_many("cites", [])
    assert set(store.related(vectors[0], 9, "cites", "a").doc_ids) == {"b", "c"}
    assert store.related(vectors[0], 9, "->cites->cites", "a").doc_ids == ("d",)
    store.upsert(["b"], vectors[3:])
    assert set(store.related(vectors[0], 9, "cites", "a").doc_ids) == {"b", "c"}
    assert store.unrelate("a", "cites", "c") is True
    assert store.unrelate("a", "cites", "c") is False
    store.upsert(["later"], vectors[:1])
    assert set(store.related(vectors[0], 9, "cites", "a").doc_ids) == {"b", "later"}
    store.delete(["b", "later"])
    assert len(store.query("SELECT id FROM cites")) == 0
    with pytest.raises(InvalidArgumentError, match="own in"):
        store.relate("a", "cites", "b", **{"in": "x"})
    with pytest.raises(InvalidArgumentError, match="an id is empty"):
        store.relate("a", "cites", Entity(""))
    store.close()


@external
def test_a_statement_of_ones_own(tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity())
    store.upsert(["a", "b"], unit(2, 4), [{"n": 1}, {"n": 2}])
    assert store.query("SELECT VALUE meta.n FROM chunk WHERE meta.n > $least", least=1) == [2]
    with pytest.raises(StoreError, match="Parse error"):
        store.query("SELEKT 1")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.query("RETURN 1")


# --- the index, threads, files -------------------------------------------------------------------------


@external
def test_the_index_finds_nearly_what_looking_at_every_row_finds(tmp_path: Path) -> None:
    store = create_store("surrealdb?index=hnsw", tmp_path / "s", identity(32))
    exact = FlatStore.create(tmp_path / "f", identity(32))
    rows = unit(600, 32)
    metadata = [{"third": i % 3 == 0, "one": i == 7} for i in range(600)]
    for made in (store, exact):
        made.upsert([f"d{i}" for i in range(600)], rows, metadata)
    shared = 0
    for where in (None, {"third": True}):
        for query in unit(20, 32, seed=9):
            left, right = (set(made.search(query, 10, where).doc_ids) for made in (store, exact))
            shared += len(left & right)
    assert shared >= 0.95 * 400
    assert store.search(rows[0], 10, {"one": True}).doc_ids == ("d7",)
    assert len(store.search(rows[0], 2000)) == 600
    store.close()
    again = open_store("surrealdb", tmp_path / "s")
    assert again.search(rows[3], 1).doc_ids == ("d3",)
    again.close()


def missed(store: Any, rows: np.ndarray) -> list[int]:
    """The rows that do not find themselves."""
    return [i for i, row in enumerate(rows) if store.search(row, 1).doc_ids != (f"d{i}",)]


@external
@pytest.mark.parametrize("late", [False, True])
def test_the_index_loses_no_row_to_writes_and_reopening(tmp_path: Path, late: bool) -> None:
    """The engine's own index does: rows added or removed after it was built leave it incomplete."""
    store = SurrealStore.create(tmp_path / "s", identity(8), **({} if late else {"index": "hnsw"}))
    rows = unit(60, 8)
    store.upsert([f"d{i}" for i in range(50)], rows[:50])
    if late:
        store.build_index()
    assert missed(store, rows[:50]) == []
    store.upsert([f"d{i}" for i in range(50, 60)], rows[50:])
    assert missed(store, rows) == []
    for step in range(3):
        store.close()
        store = SurrealStore.open(tmp_path / "s", identity(8))
        plan = store.query("SELECT id FROM chunk WHERE v <|2,50|> $q EXPLAIN", q=rows[55].tolist())
        assert "nearest" in str(plan)
        assert missed(store, rows) == []
        ids = [f"d{i}" for i in range(20 * step, 20 * step + 20)]
        assert store.delete(ids) == 20
        store.upsert(ids, rows[20 * step : 20 * step + 20])
        assert missed(store, rows) == []
    store.close()


@external
def test_threads_share_a_store(tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity(8))
    rows = unit(40, 8)
    store.upsert([f"d{i}" for i in range(40)], rows)
    with ThreadPoolExecutor(4) as workers:
        assert [r.doc_ids[0] for r in workers.map(lambda row: store.search(row, 3), rows)] == [
            f"d{i}" for i in range(40)
        ]
    store.close()


@external
def test_a_second_opener_is_refused_here_and_in_another_process(tmp_path: Path) -> None:
    """The engine itself lets both write, and the rows of one are lost."""
    store = SurrealStore.create(tmp_path / "s", identity())
    with pytest.raises(StoreError, match="open elsewhere"):
        SurrealStore.open(tmp_path / "s")
    code = (
        "import sys, pathlib; from rag_core.stores import open_store; "
        "open_store('surrealdb', pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True)
    assert "StoreError" in done.stderr
    store.close()
    SurrealStore.open(tmp_path / "s").close()


@external
def test_damage_is_told(tmp_path: Path) -> None:
    SurrealStore.create(tmp_path / "s", identity()).close()
    SurrealStore.create(tmp_path / "t", identity(8)).close()
    (tmp_path / "s" / "rows").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="rows/ is missing"):
        SurrealStore.open(tmp_path / "s")
    (tmp_path / "t" / "rows").rename(tmp_path / "s" / "rows")
    with pytest.raises(StoreError, match="does not hold the store"):
        SurrealStore.open(tmp_path / "s")


@external
def test_what_a_crash_left_of_a_creation_is_made_over(tmp_path: Path) -> None:
    store = SurrealStore.create(tmp_path / "s", identity())
    store.upsert(["a"], unit(1, 4))
    store.close()
    (tmp_path / "s" / "store.json").unlink()
    store = SurrealStore.create(tmp_path / "s", identity())
    assert store.count() == 0
    store.close()


@external
def test_room_is_asked_for_by_the_bytes_of_rows_and_of_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def writing(self: Room, size_bytes: int) -> AbstractContextManager[None]:
        asked.append(size_bytes)
        return nullcontext()

    monkeypatch.setattr(Room, "writing", writing)
    store = SurrealStore.create(tmp_path / "s", identity())
    store.upsert(["a", "b"], unit(2, 4), [{"note": "水" * 10_000}, {}])
    store.relate("a", "cites", "b", note="水" * 10_000)
    store.close()
    assert min(asked) > 30_000
    assert len(asked) == 2

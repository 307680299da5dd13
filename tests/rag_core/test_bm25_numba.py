"""The compiled kernel; what it computes is tested in plain Python beside it."""

from __future__ import annotations

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed (extra fast)")

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.bm25_numba import _compile
from rag_core.lexical import get_lexical
from rag_core.types import Document, Query

pytestmark = pytest.mark.stores_external
N_DOCUMENTS = 40_000


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NUMBA_CACHE_DIR", raising=False)
        patch.setenv("RAG_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, N_DOCUMENTS * 12), 5000).reshape(N_DOCUMENTS, 12)
    return [
        Document(f"d{i:06}", " ".join(f"w{word}" for word in row), metadata={"part": i % 3})
        for i, row in enumerate(words.tolist())
    ]


def test_built_and_mapped_answers_are_those_of_numpy(documents: list[Document], tmp_path: Path) -> None:
    """Bit for bit, over several windows."""
    plain = BM25.build(documents, Analyser.raw(), engine="numpy")
    built = BM25.build(documents, Analyser.raw(), engine="numba")
    built.save(tmp_path)
    mapped = BM25.open(tmp_path, engine="numba")
    assert (plain.describe()["scorer"], mapped.describe()["scorer"]) == ("numpy", "numba")
    rng = np.random.default_rng(1)
    for n_terms in (1, 2, 5, 12):
        for k in (1, 10, 1000):
            text = " ".join(f"w{word}" for word in np.minimum(rng.zipf(1.3, n_terms), 6000))
            query = [Query("q", text)]
            for where in (None, {"part": 1}):
                wanted = plain.search(query, k, where)
                assert built.search(query, k, where).rankings == wanted.rankings
                assert mapped.search(query, k, where).rankings == wanted.rankings


def test_threads_share_an_index(documents: list[Document]) -> None:
    """The kernel lets them run at the same time."""
    index = BM25.build(documents, Analyser.raw(), engine="numba")
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{word}" for word in np.minimum(rng.zipf(1.3, 5), 5000)) for _ in range(150)]
    wanted = [index.top(text, 20) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: [index.top(text, 20) for text in texts], range(4)):
            assert found == wanted


def test_words_of_any_script_and_none() -> None:
    texts = ["crème brûlée", "図書館 crème", "brûlée", "", "x" * 300]
    made = [
        BM25.build([Document(f"d{i}", text) for i, text in enumerate(texts)], Analyser.raw(), engine=engine)
        for engine in ("numpy", "numba")
    ]
    for text in (*texts, "brûlée brûlée CRÈME", "unknown", "unknown 図書", "!", "x" * 299):
        plain, fast = (index.top(text, 3) for index in made)
        assert plain == fast


def test_empty_and_copied() -> None:
    empty = BM25.build([], Analyser.raw(), engine="numba")
    assert empty.top("a", 3).doc_ids == ()
    index = get_lexical("bm25?engine=numba", [Document("a", "x"), Document("b", "x y")], Analyser.raw())
    assert isinstance(index, BM25)
    scorer = pickle.loads(pickle.dumps(index._scorer))
    assert scorer.best(["y"], 5, None)[0].tolist() == index._scorer.best(["y"], 5, None)[0].tolist() == [0]


def test_the_compiled_kernel_is_kept(cache: Path) -> None:
    BM25.build([], Analyser.raw(), engine="numba")
    assert list((cache / "numba").rglob("*best_documents*.nbc"))


def test_without_a_place_to_keep_it_compiles_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numba

    before = numba.config.CACHE_DIR
    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        index = BM25.build([Document("a", "x")], Analyser.raw(), engine="numba")
    _compile.cache_clear()
    assert index.top("x", 1).doc_ids == ("a",)
    assert "set RAG_CACHE_DIR" in caplog.text
    assert before == numba.config.CACHE_DIR

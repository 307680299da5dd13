"""Our BM25 against bm25s (method lucene) on the same tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.types import Document

bm25s = pytest.importorskip("bm25s", reason="needs the extra `lexical`")

TEXTS = st.lists(
    st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=15).map(" ".join), min_size=1, max_size=25
)
QUERY = st.lists(st.sampled_from("abcdefghijklz"), min_size=1, max_size=6)


def their_scores(texts: list[list[str]], query: list[str], k1: float, b: float) -> np.ndarray:
    engine = bm25s.BM25(method="lucene", k1=k1, b=b)
    engine.index(texts, show_progress=False)
    known = [term for term in query if term in engine.vocab_dict]
    return engine.get_scores(known) if known else np.zeros(len(texts))


@given(TEXTS, QUERY, st.sampled_from([(1.2, 0.75), (1.5, 0.0), (0.9, 1.0)]))
@settings(max_examples=80, deadline=None)
def test_scores_are_equal(texts: list[str], query: list[str], constants: tuple[float, float]) -> None:
    k1, b = constants
    ours = BM25.build([Document(f"d{i}", t) for i, t in enumerate(texts)], Analyser.raw(), k1, b)
    theirs = their_scores([t.split() for t in texts], query, k1, b)
    found = {hit.doc_id: hit.score for hit in ours.top(" ".join(query), len(texts))}
    for i, score in enumerate(theirs):
        assert found.get(f"d{i}", 0.0) == pytest.approx(float(score), abs=1e-5)


def test_a_corpus_of_some_size() -> None:
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{i}" for i in range(2000)])
    texts = [list(vocabulary[np.minimum(rng.zipf(1.3, rng.integers(5, 80)) - 1, 1999)]) for _ in range(1500)]
    ours = BM25.build([Document(f"d{i:04}", " ".join(t)) for i, t in enumerate(texts)], Analyser.raw())
    for _ in range(20):
        query = list(rng.choice(vocabulary[:300], 4))
        theirs = their_scores(texts, query, 1.2, 0.75)
        ranking = ours.top(" ".join(query), 1500)
        assert len(ranking) == int((theirs > 0).sum())
        for hit in ranking:
            assert hit.score == pytest.approx(float(theirs[int(hit.doc_id[1:])]), abs=1e-5)

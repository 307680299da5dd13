"""The other BM25 engines behind the same seam."""

from __future__ import annotations

import sys

import pytest

from rag_core.analysis import Analyser
from rag_core.errors import InvalidArgumentError, MissingExtraError, SpecStringError, UnknownNameError
from rag_core.lexical import ENGINES, get_lexical, parse_lexical
from rag_core.protocols import Retriever
from rag_core.types import Document, Query

DOCUMENTS = [
    Document("a", "hello there friend", metadata={"n": 1}),
    Document("b", "quite windy london", metadata={"n": 2}),
    Document("c", "london bridge", metadata={"n": 1}),
    Document("e", ""),
]
QUERIES = [Query("q", "windy london"), Query("none", "zebra"), Query("blank", " ")]


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_engine_answers_alike(name: str) -> None:
    engine = get_lexical(name, DOCUMENTS, Analyser.raw())
    assert isinstance(engine, Retriever)
    run = engine.search(QUERIES, 10)
    assert run.rankings["q"].doc_ids == ("b", "c")
    assert run.rankings["none"].doc_ids == run.rankings["blank"].doc_ids == ()
    assert engine.search(QUERIES[:1], 10, {"n": 1}).rankings["q"].doc_ids == ("c",)
    described = engine.describe()
    assert described["engine"] == name
    assert (described["n_documents"], described["n_empty"], described["n_terms"]) == (3, 1, 7)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_edges_are_the_same(name: str) -> None:
    """O23: an empty corpus, and k below 1."""
    assert get_lexical(name, []).search(QUERIES, 3).rankings["q"].doc_ids == ()
    with pytest.raises(InvalidArgumentError, match="k is 0"):
        get_lexical(name, DOCUMENTS).search(QUERIES, 0)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_equal_scores_follow_the_tie_rule_at_the_cut(name: str) -> None:
    engine = get_lexical(name, [Document(f"d{i:02}", "same words") for i in range(30)], Analyser.raw())
    assert engine.search([Query("q", "words")], 3).rankings["q"].doc_ids == ("d29", "d28", "d27")


def test_scores_of_rank_bm25_stay_as_they_are() -> None:
    """O22: its idf makes a match in one of two documents worth nothing; it is still a hit."""
    run = get_lexical("rank_bm25", DOCUMENTS[:2], Analyser.raw()).search([Query("q", "windy london")], 5)
    assert run.rankings["q"].doc_ids == ("b",)
    assert run.rankings["q"].scores == (0.0,)


def test_bm25s_scores_as_ours_does() -> None:
    ours, theirs = (get_lexical(name, DOCUMENTS, k1=0.9, b=0.3) for name in ("bm25", "bm25s"))
    query = [Query("q", "the london bridge, london")]
    mine, other = ours.search(query, 5).rankings["q"], theirs.search(query, 5).rankings["q"]
    assert mine.doc_ids == other.doc_ids
    assert mine.scores == pytest.approx(other.scores, abs=1e-5)


def test_unknown_engine() -> None:
    for text in ("bm25z", "bm25z?engine=numpy"):
        with pytest.raises(UnknownNameError, match="did you mean"):
            get_lexical(text, DOCUMENTS)


def test_options() -> None:
    engine = get_lexical("bm25?engine=numpy", DOCUMENTS, Analyser.raw())
    assert engine.describe()["scorer"] == "numpy"
    assert engine.search(QUERIES, 10).rankings["q"].doc_ids == ("b", "c")
    assert parse_lexical("bm25?engine=numba") == ("bm25", {"engine": "numba"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bm25?engine=rust", "accepted: engine=numpy, engine=numba"),
        ("bm25?k1=2", "accepted: engine=numpy, engine=numba"),
        ("bm25s?engine=numba", "accepted: no options"),
        ("bm25:large", "neither model nor target"),
        ("bm25@cpu", "neither model nor target"),
        ("bm25?", "no options after"),
    ],
)
def test_options_that_are_not_there(text: str, told: str) -> None:
    with pytest.raises(SpecStringError, match=told):
        get_lexical(text, DOCUMENTS)


@pytest.mark.parametrize("name", ["bm25s", "rank_bm25"])
def test_a_missing_package_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rag-core-bench\[lexical\]'"):
        get_lexical(name, DOCUMENTS)

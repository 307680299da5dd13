"""BM25: values, edges, files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.bm25_counts import postings
from rag_core.errors import InvalidArgumentError, MissingExtraError, StoreError, UnknownNameError
from rag_core.types import Document, Query

RAW = Analyser.raw()


def corpus(*texts: str) -> list[Document]:
    return [Document(f"d{i}", text) for i, text in enumerate(texts, 1)]


def test_the_formula_by_hand() -> None:
    index = BM25.build(corpus("a b b", "a c", "c c c c"), RAW, k1=1.2, b=0.75)
    average = 3.0
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / average))
    ranking = index.top("b", 5)
    assert ranking.doc_ids == ("d1",)
    assert ranking.scores[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("texts", "query", "first"),
    [
        (["hello there", "quite windy london"], "windy london", "d2"),
        (["windy london"], "windy", "d1"),
        (["cat a", "cat b", "cat c", "dog"], "cat", "d3"),
    ],
)
def test_matches_score_above_zero_in_small_corpora(texts: list[str], query: str, first: str) -> None:
    """O22."""
    ranking = BM25.build(corpus(*texts), RAW).top(query, 10)
    assert ranking.doc_ids[0] == first
    assert min(ranking.scores) > 0


def test_idf_of_one_in_two_is_the_usual_value() -> None:
    """O22: ln 2 for N = 2, n = 1."""
    index = BM25.build(corpus("x y", "z w"), RAW, k1=0, b=0)
    assert index.top("x", 1).scores[0] == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize(("k", "found"), [(10, 3), (3, 3), (1, 1)])
def test_k_past_the_corpus(k: int, found: int) -> None:
    """O23."""
    assert len(BM25.build(corpus("a", "a b", "a c"), RAW).top("a", k)) == found


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one(k: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"k is {k}"):
        BM25.build(corpus("a"), RAW).top("a", k)


def test_chinese_finds_the_library_alone() -> None:
    """O24."""
    index = BM25.build(corpus("北京是首都", "上海靠近大海", "猫喜欢吃鱼", "他在图书馆看书"))
    ranking = index.top("图书馆", 10)
    assert ranking.doc_ids == ("d4",)
    assert ranking.scores[0] > 0
    assert index.top("猫", 10).doc_ids == ("d3",)
    mixed = BM25.build(corpus("GPU 显存不足", "CPU 温度过高"))
    assert mixed.top("gpu", 10).doc_ids == ("d1",)
    japanese = BM25.build(corpus("図書館で本を借りる", "駅前の喫茶店"))
    assert japanese.top("図書館", 10).doc_ids == ("d1",)
    korean = BM25.build(corpus("도서관에서 책을 빌립니다", "바다는 넓습니다"))
    assert korean.top("도서관", 10).doc_ids == ("d1",)
    russian = BM25.build(corpus("Книги выдают в библиотеке", "Море большое"), Analyser(("ru",)))
    assert russian.top("библиотека", 10).doc_ids == ("d1",)
    assert (
        mixed.describe()["analyser"]
        == "nfkc-casefold+script-segments+stop-words(en,es,pt)+snowball(en,es,pt)"
    )


def test_documents_without_a_shared_word_are_never_hits() -> None:
    index = BM25.build(corpus("a b", "c d"), RAW)
    assert index.top("zebra", 10).doc_ids == ()
    assert index.top("", 10).doc_ids == ()
    assert index.top("a", 10).doc_ids == ("d1",)


def test_empty_corpus_and_empty_documents() -> None:
    """O07."""
    assert BM25.build([], RAW).top("a", 5).doc_ids == ()
    index = BM25.build([Document("d1", "x"), Document("d2", ""), Document("d3", "", "only a title")], RAW)
    assert (len(index), index.n_empty) == (2, 1)
    assert index.top("title", 5).doc_ids == ("d3",)


def test_postings_of_many_terms_and_texts() -> None:
    """Term number times texts passes 2**31 here, whatever the width of the numbers given."""
    lengths = np.ones(50_000, np.int32)
    ids = np.full(50_000, 99_999, np.int32)
    made = postings(ids, lengths, 100_000, 1.2, 0.75)
    assert made["starts"][-2:].tolist() == [0, 50_000]
    assert np.array_equal(made["rows"], np.arange(50_000))


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=9), st.integers(1, 5))
def test_blocks_do_not_change_the_postings(texts: list[list[int]], block: int) -> None:
    ids = np.array([term for text in texts for term in text], np.int64)
    lengths = np.array([len(text) for text in texts], np.int32)
    whole = postings(ids, lengths, 10, 1.2, 0.75)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag_core.bm25_counts.BLOCK", block)
        parts = postings(ids, lengths, 10, 1.2, 0.75)
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    expected = [sorted({i for i, text in enumerate(texts) if term in text}) for term in range(10)]
    starts = whole["starts"]
    assert [whole["rows"][starts[t] : starts[t + 1]].tolist() for t in range(10)] == expected


def test_equal_scores_follow_the_tie_rule_at_the_cut() -> None:
    index = BM25.build([Document(f"d{i:03}", "same words") for i in range(100)], RAW)
    assert index.top("words", 3).doc_ids == ("d099", "d098", "d097")
    assert index.top("same words", 2).doc_ids == ("d099", "d098")


def test_word_order_of_the_query_does_not_change_a_bit() -> None:
    index = BM25.build(corpus("a b c d", "a a c", "b d d", "c"), RAW)
    assert index.top("a b c d", 9) == index.top("d c b a", 9)


WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=8).map(" ".join)


@given(st.lists(WORDS, min_size=1, max_size=12), WORDS, st.integers(1, 15))
@settings(max_examples=150, deadline=None)
def test_scores_agree_with_the_formula(texts: list[str], query: str, k: int) -> None:
    documents = corpus(*texts)
    index = BM25.build(documents, RAW)
    filled = [d for d in documents if not d.is_empty]
    lengths = [len(d.text.split()) for d in filled]
    scores = {}
    for document, length in zip(filled, lengths):
        words = document.text.split()
        score = 0.0
        for term in query.split():
            n = sum(term in d.text.split() for d in filled)
            tf = words.count(term)
            norm = 1.2 * (0.25 + 0.75 * length / (sum(lengths) / len(filled)))
            score += math.log(1 + (len(filled) - n + 0.5) / (n + 0.5)) * tf / (tf + norm)
        if score > 0:
            scores[document.doc_id] = score
    ranking = index.top(query, k)
    assert len(ranking) == min(k, len(scores))
    for hit in ranking:
        assert hit.score == pytest.approx(scores[hit.doc_id], rel=1e-5)
    if len(ranking):
        assert ranking.scores[0] == pytest.approx(max(scores.values()), rel=1e-5)


def test_filters() -> None:
    documents = [Document("a", "x y", metadata={"n": 1}), Document("b", "x", metadata={"n": 2})]
    index = BM25.build(documents, RAW)
    assert index.search([Query("q", "x")], 5, {"n": 1}).rankings["q"].doc_ids == ("a",)
    assert index.search([Query("q", "x")], 5, {"n": 7}).rankings["q"].doc_ids == ()


def test_the_language_of_document_and_query_is_theirs() -> None:
    documents = [
        Document("es", "Los impuestos", metadata={"lang": "es"}),
        Document("en", "The taxes", metadata={"lang": "en"}),
    ]
    index = BM25.build(documents)
    run = index.search([Query("q", "impuesto", {"lang": "es"}), Query("p", "tax", {"lang": "en"})], 5)
    assert run.rankings["q"].doc_ids == ("es",)
    assert run.rankings["p"].doc_ids == ("en",)


def test_saved_opened_and_replaced(tmp_path: Path) -> None:
    documents = [
        Document("a", "one two", metadata={"n": 1}),
        Document("b", "two three", metadata={"n": 2}),
        Document("e", ""),
    ]
    index = BM25.build(documents, Analyser.for_languages(("en",)), k1=0.9, b=0.4)
    folder = tmp_path / "deep" / "bm25"
    index.save(folder)
    again = BM25.open(folder)
    assert isinstance(again._postings.rows.base, np.memmap)
    assert again.describe() == index.describe()
    assert again.top("two", 5) == index.top("two", 5)
    assert again.search([Query("q", "two")], 5, {"n": 2}).rankings["q"].doc_ids == ("b",)
    BM25.open(folder).save(folder)  # replaced by itself
    assert BM25.open(folder).top("two", 5) == index.top("two", 5)
    BM25.build([], RAW).save(folder)
    assert len(BM25.open(folder)) == 0
    assert [p.name for p in folder.parent.iterdir()] == ["bm25"]
    assert len(list(folder.iterdir())) == 2


def test_an_open_index_outlives_its_replacement(tmp_path: Path) -> None:
    documents = [Document("a", "x", metadata={"n": 1}), Document("b", "x", metadata={"n": 2})]
    BM25.build(documents, RAW).save(tmp_path)
    reader = BM25.open(tmp_path)
    BM25.build(documents[:1], RAW).save(tmp_path)
    assert reader.search([Query("q", "x")], 5, {"n": 2}).rankings["q"].doc_ids == ("b",)
    assert reader.top("x", 5).doc_ids == ("b", "a")


def test_metadata_of_any_text_survive(tmp_path: Path) -> None:
    odd = {"n": "\ud800 ñ 图"}
    BM25.build([Document("\ud800", "x", metadata=odd), Document("b", "x")], RAW).save(tmp_path)
    assert BM25.open(tmp_path).search([Query("q", "x")], 5, odd).rankings["q"].doc_ids == ("\ud800",)


def test_filters_that_differ_in_type_only_are_not_confused() -> None:
    documents = [Document("number", "x", metadata={"n": 1}), Document("text", "x", metadata={"n": "1"})]
    index = BM25.build(documents, RAW)
    for wanted, found in ((1, "number"), ("1", "text"), (1, "number")):
        assert index.search([Query("q", "x")], 5, {"n": wanted}).rankings["q"].doc_ids == (found,)


def test_masks_are_bounded() -> None:
    index = BM25.build(corpus("x"), RAW)
    for n in range(200):
        index.search([Query("q", "x")], 1, {"n": n})
    assert len(index._masks) == 64


def test_k_is_checked_before_the_queries() -> None:
    with pytest.raises(InvalidArgumentError, match="k is 0"):
        BM25.build(corpus("x"), RAW).search([], 0)


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("failing", range(10))
def test_a_failed_save_leaves_the_old_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The disk is full at each of the nine arrays and at the manifest."""
    folder = tmp_path / "bm25"
    BM25.build(corpus("a"), RAW).save(folder)
    before = listing(tmp_path)
    flushes = iter(range(99))
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if next(flushes) == failing:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        BM25.build(corpus("b"), RAW).save(folder)
    assert BM25.open(folder).top("a", 1).doc_ids == ("d1",)
    assert listing(tmp_path) == before


KILLED = """
import os, shutil, sys
from pathlib import Path
from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.types import Document
flushes, real = iter(range(99)), os.fsync
os.fsync = lambda d: os._exit(9) if next(flushes) == int(sys.argv[2]) else real(d)
shutil.rmtree = lambda *a, **k: os._exit(9)  # the old index is about to be cleared away
BM25.build([Document("new", "a")], Analyser.raw()).save(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(("at", "found"), [(0, "d1"), (4, "d1"), (9, "d1"), (99, "new")])
def test_a_killed_save_leaves_the_old_index_or_the_new_one(tmp_path: Path, at: int, found: str) -> None:
    BM25.build(corpus("a"), RAW).save(tmp_path)
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(at)], check=False)
    assert died.returncode == 9
    assert BM25.open(tmp_path).top("a", 5).doc_ids == (found,)
    BM25.build(corpus("a"), RAW).save(tmp_path)  # clears what was left
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("missing", ["maxima.npy", "terms.places.npy"])
def test_an_index_of_an_earlier_version_opens(missing: str, tmp_path: Path) -> None:
    """Which had neither the largest impacts nor a hash table."""
    index = BM25.build(corpus("a b", "b b c", "c"), RAW)
    index.save(tmp_path)
    (file,) = tmp_path.glob(f"*/{missing}")
    file.unlink()
    again = BM25.open(tmp_path)
    assert again._postings.maxima.tolist() == index._postings.maxima.tolist()
    for text in ("a b c", "c", "d", ""):
        assert again.top(text, 5) == index.top(text, 5)


def test_the_engine_is_chosen_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert BM25.build([], RAW).describe()["scorer"] == "numpy"
    with pytest.raises(UnknownNameError, match=r"unknown engine 'nunba' of BM25; did you mean .*numba"):
        BM25.build([], RAW, engine="nunba")
    monkeypatch.setenv("RAG_BM25_ENGINE", "nump")
    with pytest.raises(UnknownNameError, match="accepted: numpy, numba"):
        BM25.build([], RAW)
    BM25.build([], RAW, engine="numpy").save(tmp_path)
    with pytest.raises(UnknownNameError, match="unknown engine 'nump'"):
        BM25.open(tmp_path)


def test_the_numba_engine_needs_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setenv("RAG_CACHE_DIR", str(tmp_path))  # so that nothing compiled before is known
    monkeypatch.setenv("RAG_BM25_ENGINE", "numba")
    with pytest.raises(MissingExtraError, match=r"'numba' is not installed.*'rag-core-bench\[fast\]'"):
        BM25.build(corpus("a"), RAW)


def test_damage_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no BM25 index"):
        BM25.open(tmp_path)
    BM25.build(corpus("a"), RAW).save(tmp_path)
    (rows,) = tmp_path.glob("*/rows.npy")
    intact = rows.read_bytes()
    for damaged in (b"", intact[:-1], b"no array at all"):
        rows.write_bytes(damaged)
        with pytest.raises(StoreError, match="is damaged"):
            BM25.open(tmp_path)
    np.save(rows, np.zeros(7, np.int32))
    with pytest.raises(StoreError, match="entries where"):
        BM25.open(tmp_path)
    rows.unlink()
    with pytest.raises(StoreError, match=r"rows\.npy is missing"):
        BM25.open(tmp_path)
    manifest = tmp_path / "bm25.json"
    described = json.loads(manifest.read_text())
    for text, message in (("[]", "damaged"), ("{", "damaged"), ("{}", "damaged")):
        manifest.write_text(text)
        with pytest.raises(StoreError, match=message):
            BM25.open(tmp_path)
    manifest.write_text(json.dumps(described | {"format": 7}))
    with pytest.raises(StoreError, match="format 7"):
        BM25.open(tmp_path)


@pytest.mark.parametrize(("k1", "b"), [(-1, 0.5), (1, 1.5), (math.nan, 0.5)])
def test_bad_constants(k1: float, b: float) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: k1 from 0"):
        BM25.build([], RAW, k1=k1, b=b)


def test_ids_must_be_distinct() -> None:
    with pytest.raises(InvalidArgumentError, match="'d' stands twice"):
        BM25.build([Document("d", "x"), Document("d", "y")], RAW)


def test_evidence_by_hand() -> None:
    index = BM25.build(corpus("a b", "a c", "d", ""), RAW)
    query = Query("q", "a b x")
    ranking = index.search([query], 5).rankings["q"]
    found = index.evidence(query, ranking)

    def idf(n: int) -> float:
        return math.log(1 + (3 - n + 0.5) / (n + 0.5))

    assert ranking.doc_ids[0] == "d1"
    assert found.coverage == pytest.approx((idf(2) + idf(1)) / (idf(2) + idf(1) + idf(0)))
    assert found.n_documents == 3


@pytest.mark.parametrize("text", ["", "zzz"])
def test_evidence_of_a_query_that_finds_nothing(text: str) -> None:
    index = BM25.build(corpus("a b"), RAW)
    query = Query("q", text)
    assert index.evidence(query, index.top(text, 5)).coverage == 0


def test_evidence_counts_the_documents_that_a_filter_leaves(tmp_path: Path) -> None:
    documents = [Document(f"d{i}", "a b c", metadata={"part": i % 3}) for i in range(9)]
    BM25.build(documents, RAW).save(tmp_path)
    index = BM25.open(tmp_path)
    query, where = Query("q", "c a"), {"part": 1}
    found = index.evidence(query, index.search([query], 5, where).rankings["q"], where)
    assert (found.coverage, found.n_documents) == (1.0, 3)


def test_evidence_looks_at_the_best_three(tmp_path: Path) -> None:
    index = BM25.build(corpus("a a a", "a a", "a b", "a c b"), RAW)
    query = Query("q", "a b c")
    ranking = index.search([query], 9).rankings["q"]
    assert index.evidence(query, ranking).coverage == pytest.approx(1.0)
    worst_first = type(ranking).from_scores((d, float(i)) for i, d in enumerate(ranking.doc_ids))
    assert index.evidence(query, worst_first).coverage < 1

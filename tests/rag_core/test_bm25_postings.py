"""Both scorers against sums by hand: bit for bit, ties, filters, and whatever is skipped on the way."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rag_core import bm25_kernel, bm25_postings
from rag_core.bm25_kernel import HELPERS, best_documents, by_bound, first_from, found_terms
from rag_core.bm25_numba import NumbaScorer
from rag_core.bm25_postings import NumpyScorer, Postings, Scorer, largest_impacts
from rag_core.packed import PackedStrings
from rag_core.packed_find import home_mask

Mask = NDArray[np.bool_] | None


def made(lists: list[dict[int, float]], n_rows: int) -> Postings:
    """Term -> {row: impact}."""
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    pairs = [pair for one in lists for pair in sorted(one.items())]
    rows, impacts = (np.array([p[at] for p in pairs], kind) for at, kind in ((0, np.int32), (1, np.float32)))
    arrays = {"starts": starts, "rows": rows, "impacts": impacts}
    terms = PackedStrings.pack([f"t{term}" for term in range(len(lists))]).hashed()
    return Postings(arrays | {"maxima": largest_impacts(starts, impacts)}, terms, n_rows)


def words(found: list[tuple[int, int]]) -> list[str]:
    """The terms of these numbers, each so many times, and some that no document holds."""
    return ["t", *(f"t{term}" for term, count in found for _ in range(count)), "t99", "ñ"]


def by_hand(
    postings: Postings, found: list[tuple[int, int]], k: int, allowed: Mask
) -> tuple[list[int], list[float]]:
    sums: dict[int, Fraction] = {}
    for term, count in found:
        low, high = postings.starts[term], postings.starts[term + 1]
        for row, impact in zip(postings.rows[low:high].tolist(), postings.impacts[low:high].tolist()):
            if allowed is None or allowed[row]:
                sums[row] = sums.get(row, Fraction(0)) + Fraction(impact) * count
    best = sorted(sums, key=lambda row: (-sums[row], row))[:k]
    return best, [float(sums[row]) for row in best]


def plain_kernel(postings: Postings) -> Scorer:
    return NumbaScorer(postings, best_documents)


SCORERS = pytest.mark.parametrize("scorer", [NumpyScorer, plain_kernel])
Make = Callable[[Postings], Scorer]
# few values, so that many scores are equal, and some far apart, so that much is skipped
IMPACTS = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.1, 6.3, 20.0])
N_ROWS = 40


@st.composite
def cases(draw: st.DrawFn) -> tuple[Postings, list[tuple[int, int]], int, Mask]:
    lists = draw(
        st.lists(st.dictionaries(st.integers(0, N_ROWS - 1), IMPACTS, min_size=1), min_size=1, max_size=6)
    )
    terms = draw(st.sets(st.integers(0, len(lists) - 1)))
    found = [(term, draw(st.integers(1, 3))) for term in sorted(terms)]
    rows = st.lists(st.booleans(), min_size=N_ROWS, max_size=N_ROWS)
    allowed = draw(st.none() | rows.map(lambda given: np.array(given, bool)))
    return made(lists, N_ROWS), found, draw(st.integers(1, 12)), allowed


@SCORERS
@given(
    case=cases(),
    few=st.sampled_from([0, 5, bm25_postings.FEW]),
    window=st.sampled_from([1, 7, 16, 999]),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_the_best_are_those_of_sums_by_hand(
    scorer: Make,
    case: tuple[Postings, list[tuple[int, int]], int, Mask],
    few: int,
    window: int,
    data: st.DataObject,
) -> None:
    postings, found, k, allowed = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25_postings, "FEW", few)
        patch.setattr(bm25_postings, "SAMPLED", data.draw(st.sampled_from([0, 1, 9, bm25_postings.SAMPLED])))
        patch.setattr(bm25_postings, "KEPT", data.draw(st.sampled_from([1, bm25_postings.KEPT])))
        patch.setattr(bm25_postings, "LIKELY", data.draw(st.sampled_from([0.0, 0.9, 1e9])))
        patch.setattr(bm25_kernel, "WINDOW", window)
        for module in (bm25_postings, bm25_kernel):
            patch.setattr(module, "LOOK_UP", data.draw(st.sampled_from([0, 1, 1000])))
        engine = scorer(postings)
        asked = data.draw(st.permutations(words(found)))
        for _ in range(2):  # what the first query left behind
            rows, scores = engine.best(asked, k, allowed)
            assert (rows.tolist(), scores.tolist()) == by_hand(postings, found, k, allowed)


def zipf(rng: np.random.Generator, n_rows: int, sizes: tuple[int, ...]) -> Postings:
    """Lists of the given sizes, impacts as of BM25: the rarer, the larger."""
    lists = []
    for size in sizes:
        rows = rng.choice(n_rows, size, replace=False)
        impacts = np.log1p(n_rows / size) * rng.choice([0.3, 0.4, 0.45, 0.5, 0.7], size)
        lists.append(dict(zip(rows.tolist(), impacts.tolist())))
    return made(lists, n_rows)


@SCORERS
@pytest.mark.parametrize("sizes", [(30, 4000, 9000), (2, 3, 9000), (60, 60, 4000, 10_000, 10_000)])
@pytest.mark.parametrize("window", [1024, bm25_kernel.WINDOW])
def test_longer_lists(
    scorer: Make, sizes: tuple[int, ...], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25_kernel, "WINDOW", window)
    postings = zipf(np.random.default_rng(1), 10_000, sizes)
    found = [(term, 1) for term in range(len(sizes))]
    for k in (1, 10, 300):
        rows, scores = scorer(postings).best(words(found), k, None)
        assert (rows.tolist(), scores.tolist()) == by_hand(postings, found, k, None)


def test_numpy_does_not_read_what_can_win_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    postings = zipf(np.random.default_rng(2), 20_000, (100, 10_000, 15_000))
    scorer, added = NumpyScorer(postings), []
    real = scorer._add

    def add(asked: list[bm25_postings.Asked], allowed: Mask, sums: NDArray[np.float64]) -> object:
        added.extend(span.stop - span.start for _, span, _ in asked)
        return real(asked, allowed, sums)

    monkeypatch.setattr(scorer, "_add", add)
    scorer.best(["t0", "t1", "t2"], 10, None)
    assert added == [100]


@SCORERS
def test_all_scores_equal_at_the_cut(scorer: Make) -> None:
    everywhere = dict.fromkeys(range(3000), 0.5)
    rows, scores = scorer(made([everywhere, everywhere], 3000)).best(["t1", "t0", "t1"], 5, None)
    assert (rows.tolist(), scores.tolist()) == ([0, 1, 2, 3, 4], [1.5] * 5)


@SCORERS
@pytest.mark.parametrize("n_lists", [1, 3, 8])
def test_the_best_documents_hold_all_terms(scorer: Make, n_lists: int) -> None:
    """So that the best entries of the lists are few documents, many times."""
    lists = [{row: 1 + row % 199 / 256 for row in range(0, 400, 1 + term % 2)} for term in range(n_lists)]
    found = [(term, 1) for term in range(n_lists)]
    postings = made(lists, 400)
    for k in (1, 7, 60, 399, 400, 500):
        rows, scores = scorer(postings).best(words(found), k, None)
        assert (rows.tolist(), scores.tolist()) == by_hand(postings, found, k, None)


@SCORERS
def test_threads_share_a_scorer(scorer: Make) -> None:
    postings = zipf(np.random.default_rng(3), 2000, (10, 40, 150, 600))
    asked = [
        [(term, 1 + term % 2) for term in terms] for n in (1, 2, 3) for terms in combinations(range(4), n)
    ]
    engine = scorer(postings)

    def answers(_: int) -> list[tuple[list[int], list[float]]]:
        found = [engine.best(words(one), 8, None) for one in asked]
        return [(rows.tolist(), scores.tolist()) for rows, scores in found]

    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(answers, range(4)))
    assert every == [[by_hand(postings, one, 8, None) for one in asked]] * 4


@SCORERS
def test_nothing_asked_or_allowed(scorer: Make) -> None:
    engine = scorer(made([{0: 1.0, 2: 2.0}, {2: 1.0}], 3))
    assert [part.size for part in engine.best([], 5, None)] == [0, 0]
    assert [part.size for part in engine.best(["t0", "t1"], 5, np.zeros(3, bool))] == [0, 0]
    assert [part.size for part in engine.best(["t", "", "t"], 5, None)] == [0, 0]


@SCORERS
def test_a_term_that_no_document_holds_any_more(scorer: Make) -> None:
    engine = scorer(made([{}, {0: 1.0, 2: 2.0}, {}], 3))
    assert [part.size for part in engine.best(["t0", "t2", "t0"], 5, None)] == [0, 0]
    assert engine.best(["t2", "t1", "t0"], 5, None)[0].tolist() == [2, 0]


def test_the_numpy_scorer_is_copied_with_its_postings() -> None:
    scorer = NumpyScorer(made([{0: 1.0, 2: 2.0}], 3))
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.best(["t0"], 5, None)[0].tolist() == [2, 0]


def test_the_terms_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25_postings, "KEPT", 3)
    scorer = NumpyScorer(made([{0: 1.0}, {1: 2.0}], 2))
    for term, rows in (("t0", [0]), ("t1", [1]), ("x", []), ("y", []), ("t0", [0]), ("t1", [1])):
        assert scorer.best([term], 5, None)[0].tolist() == rows
    assert len(scorer._numbers) <= 3


def test_largest_impacts_of_terms_without_any() -> None:
    starts, impacts = np.array([0, 0, 2, 2, 3, 3]), np.array([1, 5, 2], np.float32)
    assert largest_impacts(starts, impacts).tolist() == [0, 5, 0, 2, 0]
    assert largest_impacts(np.zeros(1, np.int64), impacts[:0]).tolist() == []


@given(st.lists(st.integers(0, 30), max_size=20, unique=True).map(sorted), st.integers(0, 31), st.data())
def test_first_from(rows: list[int], wanted: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, len(rows)))
    expected = next((at for at in range(low, len(rows)) if rows[at] >= wanted), len(rows))
    assert first_from(np.array(rows, np.int32), low, len(rows), wanted) == expected


def test_the_helpers_that_numba_must_know() -> None:
    """A function that the kernel calls and the table lacks would not compile."""
    functions = {
        value
        for value in vars(bm25_kernel).values()
        if getattr(value, "__module__", "") == bm25_kernel.__name__
    }
    assert functions - {bm25_kernel._crc_table} == {*HELPERS, best_documents}


@given(
    st.lists(st.text("ab\u00f1図", min_size=1, max_size=3), max_size=9),
    st.sets(st.text("ab\u00f1", max_size=3)),
)
def test_the_words_of_a_query_are_found_and_counted(query: list[str], strings: set[str]) -> None:
    terms = PackedStrings.pack([*strings]).hashed()
    counted = Counter(number for word in query if (number := terms.find(word)) >= 0)
    given_words = np.frombuffer("\0".join(query).encode(), np.uint8)
    numbers, counts = found_terms(given_words, *terms.arrays, home_mask(len(terms)))
    if not query and "" in strings:  # no words are one that is empty
        counted[terms.find("")] = 1
    assert dict(zip(numbers.tolist(), counts.tolist())) == counted


@given(st.binary(max_size=20))
def test_the_hash_is_that_of_zlib(data: bytes) -> None:
    code = 0xFFFFFFFF
    for byte in data:
        code = int(bm25_kernel.CRC[(code ^ byte) & 0xFF]) ^ code >> 8
    assert code ^ 0xFFFFFFFF == zlib.crc32(data)


@given(st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(1, 3)), max_size=8), st.randoms())
def test_terms_in_order_of_what_they_add(given_terms: list[tuple[float, int]], random: Random) -> None:
    order = [*range(len(given_terms))]
    random.shuffle(order)
    maxima = np.array([bound for bound, _ in given_terms], np.float32)
    terms, counts = np.array(order, np.int64), np.array([given_terms[t][1] for t in order], float)
    bounds = by_bound(terms, counts, maxima)
    wanted = sorted((-bound * count, t, count) for t, (bound, count) in enumerate(given_terms))
    assert [*zip((-bounds).tolist(), terms.tolist(), counts.tolist())] == wanted

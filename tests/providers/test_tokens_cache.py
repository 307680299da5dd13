"""The cache of token vectors: what is kept, what makes room, many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from providers._tokens_cache import ENTRY_BYTES, Tokens, TokensCache, text_key


def tokens(rows: int, value: float = 1, is_cut: bool = False) -> Tokens:
    return Tokens(np.full((rows, 4), value, np.float32), is_cut)  # 16 bytes a row


def test_a_key_tells_texts_and_models_apart() -> None:
    keys = {text_key(*pair) for pair in (("m", "a"), ("m", "b"), ("n", "a"), ("m\0a", ""), ("m", "\ud800"))}
    assert len(keys) == 5
    assert text_key("m", "a") == text_key("m", "a")


def test_what_comes_back_is_what_was_put_and_cannot_be_changed() -> None:
    cache, batch = TokensCache(1000), np.arange(40, dtype=np.float32).reshape(10, 4)
    cache.put(b"a", Tokens(batch[2:4], True))
    found = cache.get(b"a")
    assert found is not None
    batch[:] = 0
    assert found.vectors.tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]
    assert found.is_cut
    assert found.vectors.base is None, "a view keeps the whole batch in memory"
    with pytest.raises(ValueError, match="read-only"):
        found.vectors[0] = 1
    assert cache.get(b"b") is None


def test_the_longest_unused_makes_room() -> None:
    cache = TokensCache(160 + 3 * ENTRY_BYTES)
    for key in (b"a", b"b", b"c"):
        cache.put(key, tokens(3))  # 48 bytes each
    assert cache.get(b"a") is not None
    cache.put(b"d", tokens(4))
    assert [cache.get(key) is not None for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert cache.n_bytes == 48 + 48 + 64 + 3 * ENTRY_BYTES == cache.max_bytes
    assert len(cache) == 3


def test_the_same_key_again_counts_once() -> None:
    cache = TokensCache(1000)
    cache.put(b"a", tokens(2))
    cache.put(b"a", tokens(3, 5))
    assert (len(cache), cache.n_bytes) == (1, 48 + ENTRY_BYTES)
    found = cache.get(b"a")
    assert found is not None
    assert found.vectors[0, 0] == 5


@pytest.mark.parametrize("max_bytes", [0, 47 + ENTRY_BYTES])
def test_what_is_larger_than_the_cache_is_not_kept(max_bytes: int) -> None:
    cache = TokensCache(max_bytes)
    cache.put(b"a", tokens(3))
    assert (cache.get(b"a"), len(cache), cache.n_bytes) == (None, 0, 0)


def test_entries_without_tokens_are_bounded_too() -> None:
    cache = TokensCache(1000)
    for number in range(50):
        cache.put(b"%d" % number, tokens(0))
    assert 0 < cache.n_bytes <= 1000
    assert len(cache) < 50


def test_many_threads_at_once() -> None:
    cache = TokensCache(16 * 50 + 15 * ENTRY_BYTES)

    def work(seed: int) -> int:
        rng = np.random.default_rng(seed)
        wrong = 0
        for number in rng.integers(0, 30, 400).tolist():
            found = cache.get(b"%d" % number)
            wrong += found is not None and bool((found.vectors != number).any())
            cache.put(b"%d" % number, tokens(1 + number % 5, number))
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    kept = [cache.get(b"%d" % number) for number in range(30)]
    assert cache.n_bytes == sum(each.vectors.nbytes + ENTRY_BYTES for each in kept if each is not None)
    assert cache.n_bytes <= cache.max_bytes

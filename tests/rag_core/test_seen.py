"""Keys that have come by: the same answers in memory and on disk."""

from __future__ import annotations

import random

import pytest

from rag_core.seen import KeyPlaces, SeenKeys


@pytest.mark.parametrize("in_memory", [0, 3, 50, 10_000])
def test_answers_as_a_set_does(in_memory: int) -> None:
    rng, known = random.Random(7), set[bytes]()
    with SeenKeys(in_memory) as seen:
        for _ in range(500):
            key = rng.randrange(200).to_bytes(2, "big")
            assert (key in seen) == (key in known)
            assert seen.add(key) == (key not in known)
            known.add(key)
            assert len(seen) == len(known)


@pytest.mark.parametrize("in_memory", [0, 3, 50, 10_000])
def test_answers_as_a_dictionary_does(in_memory: int) -> None:
    rng, known, places = random.Random(8), dict[bytes, int](), KeyPlaces(in_memory)
    for place in range(500):
        key = rng.randrange(200).to_bytes(2, "big")
        if place % 3:
            known[key] = places[key] = place << 33
        else:
            assert places.setdefault(key, place) == (key not in known)
            known.setdefault(key, place)
        other = rng.randrange(200).to_bytes(2, "big")
        assert places.get(other) == known.get(other, -1)
        assert (other in places) == (other in known)
    assert len(places) == len(known)
    places.clear()
    assert len(places) == 0


def test_of_any_length() -> None:
    with SeenKeys(1) as seen:
        keys = [b"", b"\0", b"a", b"a\0", "d\ud800".encode("utf-8", "surrogatepass")]
        assert [seen.add(key) for key in keys * 2] == [True] * 5 + [False] * 5

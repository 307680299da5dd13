"""Keys that have come by: the same answers in memory and on disk."""

from __future__ import annotations

import random

import pytest

from rag_core.seen import SeenKeys


@pytest.mark.parametrize("in_memory", [0, 3, 50, 10_000])
def test_answers_as_a_set_does(in_memory: int) -> None:
    rng, known = random.Random(7), set[bytes]()
    with SeenKeys(in_memory) as seen:
        for _ in range(500):
            key = rng.randrange(200).to_bytes(2, "big")
            assert seen.add(key) == (key not in known)
            known.add(key)


def test_of_any_length() -> None:
    with SeenKeys(1) as seen:
        keys = [b"", b"\0", b"a", b"a\0", "d\ud800".encode("utf-8", "surrogatepass")]
        assert [seen.add(key) for key in keys * 2] == [True] * 5 + [False] * 5

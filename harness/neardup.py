"""Documents that are nearly the same text, found without comparing all pairs.

MinHash (Broder 1997) with banding: texts as sets of runs of three words; two texts are compared only where
a band of their signatures agrees, and the Jaccard index that is reported is then the exact one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rag_core.analysis import fold, words

__all__ = ["RUN_WORDS", "THRESHOLD", "near_duplicates"]

#: Jaccard index of the sets of word runs from which two texts count as nearly the same.
THRESHOLD = 0.8
RUN_WORDS = 3
#: 20 bands of 4: a pair at the threshold is found with probability 1 - (1 - 0.8⁴)²⁰ > 0.9999.
BANDS, ROWS = 20, 4
#: Of a larger group of texts that share a band, only pairs with the first are compared.
WHOLE_GROUP = 50
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)

Hashes = NDArray[np.uint64]


def near_duplicates(texts: Sequence[str]) -> dict[tuple[int, int], float]:
    """Pairs of places ``(i, j)``, i < j, of nearly equal texts → Jaccard index, 0.8 to 1. Empty texts
    have no pair."""
    runs = _runs(texts)
    random = np.random.default_rng(0)
    factor = random.integers(1, 2**63, (BANDS * ROWS, 1), np.uint64) | np.uint64(1)
    offset = random.integers(0, 2**63, (BANDS * ROWS, 1), np.uint64)
    buckets: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
    for place, found in enumerate(runs):
        if len(found):
            signature = _mixed(found * factor + offset).min(axis=1).reshape(BANDS, ROWS)
            for band in range(BANDS):
                buckets[band, signature[band].tobytes()].append(place)
    made: dict[tuple[int, int], float] = {}
    looked: set[tuple[int, int]] = set()
    for places in buckets.values():
        for pair in _pairs(places):
            if pair in looked:
                continue
            looked.add(pair)
            a, b = runs[pair[0]], runs[pair[1]]
            both = len(np.intersect1d(a, b, assume_unique=True))
            jaccard = both / (len(a) + len(b) - both)
            if jaccard >= THRESHOLD:
                made[pair] = jaccard
    return dict(sorted(made.items()))


def _pairs(places: list[int]) -> Iterator[tuple[int, int]]:
    if len(places) <= WHOLE_GROUP:
        return combinations(places, 2)
    return ((places[0], other) for other in places[1:])


def _runs(texts: Sequence[str]) -> list[Hashes]:
    """The distinct runs of three words of each text, as hashes; of a shorter text the whole."""
    numbers: dict[str, int] = {}
    made = []
    for text in texts:
        found = [numbers.setdefault(word, len(numbers) + 1) for word in words(fold(text))]
        ids = np.array(found, np.uint64)
        if 0 < len(ids) < RUN_WORDS:
            ids = np.concatenate([ids, np.zeros(RUN_WORDS - len(ids), np.uint64)])
        windows = len(ids) - RUN_WORDS + 1
        if windows < 1:
            made.append(np.zeros(0, np.uint64))
            continue
        mixed = np.zeros(windows, np.uint64)
        for shift in range(RUN_WORDS):
            mixed = _mixed(mixed ^ (ids[shift : shift + windows] * _PRIMES[shift]))
        made.append(np.unique(mixed))
    return made


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of a value moves every bit of the result."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

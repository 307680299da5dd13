from __future__ import annotations

from itertools import combinations

import numpy as np

from harness.neardup import RUN_WORDS, THRESHOLD, near_duplicates


def jaccard(a, b):
    runs = [
        {tuple(text.split()[i : i + RUN_WORDS]) for i in range(len(text.split()) - RUN_WORDS + 1)}
        for text in (a, b)
    ]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def test_all_pairs_and_no_others_are_found():
    random = np.random.default_rng(5)
    texts = []
    for _ in range(60):
        words = [f"w{n}" for n in random.integers(0, 4000, 80)]
        for edits in (0, 1, 2, 3, 5, 8):
            changed = list(words)
            for place in random.integers(0, 80, edits):
                changed[place] = "other"
            texts.append(" ".join(changed))
    expected = {
        pair: value
        for pair in combinations(range(len(texts)), 2)
        if pair[0] // 6 == pair[1] // 6 and (value := jaccard(*(texts[place] for place in pair))) >= THRESHOLD
    }
    found = near_duplicates(texts)
    assert len(expected) > 60
    assert found == expected


def test_case_and_punctuation_do_not_matter_and_empty_texts_have_no_pair():
    assert near_duplicates(["Yes, indeed!", "yes indeed", "", "", "indeed yes", "yes"]) == {(0, 1): 1.0}


def test_a_large_group_of_equal_texts_stays_cheap():
    assert len(near_duplicates(["the same text over and over"] * 400)) == 399

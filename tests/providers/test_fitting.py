"""What an 8-bit encoder is fitted on."""

from __future__ import annotations

import itertools

from providers._fitting import fitting_rows
from providers._sentences import SENTENCES


def test_texts_in_every_template_then_tokens_of_all_the_vocabulary() -> None:
    seen: list[str] = []

    def encode(text: str) -> list[int]:
        seen.append(text)
        return [1, len(text), 2]

    rows = fitting_rows(encode, range(10, 500), (1, 2), ("q: {}", "p: {}"))
    assert seen[0] == f"q: {SENTENCES[0]}"
    assert f"p: {' '.join(SENTENCES[8:16])}" in seen
    assert len(seen) == 2 * (64 + 8)
    assert rows[: len(seen)] == [[1, len(text), 2] for text in seen]
    spread = rows[len(seen) :]
    assert {(row[0], row[-1]) for row in spread} == {(1, 2)}
    assert {token for row in spread for token in row[1:-1]} == set(range(10, 500))


def test_a_large_vocabulary_is_spread_over_evenly() -> None:
    rows = fitting_rows(lambda text: [], range(999, 30522), (101, 102))
    tokens = sorted(token for row in rows for token in row[1:-1])
    assert len(tokens) == len(set(tokens)) == 512
    assert tokens[0] >= 999
    gaps = [after - before for before, after in itertools.pairwise(tokens)]
    assert max(gaps) < 3 * (30522 - 999) / 512

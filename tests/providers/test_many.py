from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers._many import Limits, batches
from providers._tokens import estimate_tokens


@given(
    st.lists(st.text(max_size=40), max_size=60),
    st.integers(1, 12),
    st.integers(0, 60),
    st.integers(0, 120),
)
def test_batches_hold_every_text_once_in_order_and_keep_to_the_limits(
    texts: list[str], most: int, tokens: int, size: int
) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    plan = list(batches(texts, Limits(most, tokens, size)))
    assert [row for batch in plan for row in batch] == list(range(len(texts)))
    for batch in plan:
        assert 1 <= len(batch) <= most
        if len(batch) > 1:
            assert not tokens or sum(estimate_tokens(texts[i]) for i in batch) <= tokens
            assert not size or sum(len(texts[i].encode()) for i in batch) <= size


@pytest.mark.parametrize(
    "limits, sizes", [(Limits(4), [4, 4, 2]), (Limits(9, 11), [3, 3, 3, 1]), (Limits(9, 0, 4), [2] * 5)]
)
def test_batches_are_filled(limits: Limits, sizes: list[int]) -> None:
    assert [len(batch) for batch in batches(["ab"] * 10, limits)] == sizes

"""Rows of tokens on which an 8-bit encoder's ranges are measured: :func:`providers._bert_rows.measure`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from providers._sentences import SENTENCES

__all__ = ["fitting_rows"]

#: Sentences of one passage; rows from all over the vocabulary, and their tokens.
PASSAGE_SENTENCES = 8
VOCABULARY_ROWS, ROW_TOKENS = 64, 8


def fitting_rows(
    encode: Callable[[str], Sequence[int]], plain: range, around: tuple[int, int],
    templates: Sequence[str] = ("{}",),
) -> list[list[int]]:  # fmt: skip
    """Token ids of :data:`providers._sentences.SENTENCES`, one by one and in passages, and of rows of tokens
    from all over the vocabulary, lest a word that no sentence holds falls outside of the ranges.

    Args:
        encode: a text's ids, special ones included.
        plain: the ids that are not special.
        around: the ids of what begins and ends a row.
        templates: what a text is put into, each in turn.
    """
    starts = range(0, len(SENTENCES), PASSAGE_SENTENCES)
    passages = [" ".join(SENTENCES[start : start + PASSAGE_SENTENCES]) for start in starts]
    texts = [*SENTENCES, *passages]
    rows = [list(encode(template.format(text))) for template in templates for text in texts]
    # multiples of the golden section of a circle lie evenly on it
    stride = round(0.618034 * len(plain))
    while math.gcd(stride, len(plain)) > 1:
        stride += 1
    spread = plain.start + np.arange(VOCABULARY_ROWS * ROW_TOKENS) * stride % len(plain)
    first, last = around
    return rows + [[first, *row, last] for row in spread.reshape(VOCABULARY_ROWS, -1).tolist()]

"""Texts for the embedding benchmarks: the same in every process."""

from __future__ import annotations

import random

from providers._bert import VOCABULARY

__all__ = ["questions", "texts"]


def texts(n: int) -> list[str]:
    """Passages of 1 to 200 words, most of them short, as in a mixed corpus."""
    choose = random.Random(1)
    words = [w for w in VOCABULARY.read_text(encoding="utf-8").split() if w.isalpha() and len(w) > 3]
    return [" ".join(choose.choices(words, k=int(200 * choose.random() ** 2) + 1)) for _ in range(n)]


def questions(passages: list[str], n: int) -> list[str]:
    """The first eight words of up to ``n`` passages that have as many."""
    return [" ".join(text.split()[:8]) for text in passages if len(text.split()) >= 8][:n]

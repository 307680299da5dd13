"""How many tokens a text has, where the service's tokenizer is not at hand: rather too many than too few."""

from __future__ import annotations

import re

__all__ = ["cut_to", "estimate_tokens"]

#: Services speak of about 4 characters a token of English; unusual words have fewer.
LETTERS_PER_TOKEN = 3
#: Two bytes of UTF-8 a token for all the rest: two digits or signs, an accented or Cyrillic letter; a Chinese
#: character is one and a half.
BYTES_PER_TOKEN = 2
_LETTERS = re.compile(r"[A-Za-z\s]+", re.ASCII)
#: What models put around a text.
SPECIAL_TOKENS = 2


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, special tokens included: a third of its ASCII letters and blanks, half of its
    other bytes, each rounded up.
    """
    rest = _LETTERS.sub("", text)
    letters = len(text) - len(rest)
    other_bytes = len(rest) if rest.isascii() else len(rest.encode("utf-8", "replace"))
    return SPECIAL_TOKENS - (-letters // LETTERS_PER_TOKEN) - (-other_bytes // BYTES_PER_TOKEN)


def cut_to(text: str, tokens: int) -> str:
    """The longest beginning of ``text`` that :func:`estimate_tokens` puts at ``tokens`` or fewer."""
    low, high = 0, min(len(text), tokens * LETTERS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]

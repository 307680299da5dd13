"""How many tokens a text has, where the service's tokenizer is not at hand: rather too many than too few."""

from __future__ import annotations

__all__ = ["cut_to", "estimate_tokens"]

#: Services speak of about 4 characters a token of English; code, numbers and names have fewer.
ASCII_PER_TOKEN = 3
#: Two bytes of UTF-8 a token: a Cyrillic or accented letter is one, a Chinese character one and a half.
BYTES_PER_TOKEN = 2
#: What models put around a text.
SPECIAL_TOKENS = 2


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, special tokens included: a third of its ASCII letters, half of its other bytes."""
    if text.isascii():
        return SPECIAL_TOKENS - (-len(text) // ASCII_PER_TOKEN)
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_chars
    return SPECIAL_TOKENS - (-ascii_chars // ASCII_PER_TOKEN) - (-other_bytes // BYTES_PER_TOKEN)


def cut_to(text: str, tokens: int) -> str:
    """The longest beginning of ``text`` that :func:`estimate_tokens` puts at ``tokens`` or fewer."""
    low, high = 0, min(len(text), tokens * ASCII_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]

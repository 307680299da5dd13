"""Texts cut into chunks that an embedder can read whole, along their headings, paragraphs and sentences.

A chunk is a window of the text, verbatim, within one section. Windows end where a paragraph ends if that
leaves them half full, else where a sentence ends, else between words; each begins with up to ``overlap``
tokens of the one before. Lengths are counted by the embedder's own tokenizer on what it will be sent, title
included.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rag_core.analysis import UNSPACED
from rag_core.errors import InvalidArgumentError
from rag_core.source import Block, Source
from rag_core.types import Document

__all__ = ["OVERSIZE", "check_limits", "chunk"]

#: Metadata of a chunk above the limit: its tokens. It is one word that cannot be split.
OVERSIZE = "oversize_tokens"
#: A title takes at most this share of a chunk; it is cut to fit.
TITLE_SHARE = 0.25
#: A cut at a paragraph is preferred where it leaves a chunk this full.
FULL_ENOUGH = 0.5
FEWEST_TOKENS = 8

CountTokens = Callable[[Sequence[str]], Sequence[int]]
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？；])\s*|\n+")
_WORD = re.compile(rf"[{UNSPACED}]\s*|[^\s{UNSPACED}]+\s*|\s+")
_PARAGRAPH = "\n\n"


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is not cut: a sentence, or a word of a long one. ``tokens``: without those of any text."""

    start: int
    end: int
    tokens: int
    begins_paragraph: bool
    is_word: bool


@dataclass(frozen=True, slots=True)
class _Window:
    start: int
    fresh: int
    end: int
    is_word: bool


def check_limits(max_tokens: int, overlap: int) -> None:
    """Raise InvalidArgumentError unless :func:`chunk` takes these."""
    if max_tokens < FEWEST_TOKENS:
        raise InvalidArgumentError(
            f"max_tokens is {max_tokens}; accepted: a whole number from {FEWEST_TOKENS}"
        )
    if not 0 <= overlap <= max_tokens // 2:
        raise InvalidArgumentError(
            f"overlap is {overlap}; accepted: 0 to half of max_tokens, {max_tokens // 2}"
        )


def chunk(
    source: Source, *, max_tokens: int = 256, overlap: int = 32, count_tokens: CountTokens
) -> list[Document]:
    """Cut ``source`` into documents, in reading order.

    Every word of the blocks is in a chunk. No chunk has more than ``max_tokens``, title included, but for a
    single word that is longer; its metadata tell its tokens under :data:`OVERSIZE`. The same source gives the
    same chunks.

    Ids are ``NAME#DIGEST``, where the digest is over section and text (``-2``, ``-3`` … for a text that the
    source repeats): a paragraph added elsewhere changes no id. Metadata: those of the source over
    ``source``, ``section`` (headings joined by `` > ``), ``chunk`` (from 0) and ``page`` where known.

    Args:
        max_tokens: from 8.
        overlap: tokens repeated, at most half of ``max_tokens``.
        count_tokens: of the embedder, see :class:`rag_core.protocols.EmbedProvider`.

    Raises:
        InvalidArgumentError: ``max_tokens`` or ``overlap`` out of range.
    """
    check_limits(max_tokens, overlap)
    title = _fitted(source.title, int(max_tokens * TITLE_SHARE), count_tokens)
    documents: list[Document] = []
    copies: Counter[str] = Counter()
    for section, group in groupby(source.blocks, key=lambda block: block.section):
        blocks = list(group)
        text = _PARAGRAPH.join(block.text for block in blocks)
        starts, at = [], 0
        for block in blocks:
            starts.append(at)
            at += len(block.text) + len(_PARAGRAPH)
        for window, tokens in _windows(text, title, starts, max_tokens, overlap, count_tokens):
            page = next(
                b.page for b, start in zip(reversed(blocks), reversed(starts)) if start <= window.fresh
            )
            body = text[window.start : window.end].strip()
            digest = hashlib.blake2b(
                f"{section}\0{body}".encode("utf-8", "replace"), digest_size=6
            ).hexdigest()
            copies[digest] += 1
            doc_id = f"{source.name}#{digest}" + (f"-{copies[digest]}" if copies[digest] > 1 else "")
            metadata = {"source": source.name, "section": section, "chunk": len(documents)}
            if page:
                metadata["page"] = page
            if tokens > max_tokens:
                metadata[OVERSIZE] = tokens
            documents.append(Document(doc_id, body, title, {**metadata, **source.metadata}))
    if documents or not source.title.strip():
        return documents
    if title != " ".join(source.title.split()):  # a long title alone is a text
        whole = Source(source.name, "", (Block(source.title),), source.metadata)
        return chunk(whole, max_tokens=max_tokens, overlap=overlap, count_tokens=count_tokens)
    digest = hashlib.blake2b(title.encode("utf-8", "replace"), digest_size=6).hexdigest()
    metadata = {"source": source.name, "section": "", "chunk": 0}
    return [Document(f"{source.name}#{digest}", "", title, {**metadata, **source.metadata})]


def _fitted(title: str, limit: int, count_tokens: CountTokens) -> str:
    """``title``, cut after a word so that it takes at most ``limit`` tokens beyond those of an empty text."""
    title = " ".join(title.split())
    if not title:
        return ""
    words = title.split(" ")
    while words:
        shown = " ".join(words)
        tokens = count_tokens([shown, ""])
        excess = tokens[0] - tokens[1] - limit
        if excess <= 0:
            return shown
        words = words[: -max(1, excess * len(words) // (2 * max(tokens[0], 1)))]
    return ""


def _windows(
    text: str, title: str, starts: Sequence[int], max_tokens: int, overlap: int, count_tokens: CountTokens
) -> list[tuple[_Window, int]]:
    """Windows over ``text`` and the tokens of each with its title."""
    if not text.strip():
        return []
    of_title, of_nothing = count_tokens([title, ""])
    spare = max_tokens - max(of_title, of_nothing)
    limit = spare
    while True:
        # Parts counted one by one do not always sum up to the whole: measure, and pack tighter where needed.
        units = _units(text, set(starts), limit, of_nothing, count_tokens)
        windows = _packed(text, units, limit, overlap)
        bodies = [text[window.start : window.end].strip() for window in windows]
        found = [(window, body) for window, body in zip(windows, bodies) if body]
        tokens = list(count_tokens([f"{title}\n{body}" if title else body for _, body in found]))
        excess = [
            n - max_tokens for (window, _), n in zip(found, tokens) if n > max_tokens and not window.is_word
        ]
        if not excess:
            return [(window, n) for (window, _), n in zip(found, tokens)]
        limit = max(0, min(limit - 1, limit - max(excess)))


def _units(
    text: str, starts: set[int], limit: int, of_nothing: int, count_tokens: CountTokens
) -> list[_Unit]:
    cuts = sorted({0, len(text), *starts, *(match.end() for match in _SENTENCE_END.finditer(text))})
    spans = list(pairwise(cuts))
    counts = count_tokens([text[a:b] for a, b in spans])
    units: list[_Unit] = []
    for (start, end), count in zip(spans, counts):
        tokens = max(1, count - of_nothing)
        if tokens <= limit:
            units.append(_Unit(start, end, tokens, start in starts, False))
            continue
        words = [(start + word.start(), start + word.end()) for word in _WORD.finditer(text[start:end])]
        each = count_tokens([text[a:b] for a, b in words])
        units += [_Unit(a, b, max(1, n - of_nothing), a in starts, True) for (a, b), n in zip(words, each)]
    return units


def _packed(text: str, units: Sequence[_Unit], limit: int, overlap: int) -> list[_Window]:
    windows: list[_Window] = []
    first = 0
    while first < len(units):
        start, used = _begin(text, units, first, limit, overlap)
        end, before = first, used
        fill = []
        while end < len(units) and (end == first or used + units[end].tokens <= limit):
            used += units[end].tokens
            fill.append(used)
            end += 1
        if end < len(units):
            for cut in range(end, first + 1, -1):
                if units[cut].begins_paragraph and fill[cut - first - 1] - before >= FULL_ENOUGH * limit:
                    end = cut
                    break
        alone = end == first + 1 and units[first].is_word and start == units[first].start
        windows.append(_Window(start, units[first].start, units[end - 1].end, alone))
        first = end
    return windows


def _begin(text: str, units: Sequence[_Unit], first: int, limit: int, overlap: int) -> tuple[int, int]:
    """Where a window whose own text begins with unit ``first`` starts, and the tokens up to there."""
    room = min(overlap, limit - units[first].tokens)
    at, used = first, 0
    while at > 0 and used + units[at - 1].tokens <= room:
        at -= 1
        used += units[at].tokens
    if used or not first or room <= 0:
        return units[at].start, used
    # the sentence before is longer than the overlap: its last words
    last = units[first - 1]
    words = [last.start + word.start() for word in _WORD.finditer(text[last.start : last.end])]
    each = -(-last.tokens // len(words))
    count = room // each
    return (words[-count], count * each) if count else (units[first].start, 0)

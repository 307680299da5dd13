"""The languages of a data set that does not name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.formats.folders import Parts
from rag_core.analysis import STEMMERS, detect_language

__all__ = ["language_shares", "with_languages"]

#: Texts looked at, spread over the whole.
SAMPLE = 400
#: A language counts from this share of the texts whose language can be told: below are mostly short texts
#: that read alike in two languages.
LEAST_SHARE = 0.1
CANDIDATES = tuple(STEMMERS)


def language_shares(texts: Sequence[str]) -> dict[str, float]:
    """Language → share of the texts, most frequent first; ``""`` for those that cannot be told.

    Told by function words and letters, of :data:`SAMPLE` texts, among the languages that BM25 can stem.
    """
    taken = (
        [texts[number * len(texts) // SAMPLE] for number in range(SAMPLE)] if len(texts) > SAMPLE else texts
    )
    counted = Counter(detect_language(text, CANDIDATES, "") for text in taken if text.strip())
    total = sum(counted.values())
    return {language: count / total for language, count in counted.most_common()}


def with_languages(parts: Parts) -> Parts:
    """``parts`` with the languages of documents and queries filled in, where nothing names them."""
    about = parts.description
    if about.languages:
        return parts
    found = _chief(document.indexed_text for document in parts.documents)
    asked = _chief(query.text for query in parts.queries)
    if not found:
        return parts
    told = ", ".join(found) if set(asked) <= set(found) else f"{', '.join(found)}; queries {', '.join(asked)}"
    return replace(
        parts,
        description=replace(
            about,
            languages=tuple(dict.fromkeys(found + asked)),
            query_languages=() if set(asked) <= set(found) else asked,
        ),
        notes=(*parts.notes, f"languages told from the texts, which BM25 stems by: {told}"),
    )


def _chief(texts: Iterable[str]) -> tuple[str, ...]:
    shares = language_shares(list(texts))
    told = sum(share for language, share in shares.items() if language)
    return tuple(language for language, share in shares.items() if language and share >= LEAST_SHARE * told)

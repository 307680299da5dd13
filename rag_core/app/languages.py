"""Which languages an index holds, as far as a reranker's user needs to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice

from rag_core.types import Document

__all__ = ["languages_of"]

#: Documents looked at, and the share of them from which a language counts.
SAMPLE, SHARE = 200, 0.1


def languages_of(documents: Collection[Document]) -> list[str]:
    """Codes of the languages that are not rare among ``documents``, the commonest first.

    A document's ``lang`` in its metadata counts; without it, what its words tell. Documents that tell nothing
    are left out.
    """
    step = max(1, len(documents) // SAMPLE)
    found = Counter(map(_language, islice(documents, 0, None, step)))
    found.pop("", None)
    return [language for language, count in found.most_common() if count >= SHARE * found.total()]


def _language(document: Document) -> str:
    told = document.metadata.get("lang")
    if isinstance(told, str) and told:
        return told.split("-")[0].casefold()
    from rag_core.analysis import STEMMERS, detect_language  # not needed where metadata tell

    return detect_language(document.indexed_text[:2000], list(STEMMERS), "")

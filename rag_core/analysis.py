"""From text to index terms: folding, segmentation by script, stop words, stemming.

Folding is NFKC and case folding, so that composed and decomposed accents, full-width letters and
capitals agree; accents are kept. The dotted capital I of Turkish folds to a plain i, and so does the
dotless ı: "İstanbul", "istanbul", "Işık" and "ışık" are found in either spelling.

Words are runs of letters, digits and combining marks. Runs of scripts that are written without blanks
(Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) become overlapping pairs of characters; a document
is indexed under its single characters too, so that a query of one character finds it.

Only what is indexed is folded: the text that an embedder receives is never altered here.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_core.errors import InvalidArgumentError, MissingExtraError
from rag_core.stopwords import STOP_WORDS

__all__ = ["AnalysedTexts", "Analyser", "detect_language", "fold"]

#: ISO 639-1 code -> Snowball algorithm
STEMMERS: Mapping[str, str] = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "tr": "turkish",
}  # fmt: skip
#: Folded letters and marks that tell a language from those that do not use them.
TELLING_LETTERS: Mapping[str, str] = {
    "ar": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "da": "æøå",
    "de": "äöü",
    "el": "αβγδεζηθικλμνξοπρστυφχψω",
    "es": "ñ¿¡",
    "fi": "äö",
    "fr": "çàâêôèùûëïîœ",
    "hu": "öőüű",
    "it": "àèìòù",
    "no": "æøå",
    "pt": "ãõçàâêô",
    "ro": "ăâîșț",
    "ru": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "sv": "åäö",
    "tr": "çğöşü",
}
#: Ranges of the scripts that are written without blanks (and Hangul, whose words glue particles on).
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af"
)
#: Words of a language whose terms are remembered; about 250 bytes each.
KEPT_WORDS = 1 << 16
#: A share of evidence and the languages that get it.
_Piece = tuple[int, tuple[str, ...]]
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
_UNSPACED_START = re.compile(f"[{UNSPACED}]")


class AnalysedTexts:
    """Terms of many texts as integers.

    Attributes:
        terms: distinct terms, in order of first occurrence.
        ids: int32, the term numbers of all texts, one text after the other.
        lengths: int32, terms per text.
    """

    __slots__ = ("ids", "lengths", "terms")

    def __init__(self, terms: list[str], ids: NDArray[np.int32], lengths: NDArray[np.int32]) -> None:
        self.terms, self.ids, self.lengths = terms, ids, lengths


class Analyser:
    """Turns texts into terms, each text by the rules of its own language.

    Args:
        languages: ISO 639-1 codes; the first is taken for texts whose language cannot be told.
        stem: reduce words to their Snowball stem.
        stop: drop function words.
    """

    def __init__(self, languages: Sequence[str] = (), *, stem: bool = True, stop: bool = True) -> None:
        self.languages = tuple(dict.fromkeys(languages))
        self.stem, self.stop = stem, stop
        self._as_they_are = not (stem or stop)  # are words; those without blanks between aside
        self._known: dict[tuple[str, bool], dict[str, tuple[str, ...]]] = {}

    @classmethod
    def for_languages(cls, languages: Sequence[str], *, stem: bool = True, stop: bool = True) -> Analyser:
        """An analyser for texts in ``languages``; English where none is given."""
        return cls(languages or ("en",), stem=stem, stop=stop)

    @classmethod
    def raw(cls) -> Analyser:
        """Folding and segmentation alone, the same for every language."""
        return cls((), stem=False, stop=False)

    @property
    def name(self) -> str:
        """Everything that changes a term, in one string that results record."""
        languages = ",".join(self.languages)
        parts = ["nfkc-casefold", "script-segments"]
        if self.stop:
            parts.append(f"stop-words({languages})")
        if self.stem:
            parts.append(f"snowball({languages})")
        return "+".join(parts)

    def config(self) -> dict[str, Any]:
        """What :meth:`from_config` makes an equal analyser from."""
        return {"languages": list(self.languages), "stem": self.stem, "stop": self.stop}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Analyser:
        """The inverse of :meth:`config`."""
        return cls(config["languages"], stem=config["stem"], stop=config["stop"])

    def language_of(self, text: str, language: str | None = None) -> str:
        """``language`` if this analyser knows it, else the language told from ``text``."""
        folded = fold(text)
        return self._told(folded, words(folded), language)

    def _told(self, folded: str, found: list[str], language: str | None) -> str:
        if language in self.languages:
            return str(language)
        if len(self.languages) < 2:
            return self.languages[0] if self.languages else ""
        return _detect(folded, found, self.languages, self.languages[0])

    def analyse(self, text: str, language: str | None = None, *, as_query: bool = False) -> list[str]:
        """The terms of ``text`` in order.

        ``as_query`` leaves out the single characters that unspaced scripts are indexed under.
        """
        if self._as_they_are and text.isascii():
            return _ASCII_WORD.findall(text.lower())
        folded = fold(text)
        found = words(folded)
        known = self._table(self._told(folded, found, language), as_query)
        return [*chain.from_iterable(map(known.__getitem__, found))]

    def analyse_many(
        self, texts: Iterable[str], languages: Iterable[str | None] | None = None
    ) -> AnalysedTexts:
        """The terms of many texts; every distinct word is stemmed once per language."""
        texts = list(texts)
        given = [None] * len(texts) if languages is None else list(languages)
        distinct: list[tuple[str, ...]] = []  # word number -> its terms
        numberings: dict[str, _WordNumbers] = {}
        n_words = np.zeros(len(texts), np.int64)
        parts = [np.zeros(0, np.int32)]
        for position, (text, language) in enumerate(zip(texts, given)):
            folded = fold(text)
            found = words(folded)
            chosen = self._told(folded, found, language)
            numbering = numberings.get(chosen)
            if numbering is None:
                numbering = numberings[chosen] = _WordNumbers(self._table(chosen, False), distinct)
            n_words[position] = len(found)
            parts.append(np.fromiter(map(numbering.__getitem__, found), np.int32, len(found)))
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(term, len(numbers)) for terms in distinct for term in terms]
        sizes = np.fromiter(map(len, distinct), np.int64, len(distinct))
        return AnalysedTexts(
            list(numbers), *_expand(np.concatenate(parts), n_words, sizes, np.array(flat, np.int32))
        )

    def content_words(self, text: str, language: str | None = None) -> frozenset[str]:
        """The distinct terms of ``text``: what two texts share is the intersection of theirs."""
        return frozenset(self.analyse(text, language, as_query=True))

    def _table(self, language: str, as_query: bool) -> dict[str, tuple[str, ...]]:
        key = (language, as_query)
        if key not in self._known:
            stop = STOP_WORDS.get(language, frozenset()) if self.stop else frozenset()
            stem = _stemmer(language) if self.stem and language in STEMMERS else None
            self._known[key] = _WordTable(stop, stem, as_query)
        return self._known[key]

    def __repr__(self) -> str:
        return f"Analyser({self.name})"


class _WordTable(dict[str, tuple[str, ...]]):
    """Word -> terms, worked out when first asked for."""

    def __init__(self, stop: frozenset[str], stem: Callable[[str], str] | None, as_query: bool) -> None:
        super().__init__()
        self._stop, self._stem, self._as_query = stop, stem, as_query

    def __missing__(self, word: str) -> tuple[str, ...]:
        if not word.isascii():
            terms = tuple(self._runs(word))
        elif word in self._stop:
            terms = ()
        else:
            terms = (self._stem(word) if self._stem else word,)
        if len(self) >= KEPT_WORDS:  # else it would grow with all that is ever indexed or asked
            self.clear()
        self[word] = terms
        return terms

    def _runs(self, word: str) -> Iterator[str]:
        for run in _UNSPACED_RUN.findall(word):
            if _UNSPACED_START.match(run):
                yield from _pairs(run, self._as_query)
            elif run not in self._stop:
                yield self._stem(run) if self._stem else run


class _WordNumbers(dict[str, int]):
    """Word -> number, given out when first asked for; ``distinct`` gets the terms of each numbered word."""

    def __init__(self, known: dict[str, tuple[str, ...]], distinct: list[tuple[str, ...]]) -> None:
        super().__init__()
        self._known, self._distinct = known, distinct

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self._distinct)
        self._distinct.append(self._known[word])
        return number


def _expand(
    words_of_all: NDArray[np.int32],
    n_words: NDArray[np.int64],
    sizes: NDArray[np.int64],
    flat: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Term numbers and lengths of texts given as word numbers.

    Word w stands for ``sizes[w]`` terms, which lie one word after the other in ``flat``.
    """
    each = sizes[words_of_all]
    ends = np.zeros(len(words_of_all) + 1, np.int64)
    np.cumsum(each, out=ends[1:])
    last = np.cumsum(n_words)
    lengths = ends[last] - ends[last - n_words]
    starts = np.cumsum(sizes) - sizes
    index = np.repeat(starts[words_of_all] - ends[:-1], each)
    index += np.arange(len(index))
    return flat[index], lengths.astype(np.int32)


def _pairs(run: str, as_query: bool) -> list[str]:
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    return pairs if as_query and pairs else [*run, *pairs]


def fold(text: str) -> str:
    """``text`` as words are compared: NFKC, case folded, every Turkish i a plain one."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("i\u0307", "i").replace("\u0131", "i")


def words(folded: str) -> list[str]:
    """Runs of letters, digits and combining marks of a folded text."""
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    return _word_pattern().findall(folded)


_ASCII_WORD = re.compile(r"[a-z0-9]+")


@lru_cache(maxsize=1)
def _word_pattern() -> re.Pattern[str]:
    # re has no \p{M}, and \w leaves combining marks out: Hindi and Thai words would break at each vowel
    marks = re.escape(
        "".join(c for c in map(chr, range(0x300, sys.maxunicode)) if unicodedata.category(c)[0] == "M")
    )
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}])*")


@lru_cache(maxsize=len(STEMMERS))
def _stemmer(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as error:
        raise MissingExtraError("the analyser", "snowballstemmer", "default") from error
    return snowballstemmer.stemmer(STEMMERS[language]).stemWord  # type: ignore[no-any-return]


def detect_language(text: str, languages: Sequence[str], default: str) -> str:
    """Which of ``languages`` ``text`` is written in, told by function words and letters.

    A function word, or a kind of telling letter present, that n of the languages share counts 1/n for
    each of them. Without evidence, or with equal evidence, the answer is ``default``.

    Raises:
        InvalidArgumentError: ``languages`` is empty.
    """
    if not languages:
        raise InvalidArgumentError("detect_language: languages is empty; accepted: one or more codes")
    folded = fold(text)
    return _detect(folded, words(folded), tuple(languages), default)


def _detect(folded: str, found: list[str], languages: tuple[str, ...], default: str) -> str:
    of_words, of_letters = _evidence(languages)
    scores = dict.fromkeys(languages, 0)
    pieces = [of_words[word] for word in found if word in of_words]
    if not folded.isascii():
        pieces += [of_letters[letter] for letter in set(folded) if letter in of_letters]
    for share, having in pieces:
        for language in having:
            scores[language] += share
    best = max(scores.values())
    leaders = [language for language, score in scores.items() if score == best]
    return leaders[0] if best > 0 and len(leaders) == 1 else default


@lru_cache(maxsize=32)
def _evidence(languages: tuple[str, ...]) -> tuple[dict[str, _Piece], dict[str, _Piece]]:
    """What words and what letters tell: a share, and the languages that get it."""
    one = math.lcm(*range(1, len(languages) + 1))  # shares as whole numbers: ties stay exact
    tables: list[dict[str, _Piece]] = []
    for source in (STOP_WORDS, TELLING_LETTERS):
        users: dict[str, list[str]] = {}
        for language in dict.fromkeys(languages):
            for item in source.get(language, ()):
                users.setdefault(item, []).append(language)
        tables.append({item: (one // len(having), tuple(having)) for item, having in users.items()})
    return tables[0], tables[1]

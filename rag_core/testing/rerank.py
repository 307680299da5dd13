"""What every reranker must satisfy."""

from __future__ import annotations

from typing import ClassVar, get_args

from rag_core.protocols import Reranker, Target
from rag_core.secrets import redact

__all__ = ["RerankerConformance"]

_QUERY = "when does the library open on Monday"
_CANDIDATES = [
    "the harbour is closed to ships in winter",
    "the library opens at nine on Monday and closes at six",
    "pay your water bill at the council office",
    "the library",
    "",
    "on Monday the market opens early",
]


class RerankerConformance:
    """Subclass it, name the class ``Test…``, and return a reranker from :meth:`make`.

    Attributes:
        tolerance: largest difference between the score of a pair alone and in a list.
    """

    tolerance: ClassVar[float] = 1e-4
    _made: ClassVar[Reranker | None] = None

    def make(self) -> Reranker:
        """A reranker; called once for the class."""
        raise NotImplementedError(f"{type(self).__name__}: write make(self) and return the reranker")

    def reranker(self) -> Reranker:
        """The reranker that :meth:`make` gave."""
        kind = type(self)
        if kind.__dict__.get("_made") is None:
            kind._made = self.make()
        made = kind._made
        assert made is not None
        return made

    def test_satisfies_the_protocol(self) -> None:
        """All members, with values of the right kind."""
        reranker = self.reranker()
        assert isinstance(reranker, Reranker)
        assert reranker.name
        assert reranker.model
        assert reranker.target in get_args(Target)
        assert reranker.fingerprint
        assert reranker.fingerprint == self.reranker().fingerprint
        assert reranker.is_available() is True

    def test_one_number_per_candidate(self) -> None:
        """Plain floats, none of them NaN."""
        scores = self.reranker().rerank(_QUERY, _CANDIDATES)
        assert isinstance(scores, list)
        assert len(scores) == len(_CANDIDATES)
        assert all(type(score) is float and score == score for score in scores)

    def test_no_candidate_and_one(self) -> None:
        """``[]`` gives ``[]``."""
        assert self.reranker().rerank(_QUERY, []) == []
        assert len(self.reranker().rerank(_QUERY, _CANDIDATES[:1])) == 1

    def test_each_score_belongs_to_its_candidate(self) -> None:
        """A pair scored alone scores as in the list, in any order of the list."""
        reranker = self.reranker()
        alone = [reranker.rerank(_QUERY, [text])[0] for text in _CANDIDATES]
        self._close(reranker.rerank(_QUERY, _CANDIDATES), alone)
        self._close(reranker.rerank(_QUERY, _CANDIDATES[::-1]), alone[::-1])

    def test_duplicates_keep_their_places(self) -> None:
        """Equal candidates score equally, and none is dropped."""
        scores = self.reranker().rerank(_QUERY, [_CANDIDATES[1], _CANDIDATES[0], _CANDIDATES[1]])
        assert len(scores) == 3
        self._close(scores[:1], scores[2:])

    def test_a_long_candidate_and_a_long_query(self) -> None:
        """Neither raises."""
        long = "the council meets in the old town hall " * 500
        assert len(self.reranker().rerank(_QUERY, [long, "short"])) == 2
        assert len(self.reranker().rerank(long, ["short", "candidates"])) == 2

    def test_unusual_texts(self) -> None:
        """NUL, lone surrogates, CJK, emoji, blanks."""
        texts = ["be\0fore", "lone \ud800 surrogate", "图书馆", "👩‍👩‍👧", "", "  "]
        assert len(self.reranker().rerank("图书馆 \ud800", texts)) == len(texts)
        assert len(self.reranker().rerank("", texts)) == len(texts)

    def test_repr_holds_no_secret(self) -> None:
        """The value of an environment variable named like a key never appears."""
        shown = repr(self.reranker())
        assert redact(shown) == shown

    def _close(self, left: list[float], right: list[float]) -> None:
        assert len(left) == len(right)
        worst = max(abs(a - b) for a, b in zip(left, right))
        assert worst <= self.tolerance, f"scores differ by {worst}"

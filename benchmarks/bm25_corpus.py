"""The made-up corpus of the BM25 benchmark: Zipfian words, and queries drawn from its documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VOCABULARY, WORDS_A_DOCUMENT, TERMS_A_QUERY = 100_000, 100, 5


@dataclass(frozen=True, slots=True)
class Corpus:
    """Term numbers of all documents, one after the other, and the words they stand for."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int32]
    words: list[str]

    @classmethod
    def make(cls, n_documents: int, seed: int = 0) -> Corpus:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(WORDS_A_DOCUMENT // 2, WORDS_A_DOCUMENT * 3 // 2, n_documents).astype(np.int32)
        share = 1 / np.arange(1, VOCABULARY + 1)
        ids = np.searchsorted(np.cumsum(share / share.sum()), rng.random(int(lengths.sum())))
        return cls(np.minimum(ids, VOCABULARY - 1), lengths, [f"w{i}" for i in range(VOCABULARY)])

    def __len__(self) -> int:
        return len(self.lengths)

    def tokens(self) -> Iterator[list[str]]:
        ends = np.cumsum(self.lengths)
        for end, n in zip(ends, self.lengths):
            yield [self.words[i] for i in self.ids[end - n : end].tolist()]

    def queries(self, count: int, seed: int = 1) -> list[str]:
        """Texts of distinct words of one document each, without the hundred most common (stop words)."""
        rng = np.random.default_rng(seed)
        ends = np.cumsum(self.lengths)
        made: list[str] = []
        while len(made) < count:
            document = int(rng.integers(len(self)))
            own = np.unique(self.ids[ends[document] - self.lengths[document] : ends[document]])
            own = own[own >= 100]
            if own.size >= TERMS_A_QUERY:
                made.append(" ".join(self.words[i] for i in rng.choice(own, TERMS_A_QUERY, replace=False)))
        return made

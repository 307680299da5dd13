"""Sentence vectors of a local transformer, whichever library computes it: tokens, windows, order, counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from providers._rows import Row, RowRunner
from rag_core.embedding import BaseEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Target, Vectors

__all__ = ["LONG", "TransformerEmbedder"]

#: What becomes of a text longer than the window: its end is lost, or it is read in overlapping windows
#: whose vectors are averaged by their number of tokens.
LONG = ("truncate", "windows")
#: Text that tells tokenizers apart: case, accents, digits, joined words, scripts, rare characters, blanks.
PROBE = """The QUICK brown fox's 1,234.56 jump-overs; e-mail: someone@example.org (2026-11-30T03:17Z)
naïve façade coöperate Straße œuvre ÇĞİŞ ação señor pingüino À À ﬁ ½ ² ™ €
Донаудампфшифф ελληνικά עברית العربية हिन्दी ไทย 中文分词 日本語のテキスト 한국어
def f(x): return x**2  # comment\ttab  two  blanks … — “quotes” 👩‍💻 🇧🇷 \u200b \ufffd
antidisestablishmentarianism internationalisation xqzjv [CLS] [SEP] <s> </s> query: passage:"""


class TransformerEmbedder(BaseEmbedder):
    """Texts to rows of token ids, rows through a :class:`RowRunner` whose call answers sentence vectors.

    Attributes:
        runtime: library, version, threads, device.
        batch_size: rows of one call of the model; 0, the default, groups by a budget of tokens.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        tokenizer: Any,
        runner: RowRunner,
        runtime: dict[str, Any],
        target: Target = "cpu",
        long: str = LONG[0],
    ) -> None:
        """``tokenizer``: a ``tokenizers.Tokenizer`` that adds special tokens and neither pads nor cuts.

        ``long`` is one of :data:`LONG`; the fingerprint's pooling must tell windows apart.
        """
        super().__init__(fingerprint)
        self.target, self.runtime = target, runtime
        self._tokenizer, self._runner, self._in_windows = tokenizer, runner, long == LONG[1]

    @property
    def batch_size(self) -> int:
        """Rows of one call of the model; 0 for a budget of tokens."""
        return self._runner.batch_size

    @batch_size.setter
    def batch_size(self, rows: int) -> None:
        self._runner.batch_size = rows

    def tokenizer_digest(self) -> str:
        """16 hexadecimal digits over the size of the vocabulary and the ids of :data:`PROBE`.

        Not over the vocabulary itself: writing one out takes more memory than many models, and the peak is a
        figure that is compared.
        """
        size = getattr(self._tokenizer, "get_vocab_size", lambda: 0)()
        ids = [list(self._tokenizer.encode(line).ids) for line in PROBE.splitlines()]
        return hashlib.sha256(repr((size, ids)).encode()).hexdigest()[:16]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens as a document, special tokens included, before truncation; 0 for a blank."""
        whole = self._tokenizer.encode_batch([self.prepare(text, "document") for text in texts])
        return [len(each.ids) if text.strip() else 0 for text, each in zip(texts, whole)]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        # the batch call spreads over threads; for one text its set-up costs more than it saves
        made = [self._tokenizer.encode(texts[0])] if len(texts) == 1 else self._tokenizer.encode_batch(texts)
        ids = [list(each.ids) for each in made]
        parts = [self._parts(row, role) for row in ids]
        rows = [Row(part, [0] * len(part)) for whole in parts for part in whole]
        self.stats.tokens += sum(len(row.ids) for row in rows)
        answers = self._runner.run(rows)
        if len(rows) == len(texts):
            return np.stack(answers)
        vectors, start = np.empty((len(texts), self.dim), np.float32), 0
        for i, whole in enumerate(parts):
            found = np.stack(answers[start : start + len(whole)])
            vectors[i] = np.average(found, axis=0, weights=[len(part) for part in whole])
            start += len(whole)
        return vectors

    def _parts(self, row: list[int], role: Role) -> list[list[int]]:
        """The rows to compute for one text: one, or its windows."""
        if len(row) <= self.max_tokens or not self.max_tokens:
            return [row]
        if not self._in_windows:
            self.stats.truncated += 1
            return [[*row[: self.max_tokens - 1], row[-1]]]
        head = self._head(row, role)
        body, room = row[head:-1], self.max_tokens - head - 1
        step = max(1, room - room // 4)
        count = 1 + -(-(len(body) - room) // step)
        # spread evenly, so that the last window is as long as the others
        starts = [round(i * (len(body) - room) / (count - 1)) for i in range(count)]
        return [[*row[:head], *body[start : start + room], row[-1]] for start in starts]

    def _head(self, row: list[int], role: Role) -> int:
        """How many tokens at the beginning every window repeats: the opening one and the role's prompt."""
        empty = list(self._tokenizer.encode(self.prepare("", role)).ids)[:-1]
        head = 0
        while head < min(len(empty), len(row) - 2) and empty[head] == row[head]:
            head += 1
        return min(head, self.max_tokens // 2)

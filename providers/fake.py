"""Deterministic providers without a model: the baseline's vector leg, and stand-ins in tests."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from providers._common import choice, seconds
from rag_core.embedding import BaseEmbedder
from rag_core.errors import ProviderError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Target, Vectors
from rag_core.registry import Spec

__all__ = ["FakeEmbedder", "OverlapReranker", "load", "load_overlap"]

REVISION = "1"
#: Texts kept in ``FakeEmbedder.sent`` and sizes kept in ``FakeEmbedder.batches``.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Sibling:
    """How a real provider treats texts: role templates, texts a call, tokens a text (0: no limit)."""

    query: str = "{text}"
    document: str = "{text}"
    max_batch: int = 0
    max_tokens: int = 0


#: Role templates and limits of the real ones; a test holds them to what those say of themselves.
SIBLINGS: dict[str, Sibling] = {
    "fake": Sibling(),
    "fake-bge-m3": Sibling(max_tokens=8192),
    "fake-cohere": Sibling("input_type=search_query", "input_type=search_document", 96, 512),
    "fake-e5-large": Sibling("query: {text}", "passage: {text}", max_tokens=512),
    "fake-e5-small": Sibling("query: {text}", "passage: {text}", max_tokens=512),
    "fake-fastembed": Sibling(
        "Represent this sentence for searching relevant passages: {text}", max_tokens=512
    ),
    "fake-jina": Sibling("task=retrieval.query", "task=retrieval.passage", 128, 8192),
    "fake-minilm": Sibling(max_tokens=256),
    "fake-ollama": Sibling("search_query: {text}", "search_document: {text}", max_tokens=2048),
    "fake-onnx": Sibling(max_tokens=512),
    "fake-openai": Sibling(max_batch=2048, max_tokens=8192),
    "fake-st": Sibling(max_tokens=512),
    "fake-use-multilingual": Sibling(max_tokens=2048),
    "fake-voyage": Sibling("input_type=query", "input_type=document", 1000, 32_000),
}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Delays in seconds, and when to fail; for tests of whatever measures or wraps a provider."""

    first_s: float = 0.0
    call_s: float = 0.0
    lazy_s: float = 0.0
    fail: str = ""
    fail_role: str = ""


class FakeEmbedder(BaseEmbedder):
    """Hash vectors: the same text, model and role give the same bits on every platform, and nothing more.

    Attributes:
        sent: ``(role, text as sent)`` of the last texts, templates applied.
        batches: number of texts in each of the last calls, after splitting by the sibling's limit.
        runtime: empty; a hash has no runtime to record.
    """

    def __init__(
        self, fingerprint: Fingerprint, max_batch: int = 0, behaviour: Behaviour | None = None
    ) -> None:
        super().__init__(fingerprint)
        self.max_batch = max_batch
        self.sent: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)
        self.batches: deque[int] = deque(maxlen=REMEMBERED)
        self.runtime: dict[str, Any] = {}
        self._behaviour = behaviour or Behaviour()
        self._first = True
        self._lock = threading.Lock()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words, separated by white space."""
        return [len(text.split()) for text in texts]

    def _encode(self, texts: list[str], role: Role) -> Any:
        rows = [self._hash(text, role) for text in texts]
        size = self.max_batch or len(texts)
        for start in range(0, len(texts), size):
            self._call(texts[start : start + size], role)
        vectors = np.array(rows, np.float32)
        return _Lazy(vectors, self._behaviour.lazy_s) if self._behaviour.lazy_s else vectors

    def _call(self, texts: list[str], role: Role) -> None:
        """What one request would do: wait, record, fail."""
        with self._lock:
            first, self._first = self._first, False
            self.sent.extend((role, text) for text in texts)
            self.batches.append(len(texts))
        time.sleep(self._behaviour.call_s + (self._behaviour.first_s if first else 0.0))
        if self._behaviour.fail_role == role:
            raise ProviderError(f"{self.name}: asked to fail for role {role!r} (option fail_role)")
        for position, text in enumerate(texts):
            if self._behaviour.fail and self._behaviour.fail in text:
                raise ProviderError(
                    f"{self.name}: text {position} of {len(texts)} holds {self._behaviour.fail!r}"
                )

    def _hash(self, text: str, role: Role) -> Vectors:
        """Odd whole numbers from -255 to 255, one a byte of a SHAKE-256 stream.

        Sums of their squares are exact in float64 whatever the order, so that the normalised row has
        the same bits everywhere.
        """
        words = text.split()
        self.stats.tokens += len(words)
        if self.max_tokens and len(words) > self.max_tokens:
            self.stats.truncated += 1
            text = " ".join(words[: self.max_tokens])
        template = self.fingerprint.query_template if role == "query" else self.fingerprint.document_template
        parameter = "" if "{text}" in template else template
        seed = "\0".join((self.name, self.model, parameter, text)).encode()
        stream = np.frombuffer(hashlib.shake_256(seed).digest(self.dim), np.uint8)
        return stream.astype(np.float32) * 2 - 255


class _Lazy:
    """An array that takes its time to reach the host, as one on a device does."""

    def __init__(self, vectors: Vectors, delay_s: float) -> None:
        self._vectors, self._delay_s = vectors, delay_s

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vectors:
        time.sleep(self._delay_s)
        return np.array(self._vectors, dtype=dtype or np.float32)


def load(
    spec: Spec,
    *,
    load_s: str | float = 0.0,
    first_s: str | float = 0.0,
    call_s: str | float = 0.0,
    lazy_s: str | float = 0.0,
    fail: str = "",
    fail_role: str = "",
) -> FakeEmbedder:
    """A fake embedder.

    Args:
        spec: ``fake`` or one of its siblings.
        load_s: seconds that loading takes.
        first_s: further seconds of the first call.
        call_s: seconds of every call.
        lazy_s: seconds until the answer has reached the host.
        fail: a call that holds a text with this in it raises ProviderError.
        fail_role: every call of this role raises ProviderError.

    Raises:
        InvalidArgumentError: an option is outside what is accepted.
    """
    load_delay_s = seconds(spec.name, "load_s", load_s)
    behaviour = Behaviour(
        first_s=seconds(spec.name, "first_s", first_s),
        call_s=seconds(spec.name, "call_s", call_s),
        lazy_s=seconds(spec.name, "lazy_s", lazy_s),
        fail=fail,
        fail_role=choice(spec.name, "fail_role", fail_role, ("", *get_args(Role))),
    )
    sibling = SIBLINGS.get(spec.name, Sibling())
    time.sleep(load_delay_s)
    fingerprint = Fingerprint(
        provider=spec.name,
        model=spec.model,
        revision=REVISION,
        dim=spec.dim,
        dtype="fp32",
        pooling="hash",
        query_template=sibling.query,
        document_template=sibling.document,
        max_tokens=sibling.max_tokens,
    )
    return FakeEmbedder(fingerprint, sibling.max_batch, behaviour)


class OverlapReranker:
    """Scores a candidate by the share of the query's distinct words that it holds, 0 to 1."""

    name = "fake-overlap"
    model = "word-overlap"
    target: Target = "cpu"
    fingerprint = "fake-overlap/1"

    def is_available(self) -> bool:
        """True."""
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """One share per candidate, in input order; 0.0 for all when the query has no word."""
        wanted = _words(query)
        return [len(wanted & _words(text)) / len(wanted) if wanted else 0.0 for text in candidates]

    def __repr__(self) -> str:
        return "OverlapReranker()"


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def load_overlap(spec: Spec) -> OverlapReranker:
    """The reranker; it takes no options."""
    return OverlapReranker()

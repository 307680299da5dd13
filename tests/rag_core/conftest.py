"""Providers that fail when they are told to, and a clock that moves when it is told to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rag_core.embedding import BaseEmbedder
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Target


class Scripted(BaseEmbedder):
    """Vectors that depend on model, role and text alone; ``fail`` raises in their place.

    ``fail(texts)`` is called before every answer and returns an error or None.
    """

    def __init__(self, name: str, model: str, dim: int, target: Target, is_local: bool) -> None:
        super().__init__(
            Fingerprint(
                name, model, "1", dim, "fp32", "test", query_template="q {text}", document_template="d {text}"
            )
        )
        self.target, self.is_local = target, is_local
        self.fail: Callable[[Sequence[str]], BaseException | None] = lambda texts: None
        self.asked: list[list[str]] = []
        self.closed = 0

    def down(self, error: BaseException | None) -> None:
        self.fail = lambda texts: error

    def close(self) -> None:
        self.closed += 1

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) + 1 for text in texts]

    def _encode(self, texts: list[str], role: Role) -> Any:
        self.asked.append(list(texts))
        if (error := self.fail(texts)) is not None:
            raise error
        self.stats.tokens += sum(self.count_tokens(texts))
        return np.array([self._row(text) for text in texts], np.float32)

    def _row(self, text: str) -> np.ndarray:
        digest = hashlib.shake_256(f"{self.model}\0{text}".encode()).digest(self.dim)
        return np.frombuffer(digest, np.uint8).astype(np.float32) * 2 - 255


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def scripted() -> Callable[..., Scripted]:
    """``scripted(name="a", model="", dim=8, target="api", is_local=False)``."""

    def make(
        name: str = "a", model: str = "", dim: int = 8, target: Target = "api", is_local: bool = False
    ) -> Scripted:
        return Scripted(name, model or f"model-{name}", dim, target, is_local)

    return make


@pytest.fixture
def clock() -> Clock:
    return Clock()

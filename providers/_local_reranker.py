"""What rerankers that compute on this machine share: identity, counts, warm-up, failures of the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._rows import Row, RowRunner
from rag_core.embedding import FIRST_TEXT
from rag_core.errors import ProviderError, RagCoreError
from rag_core.progress import Progress, listening, tell
from rag_core.protocols import Target
from rag_core.reranking import RerankStats
from rag_core.secrets import safe_repr

__all__ = ["About", "LocalReranker"]


@dataclass(frozen=True, slots=True)
class About:
    """What a reranker says of itself.

    Attributes:
        name, model, target: as in the table.
        fingerprint: everything that changes a score, in one string.
        max_tokens: tokens of one input of the model.
        languages: what the model is made for; empty where nothing is known.
        runtime: library, version, threads, device.
    """

    name: str
    model: str
    fingerprint: str
    max_tokens: int
    target: Target = "cpu"
    languages: tuple[str, ...] = ()
    runtime: dict[str, Any] = field(default_factory=dict)


class LocalReranker(ABC):
    """Base of the local rerankers.

    Attributes:
        stats: counts, cut pairs among them.
    """

    def __init__(self, about: About, runner: RowRunner) -> None:
        self.name, self.model, self.fingerprint = about.name, about.model, about.fingerprint
        self.target, self.max_tokens = about.target, about.max_tokens
        self.languages, self.runtime = about.languages, about.runtime
        self.stats = RerankStats()
        self._runner, self._is_ready = runner, False

    @property
    def batch_size(self) -> int:
        """Rows of one call of the model; 0, the default, for a budget of tokens."""
        return self._runner.batch_size

    @batch_size.setter
    def batch_size(self, rows: int) -> None:
        self._runner.batch_size = rows

    @property
    def is_ready(self) -> bool:
        """Whether the model has answered once, so that the next call is not its slow first one."""
        return self._is_ready

    def warmup(self, progress: Progress | None = None) -> None:
        """Make the first call; ``progress(stage, done, total)`` is told before and after.

        Raises:
            ProviderError: the call failed; it can be tried again.
        """
        with listening(progress):
            tell("first call", 0, 1)
            self.rerank(FIRST_TEXT, [FIRST_TEXT])
            tell("ready", 1, 1)

    def is_available(self) -> bool:
        """True: its weights are loaded."""
        return True

    @abstractmethod
    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """One raw score per candidate, in input order."""

    def _run(self, rows: list[Row]) -> list[NDArray[np.float32]]:
        """The model's answer to each of ``rows``, counted.

        Raises:
            ProviderError: the library failed, for example because the tokenizer is another model's.
        """
        try:
            answers = self._runner.run(rows)
        except RagCoreError:
            raise
        except Exception as error:  # each library has its own
            raise ProviderError(
                f"{self.name}: {self.model} failed on {len(rows)} inputs ({_first_line(error)})"
            ) from error
        self.stats.rows += len(rows)
        self.stats.tokens += sum(len(row.ids) for row in rows)
        self._is_ready = True
        return answers

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]

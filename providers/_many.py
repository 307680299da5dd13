"""Many texts through a service that may refuse some: batches, halves, second questions, a clear end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from providers._answers import Rows
from providers._http import BatchRefusedError
from providers._tokens import estimate_tokens
from rag_core.errors import PermanentError, ProviderError, TransientError
from rag_core.protocols import Role, Vectors

__all__ = ["EmbedCall", "Limits", "Service", "UnfinishedError", "batches"]

#: How often a text is asked again whose vector was missing or no vector. A fault of the moment is cured by
#: the first time nearly always; one that remains belongs to the text.
ASKED_AGAIN = 2
#: Tries of a part of a batch that was answered HTTP 500 to the end.
TRIES_OF_A_PART = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold: texts, tokens as estimated, bytes of text; 0 for no limit."""

    texts: int
    tokens: int = 0
    bytes: int = 0


class Service(Protocol):
    """What a call needs of the embedder it works for."""

    dim: int
    has_answered: bool
    max_texts: int

    def ask(self, texts: Sequence[str], role: Role, max_500: int = 0) -> Rows:
        """One request."""
        ...

    def works(self, role: Role) -> bool:
        """Whether a harmless text is embedded now."""
        ...


class UnfinishedError(ProviderError):
    """Inside the providers only: some texts have no vector; positions count the texts that were sent."""

    def __init__(self, vectors: Vectors, failed: dict[int, str], cause: ProviderError | None) -> None:
        self.vectors, self.failed, self.cause = vectors, failed, cause
        self.is_transient = isinstance(cause, TransientError)
        super().__init__(f"{len(failed)} of {len(vectors)} texts have no vector")


def batches(texts: Sequence[str], limits: Limits) -> Iterator[list[int]]:
    """Positions of ``texts``, in order, in batches that keep to ``limits``; a text above one stands alone."""
    batch: list[int] = []
    tokens = size = 0
    for position, text in enumerate(texts):
        more, longer = estimate_tokens(text), len(text.encode("utf-8", "replace"))
        is_full = (
            len(batch) >= limits.texts
            or (limits.tokens and tokens + more > limits.tokens)
            or (limits.bytes and size + longer > limits.bytes)
        )
        if batch and is_full:
            yield batch
            batch, tokens, size = [], 0, 0
        batch.append(position)
        tokens, size = tokens + more, size + longer
    if batch:
        yield batch


class EmbedCall:
    """One call of ``embed``: what is done, what failed, and what ends it early."""

    def __init__(self, service: Service, texts: Sequence[str], role: Role) -> None:
        self._service, self._texts, self._role = service, texts, role
        self._vectors = np.zeros((len(texts), service.dim), np.float32)
        self._done = np.zeros(len(texts), bool)
        self._failed: dict[int, str] = {}
        self._end: ProviderError | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, limits: Limits, concurrency: int) -> Vectors:
        """Vectors of all texts, ``(n, dim)``; at most ``concurrency`` requests at once.

        Raises:
            UnfinishedError: some texts have none.
            TransientError, PermanentError: no text has one, and not because of the texts.
        """
        plan = list(batches(self._texts, limits))
        if len(plan) == 1:
            self._solve(plan[0])
        else:
            pool = ThreadPoolExecutor(min(concurrency, len(plan)), "embed")
            try:
                for future in [pool.submit(self._solve, rows) for rows in plan]:
                    future.result()
            finally:
                self._stopped = True  # after an interrupt, what waits is not sent
                pool.shutdown(cancel_futures=True)
        if self._end and not self._done.any() and not self._failed:
            raise self._end
        for position in np.flatnonzero(~self._done).tolist():
            self._failed.setdefault(position, f"not embedded, because the call ended early: {self._end}")
        if self._failed:
            raise UnfinishedError(self._vectors, self._failed, self._end)
        return self._vectors

    def _solve(self, rows: list[int], max_500: int = 0, again: int = 0) -> bool:
        """Embed the texts at ``rows``; whether no part of the request had to be repeated."""
        if self._end or self._stopped:
            return False
        if len(rows) > self._service.max_texts:
            return self._halve(rows, max_500, again)
        try:
            answer = self._service.ask([self._texts[i] for i in rows], self._role, max_500)
        except BatchRefusedError as error:
            return self._refused(rows, error, is_size=True)
        except PermanentError as error:
            if error.status in (400, 422):
                return self._refused(rows, error)
            return self._stop(error)
        except TransientError as error:
            # a text that breaks the model looks like a server that is down: ask it something harmless
            if error.status == 500 and self._service.works(self._role):
                return self._part(rows, str(error), TRIES_OF_A_PART)
            return self._stop(error)
        return self._keep(rows, answer, max_500, again)

    def _refused(self, rows: list[int], error: PermanentError, is_size: bool = False) -> bool:
        """The service refused these texts, or it refuses everything; the two look alike."""
        if len(rows) > 1 and is_size:
            size = len(rows)
            if self._part(rows, str(error)):  # both halves went through: the sum was too much
                with self._lock:
                    self._service.max_texts = min(self._service.max_texts, (size + 1) // 2)
            return False
        is_alone = len(self._texts) == 1 and not is_size
        if self._service.has_answered or (not is_alone and self._service.works(self._role)):
            return self._part(rows, str(error))
        if is_size and len(self._texts) == 1:
            return self._fail(rows[0], str(error))
        return self._stop(error)

    def _part(self, rows: list[int], reason: str, max_500: int = 0) -> bool:
        return self._fail(rows[0], reason) if len(rows) == 1 else self._halve(rows, max_500)

    def _halve(self, rows: list[int], max_500: int, again: int = 0) -> bool:
        middle = (len(rows) + 1) // 2
        both = [self._solve(half, max_500, again) for half in (rows[:middle], rows[middle:])]
        return all(both)

    def _keep(self, rows: list[int], answer: Rows, max_500: int, again: int) -> bool:
        good = [i for i in range(len(rows)) if i not in answer.bad]
        kept = [rows[i] for i in good]
        with self._lock:
            self._vectors[kept] = answer.vectors[good]
            self._done[kept] = True
        if not answer.bad:
            return True
        asked = [rows[i] for i in answer.bad]
        if len(asked) > 1 and again:
            self._halve(asked, max_500, again)
        elif again < ASKED_AGAIN:
            self._solve(asked, max_500, again + 1)
        else:
            reason = next(iter(answer.bad.values()))
            self._fail(asked[0], f"{reason}, asked {again + 1} times")
        return False

    def _fail(self, row: int, reason: str) -> bool:
        with self._lock:
            self._failed[row] = reason
        return False

    def _stop(self, error: ProviderError) -> bool:
        with self._lock:
            self._end = self._end or error
        return False

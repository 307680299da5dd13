"""The speed engine of every local transformer: rows of token ids, grouped by length, padded, over threads.

What computes a group is a :data:`Call`: onnxruntime, torch and MLX each bring one, and one of these may
answer sentence vectors, token vectors or logits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["TOKEN_BUDGET", "Call", "Ids", "Row", "RowRunner", "batches_by_length"]

Ids = NDArray[np.int64]
#: ``call(ids, mask, types)``, each int64 of shape (rows, tokens) with 0 in ``mask`` on padding, answers on
#: the host: float32 of shape (rows, width), (rows, tokens, width) or (rows,).
Call = Callable[[Ids, Ids, Ids], NDArray[np.float32]]
#: Tokens of one call, padding included. Measured on two cores with MiniLM on onnxruntime, passages/s at
#: budgets of 256, 1024 and 4096: 1386, 1225, 564 of 13 tokens; 144, 133, 94 of 150 tokens.
TOKEN_BUDGET = 256


class Row(NamedTuple):
    """Token ids and type ids of equal length."""

    ids: list[int]
    types: list[int]


def batches_by_length(
    lengths: Sequence[int], token_budget: int = TOKEN_BUDGET, multiple: int = 1, batch_size: int = 0,
    padding: int | None = None,
) -> list[list[int]]:  # fmt: skip
    """Positions grouped so that rows of like length share a call, the longest first.

    A group holds ``batch_size`` rows, or without one as many as fit ``token_budget`` once padded to its
    longest (rounded up to ``multiple``) and take at most ``padding`` tokens more for it, at least one.
    """
    groups: list[list[int]] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if groups and batch_size:
            fits = len(groups[-1]) < batch_size
        else:
            is_like = padding is None or longest - lengths[position] <= padding
            fits = bool(groups) and is_like and longest * (len(groups[-1]) + 1) <= token_budget
        if fits:
            groups[-1].append(position)
        else:
            groups.append([position])
            longest = _padded(lengths[position], multiple)
    return groups


def _padded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


class RowRunner:
    """Runs rows and gives one array per row back, in the order of the rows.

    Attributes:
        threads: calls at once.
        token_budget: tokens of one call, padding included; 0 gives every row a call of its own.
        batch_size: rows of one call in place of the budget; 0 for the budget.
        multiple: rows are padded to a multiple of this many tokens.
        padding: tokens that a row may be padded by to share a call, where the budget holds; None for any.
    """

    def __init__(
        self, call: Call, threads: int, token_budget: int = TOKEN_BUDGET, pad: int = 0, multiple: int = 1,
        padding: int | None = None,
    ) -> None:  # fmt: skip
        """``pad``: the token id that fills short rows."""
        self._call, self._pad = call, pad
        self.threads, self.token_budget, self.multiple, self.batch_size = threads, token_budget, multiple, 0
        self.padding = padding
        self._workers: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The output of each row: shape (tokens of the row, …) or (…) without a token axis.

        Raises:
            Exception: whatever the call raises.
        """
        lengths = [len(row.ids) for row in rows]
        groups = batches_by_length(lengths, self.token_budget, self.multiple, self.batch_size, self.padding)
        work = [[rows[i] for i in group] for group in groups]
        is_serial = len(work) <= 1 or self.threads == 1
        answers = [self._group(w) for w in work] if is_serial else self._pool().map(self._group, work)
        out: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
        for group, answer in zip(groups, answers):
            for position, values in zip(group, answer):
                out[position] = values
        return out

    def _group(self, rows: list[Row]) -> list[NDArray[np.float32]]:
        """One call; ``rows`` are sorted, the longest first."""
        shape = len(rows), _padded(len(rows[0].ids), self.multiple)
        ids = np.full(shape, self._pad, np.int64)
        mask, types = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = row.ids
            types[i, : len(row.ids)] = row.types
            mask[i, : len(row.ids)] = 1
        answer: Any = np.asarray(self._call(ids, mask, types), np.float32)
        if answer.ndim == 3:
            return [values[: len(row.ids)] for values, row in zip(answer, rows)]
        return list(answer)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self.threads, "rag-rows")
            return self._workers

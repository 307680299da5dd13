"""Rows of token ids through an ONNX session: grouped by length, padded, spread over threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._onnx import batches_by_length
from providers._pairs import Row

__all__ = ["RowRunner"]


class RowRunner:
    """Runs rows and gives one array per row back, in the order of the rows.

    Attributes:
        threads: calls of the session at once; each runs on one thread.
        token_budget: tokens of one call, padding included; 0 gives every row a call of its own.
    """

    def __init__(self, session: Any, output: str, threads: int, token_budget: int, pad: int = 0) -> None:
        self._session, self._output, self._pad = session, output, pad
        self.threads, self.token_budget = threads, token_budget
        self._inputs = [entry.name for entry in session.get_inputs()]
        self._workers: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The output of each row: shape (tokens of the row, …) or (…) without a token axis.

        An output with as many places on its second axis as the call has tokens is cut to the row's own.
        """
        groups = batches_by_length([len(row.ids) for row in rows], self.token_budget)
        work = [[rows[i] for i in group] for group in groups]
        answers = (
            [self._call(w) for w in work] if self._is_serial(work) else self._pool().map(self._call, work)
        )
        out: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
        for group, answer in zip(groups, answers):
            for position, values in zip(group, answer):
                out[position] = values
        return out

    def _is_serial(self, work: Sequence[Any]) -> bool:
        return len(work) <= 1 or self.threads == 1

    def _call(self, rows: list[Row]) -> list[NDArray[np.float32]]:
        """One call of the session; ``rows`` are sorted, the longest first."""
        shape = len(rows), len(rows[0].ids)
        ids = np.full(shape, self._pad, np.int64)
        mask, types = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = row.ids
            types[i, : len(row.ids)] = row.types
            mask[i, : len(row.ids)] = 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        (raw,) = self._session.run([self._output], {name: known[name] for name in self._inputs})
        answer = np.asarray(raw, np.float32)
        if answer.ndim == 3:
            return [values[: len(row.ids)] for values, row in zip(answer, rows)]
        return list(answer)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self.threads, "rag-rows")
            return self._workers

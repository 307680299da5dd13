"""Sentence vectors from a transformer in ONNX form: session, batching, pooling. Shared by ONNX providers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._common import choice, require
from rag_core.embedding import BaseEmbedder
from rag_core.errors import ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import Spec

__all__ = ["OnnxEmbedder", "batches_by_length", "open_session", "pool"]

log = logging.getLogger("rag_core")
POOLINGS = ("mean", "cls")
#: Tokens of one call, padding included. Measured on two cores with MiniLM, passages/s at budgets of
#: 256, 1024 and 4096: 1386, 1225, 564 of 13 tokens; 144, 133, 94 of 150 tokens.
TOKEN_BUDGET = 256
_sessions = 0
_sessions_lock = threading.Lock()


def open_session(spec: Spec, model: Path | bytes, threads: int) -> Any:
    """An inference session on the CPU for ``model``, a file or its content.

    Each call of the session runs on one thread; ``threads`` is how many calls its user means to run at
    once, and is said in the log, for a second session does not share the first one's.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ProviderUnavailableError: there is no such file.
    """
    global _sessions
    if isinstance(model, Path) and not model.is_file():
        raise ProviderUnavailableError(spec.name, f"no model file {model}")
    runtime = require(spec, "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    with _sessions_lock:
        _sessions += 1
        number = _sessions
    log.info("%s: onnxruntime session %d of this process, %d threads of its own", spec.name, number, threads)
    return session


def batches_by_length(lengths: Sequence[int], token_budget: int = TOKEN_BUDGET) -> list[list[int]]:
    """Positions grouped so that texts of like length share a call.

    Longest first; a group holds as many as fit ``token_budget`` once padded to its longest, at least one.
    """
    groups: list[list[int]] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if groups and longest * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(position)
        else:
            groups.append([position])
            longest = lengths[position]
    return groups


def pool(hidden: NDArray[np.float32], mask: NDArray[np.int64], how: str) -> Vectors:
    """Sentence vectors (n, dim) of token vectors (n, tokens, dim); ``mask`` (n, tokens) is 0 on padding.

    ``mean`` averages the tokens that count, ``cls`` takes the first one.

    Raises:
        InvalidArgumentError: ``how`` is neither.
    """
    choice("pooling", "how", how, POOLINGS)
    if how == "cls":
        return np.ascontiguousarray(hidden[:, 0])
    weights = mask.astype(np.float32)
    return np.asarray(np.matmul(weights[:, None, :], hidden)[:, 0] / weights.sum(axis=1, keepdims=True))


class OnnxEmbedder(BaseEmbedder):
    """A transformer whose first output is one vector a token.

    Texts are sorted by length and grouped under a token budget, so that little padding is computed, and
    the groups are spread over ``threads`` workers. That needs a model whose rows do not depend on each
    other: float weights or weight-only quantisation, not dynamically quantised activations.

    Attributes:
        runtime: library, version, threads, execution provider.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        session: Any,
        tokenizer: Any,
        threads: int,
        runtime: dict[str, Any],
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        """``tokenizer``: a ``tokenizers.Tokenizer`` that adds special tokens and neither pads nor cuts."""
        super().__init__(fingerprint)
        self.threads, self.runtime, self.token_budget = threads, runtime, token_budget
        self._session, self._tokenizer = session, tokenizer
        self._inputs = [entry.name for entry in session.get_inputs()]
        self._output = session.get_outputs()[0].name
        self._workers: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens as a document, special tokens included, before truncation; 0 for a blank."""
        return [
            len(self._tokenizer.encode(self.prepare(text, "document")).ids) if text.strip() else 0
            for text in texts
        ]

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        rows = [self._tokenizer.encode(text).ids for text in texts]
        cut = [row if len(row) <= self.max_tokens else [*row[: self.max_tokens - 1], row[-1]] for row in rows]
        self.stats.truncated += sum(len(row) > self.max_tokens for row in rows)
        lengths = [len(row) for row in cut]
        self.stats.tokens += sum(lengths)
        groups = batches_by_length(lengths, self.token_budget)
        vectors = np.empty((len(texts), self.dim), np.float32)
        if len(groups) == 1 or self.threads == 1:
            answers = [self._run([cut[i] for i in group]) for group in groups]
        else:
            answers = list(self._pool().map(self._run, [[cut[i] for i in group] for group in groups]))
        for group, answer in zip(groups, answers):
            vectors[group] = answer
        return vectors

    def _run(self, rows: list[list[int]]) -> Vectors:
        """One call of the session. ``rows`` are token ids, the longest first."""
        ids = np.zeros((len(rows), len(rows[0])), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run([self._output], {name: known[name] for name in self._inputs})
        return self._pooled(hidden, mask)

    def _pooled(self, hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> Vectors:
        """Sentence vectors (n, dim) of the session's output."""
        return pool(hidden, mask, self.fingerprint.pooling)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self.threads, f"{self.name}-onnx")
            return self._workers

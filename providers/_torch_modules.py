"""A sentence model of any architecture on torch, computed by sentence-transformers' own modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from providers._common import require
from providers._rows import Call, Ids
from providers._safetensors import digest_of, shards
from providers._st_folder import ModelFolder
from providers._torch_bert import DTYPES
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["Modules", "load_modules"]


class Modules(NamedTuple):
    """Attributes:
    call: answers sentence vectors.
    tokenizer: neither pads nor cuts.
    dim: width of a vector.
    pad: token id that fills short rows.
    weights: how many numbers the model holds.
    digest: 12 hexadecimal digits over the weights and the files of all modules.
    """

    call: Call
    tokenizer: Any
    dim: int
    pad: int
    weights: int
    digest: str


def load_modules(spec: Spec, folder: Path, device: str, dtype: str, pooling: str = "") -> Modules:
    """The model in ``folder``: files of the folder only, and no code from it.

    Args:
        spec: whose name errors begin with.
        folder: a sentence-transformers folder, or one of transformers.
        device, dtype: as in :func:`providers._torch_bert.torch_call`.
        pooling: for a folder without ``modules.json``, which does not say it: ``mean`` or ``cls``.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ProviderUnavailableError: its tokenizer is not a fast one.
        ProviderError: the folder cannot be loaded.
    """
    library = require(replace(spec, extra="local"), "sentence_transformers")
    torch = require(spec, "torch")
    kwargs = {"dtype": getattr(torch, DTYPES[dtype])}
    told: dict[str, Any] = {"device": device, "local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet(require(spec, "transformers")):
            if pooling:
                parts = importlib.import_module("sentence_transformers.sentence_transformer.modules")
                first = parts.Transformer(str(folder), model_kwargs=kwargs | {"local_files_only": True})
                last = parts.Pooling(first.get_embedding_dimension(), pooling)
                made = library.SentenceTransformer(modules=[first, last], device=device)
            else:
                made = library.SentenceTransformer(str(folder), model_kwargs=kwargs, **told)
    except Exception as error:  # unknown architectures, code that is not trusted, damaged files
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ProviderError(f"{spec.name}: sentence-transformers cannot load {folder} ({reason})") from error
    model = made.eval()
    fast = getattr(model.tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise ProviderUnavailableError(
            spec.name, f"the tokenizer in {folder} is not a fast one", "save one with tokenizer.json"
        )
    tokenizer = type(fast).from_str(fast.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    takes_types = "token_type_ids" in model.tokenizer.model_input_names

    def call(ids: Ids, mask: Ids, types: Ids) -> NDArray[np.float32]:
        feed = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if takes_types else {})
        with torch.inference_mode():
            features = {name: torch.from_numpy(values).to(device) for name, values in feed.items()}
            answer: NDArray[np.float32] = model(features)["sentence_embedding"].float().cpu().numpy()
        return answer

    one = np.ones((1, 1), np.int64)
    return Modules(
        call=call,
        tokenizer=tokenizer,
        dim=int(call(one, one, one - 1).shape[1]),
        pad=int(model.tokenizer.pad_token_id or 0),
        weights=sum(int(values.numel()) for values in model.parameters()),
        digest=digest_of(_files(folder)),
    )


def _files(folder: Path) -> list[Path]:
    """The transformer's weights, the list of modules, and whatever the folders of the others hold."""
    listed = ModelFolder("", folder).read("modules.json") or []
    inside = [folder / str(module["path"]) for module in listed if module.get("path")]
    found = [file for place in inside for file in sorted(place.rglob("*")) if file.is_file()]
    return [*shards(folder), *([folder / "modules.json"] if listed else []), *found]


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars on the terminal while weights are put in place."""
    log = transformers.utils.logging
    was_on = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            log.enable_progress_bar()

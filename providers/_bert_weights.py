"""The weights and the shape of a BERT-like encoder (BERT, RoBERTa, XLM-RoBERTa), for any engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from providers._folders import CONFIG
from providers._safetensors import digest_of, read_tensors, shards
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["FAMILIES", "BertShape", "BertWeights", "is_bert_like", "read_bert", "read_config"]

#: model_type -> the position of a text's first token: RoBERTa's kin count from the padding id + 1.
FAMILIES = {"bert": 0, "roberta": 2, "xlm-roberta": 2, "camembert": 2}
#: What the tensors' names may begin with, by architecture.
PREFIXES = ("bert.", "roberta.", "model.", "0.auto_model.")
ACTIVATIONS = ("gelu", "gelu_new", "relu")
LAYER = "encoder.layer.{}."


@dataclass(frozen=True, slots=True)
class BertShape:
    """Sizes of an encoder.

    Attributes:
        dim: width of a token vector.
        layers, heads: how many.
        inner: width of the feed-forward layer.
        epsilon: of the layer normalisations.
        words, positions, types: rows of the embedding tables.
        first_position: position of a text's first token.
        activation: of the feed-forward layer; ``gelu`` is the exact one.
        pad: token id that fills short rows.
    """

    dim: int
    layers: int
    heads: int
    inner: int
    epsilon: float
    words: int
    positions: int
    types: int
    first_position: int
    activation: str
    pad: int


@dataclass(frozen=True, slots=True)
class BertWeights:
    """An encoder.

    Attributes:
        shape: its sizes.
        tensors: Hugging Face's names without the architecture's prefix, for example
            ``encoder.layer.0.attention.self.query.weight`` of shape (out, in); a classifier's head stands
            beside them under its own name.
        stored: dtype of the file, ``fp32``, ``fp16`` or ``bf16`` (widened to float32 here).
        digest: 12 hexadecimal digits over the files.
        folder: where they are.
    """

    shape: BertShape
    tensors: Mapping[str, NDArray[Any]]
    stored: str
    digest: str
    folder: Path

    def float32(self, name: str) -> NDArray[np.float32]:
        """The tensor ``name``.

        Raises:
            ProviderError: there is none.
        """
        if name not in self.tensors:
            raise ProviderError(f"{self.folder} holds no tensor {name!r}")
        return np.ascontiguousarray(self.tensors[name], np.float32)


def read_config(spec: Spec, folder: Path) -> dict[str, Any]:
    """The object in ``config.json``.

    Raises:
        ProviderUnavailableError: there is none.
        ProviderError: it is not a JSON object.
    """
    file = folder / CONFIG
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProviderUnavailableError(spec.name, f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise ProviderError(f"{spec.name}: {file} is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ProviderError(f"{spec.name}: {file} holds a {type(found).__name__}; expected {{…}}")
    return found


def is_bert_like(config: Mapping[str, Any]) -> bool:
    """Whether an encoder of this configuration is one that :func:`read_bert` reads."""
    return (
        config.get("model_type") in FAMILIES
        and config.get("hidden_act", "gelu") in ACTIVATIONS
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder", False)
    )


def read_bert(spec: Spec, folder: Path) -> BertWeights:
    """The encoder in ``folder``.

    Raises:
        ProviderUnavailableError: another kind of model.
        ProviderError: a file is damaged, or its tensors are not those of the configuration.
        MissingExtraError: the weights are in torch's own form and torch is not installed.
    """
    config = read_config(spec, folder)
    if not is_bert_like(config):
        raise ProviderUnavailableError(
            spec.name,
            f"{folder / CONFIG} describes a {config.get('model_type')!r} "
            f"(activation {config.get('hidden_act')!r}); accepted: {', '.join(FAMILIES)} with "
            f"{', '.join(ACTIVATIONS)} and absolute positions",
        )
    raw, stored = read_tensors(spec, folder)
    tensors = {_plain(name): values for name, values in raw.items()}
    words = tensors.get("embeddings.word_embeddings.weight")
    layers = int(config.get("num_hidden_layers", 0))
    last = LAYER.format(layers - 1) + "output.dense.weight"
    if words is None or last not in tensors:
        lacking = "embeddings.word_embeddings.weight" if words is None else last
        raise ProviderError(f"{spec.name}: the weights in {folder} lack {lacking}")
    pad = int(config.get("pad_token_id") or 0)
    family = str(config["model_type"])
    shape = BertShape(
        dim=int(words.shape[1]),
        layers=layers,
        heads=int(config["num_attention_heads"]),
        inner=int(tensors[LAYER.format(0) + "intermediate.dense.weight"].shape[0]),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        words=int(words.shape[0]),
        positions=int(tensors["embeddings.position_embeddings.weight"].shape[0]),
        types=int(tensors["embeddings.token_type_embeddings.weight"].shape[0]),
        first_position=pad + 1 if FAMILIES[family] else 0,
        activation=str(config.get("hidden_act", "gelu")),
        pad=pad,
    )
    return BertWeights(shape, tensors, stored, digest_of(shards(folder)), folder)


def _plain(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name

"""Sentence models on torch by name: any of the hub or of a folder, and the ones of the table."""

from __future__ import annotations

from typing import Any

from providers._common import only_model
from providers._models import BGE_M3, E5_LARGE, E5_SMALL, MINILM
from providers._torch_embed import load_torch, missing
from providers._transformer import TransformerEmbedder
from rag_core.registry import Spec

__all__ = ["ANY", "MODELS", "load", "missing"]

#: The registry name that takes any model.
ANY = "st"
#: Registry name -> the model it stands for.
MODELS = {"bge-m3": BGE_M3, "e5-large": E5_LARGE, "e5-small": E5_SMALL, "minilm": MINILM}


def load(spec: Spec, **options: Any) -> TransformerEmbedder:
    """The model, with the options of :func:`providers._torch_embed.load_torch`, whose errors it raises.

    ``st`` takes a name on the hub (``st:OWNER/NAME``), a folder's path (``st:/FOLDER``, ``st:./FOLDER``) or
    ``st?path=FOLDER``; the other names stand for one model each.
    """
    if spec.name != ANY:
        only_model(spec, MODELS[spec.name])
    return load_torch(spec, **options)

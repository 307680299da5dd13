"""How a sentence model of the table is to be used: its folder's own files first, then its card."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from providers._common import count
from providers._models import CARDS
from providers._st_folder import ModelFolder
from rag_core.registry import Spec

__all__ = ["Settings", "settings"]

#: Shortest window: both special tokens and one of the text.
SHORTEST = 3


class Settings(NamedTuple):
    """Attributes:
    pooling: ``mean`` or ``cls``.
    query_prompt, document_prompt: put before a text.
    max_tokens: longest input, special tokens included.
    """

    pooling: str
    query_prompt: str
    document_prompt: str
    max_tokens: int


def settings(
    spec: Spec,
    folder: Path,
    positions: int,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    max_tokens: str | int = "",
) -> Settings:
    """The settings of ``spec.model``, which must have a card, with its files in ``folder``.

    Args:
        spec: the table's line.
        folder: a Hugging Face or sentence-transformers folder, or any other for the card alone.
        positions: tokens that the model has positions for: no window is longer.
        query_prompt, document_prompt, max_tokens: as asked for; None and "" where nothing was.

    Raises:
        InvalidArgumentError: ``max_tokens`` is outside 3 to ``positions``.
        ProviderUnavailableError: a file asks for what is not done here, for example another pooling.
        ProviderError: a file is damaged.
    """
    card, files = CARDS[spec.model], ModelFolder(spec.name, folder)
    says_pooling = any((folder / name).is_file() for name in ("modules.json", "1_Pooling/config.json"))
    pooling = files.pooling() if says_pooling else card.pooling
    query, document = card.query_prompt, card.document_prompt
    # files written before prompts had a place there name none, for models that need them
    if (files.read("config_sentence_transformers.json") or {}).get("prompts"):
        query, document = files.prompts()
    if max_tokens != "":
        window = count(spec.name, "max_tokens", max_tokens, SHORTEST, positions)
    else:
        # a tokenizer's limit may be longer than what the sentence model was made for
        window = files.window() if (folder / "sentence_bert_config.json").is_file() else card.max_tokens
    return Settings(
        pooling,
        query if query_prompt is None else query_prompt,
        document if document_prompt is None else document_prompt,
        min(window, positions),
    )

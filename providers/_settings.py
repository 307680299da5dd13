"""How a sentence model is to be used: its folder's own files first, then the card of its name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from providers._common import count
from providers._models import CARDS
from providers._st_folder import ModelFolder
from rag_core.errors import ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["LONGEST", "Settings", "settings"]

#: Positions of a model of which nobody says how many it has.
LONGEST = 1 << 20
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
    pooling: str = "",
    model: str = "",
) -> Settings:
    """The settings of a model with its files in ``folder``.

    Args:
        spec: the table's line.
        folder: a Hugging Face or sentence-transformers folder, or any other for the card alone.
        positions: tokens that the model has positions for: no window is longer.
        query_prompt, document_prompt, max_tokens, pooling: as asked for; None and "" where nothing was.
        model: its name, by default that of ``spec``; one without a card must have all files.

    Raises:
        InvalidArgumentError: ``max_tokens`` is outside 3 to ``positions``.
        ProviderUnavailableError: a file asks for what is not done here, for example another pooling, or is
            missing and no card stands in: the message names the option that does.
        ProviderError: a file is damaged.
    """
    card, files = CARDS.get(model or spec.model), ModelFolder(spec.name, folder)
    if not pooling:
        says_pooling = any((folder / name).is_file() for name in ("modules.json", "1_Pooling/config.json"))
        pooling = card.pooling if card and not says_pooling else files.pooling()
    query, document = (card.query_prompt, card.document_prompt) if card else ("", "")
    if None in (query_prompt, document_prompt) and (
        # files written before prompts had a place there name none, for models that need them
        not card or (files.read("config_sentence_transformers.json") or {}).get("prompts")
    ):
        query, document = files.prompts()
    if max_tokens != "":
        window = count(spec.name, "max_tokens", max_tokens, SHORTEST, positions)
    else:
        # a tokenizer's limit may be longer than what the sentence model was made for
        says_window = (folder / "sentence_bert_config.json").is_file()
        window = card.max_tokens if card and not says_window else files.window()
    query = query if query_prompt is None else query_prompt
    document = document if document_prompt is None else document_prompt
    if (query or document) and not files.counts_prompt():
        raise ProviderUnavailableError(
            spec.name,
            f"the model in {folder} leaves its prompt out of pooling (include_prompt): not done here",
            "or say query_prompt= and document_prompt= (empty for none)",
        )
    return Settings(pooling, query, document, min(window, positions))

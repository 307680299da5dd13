"""Opening a ``tokenizer.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from providers._common import require
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

__all__ = ["open_tokenizer"]


def open_tokenizer(spec: Spec, file: Path) -> Any:
    """The ``tokenizers.Tokenizer`` in ``file``, which neither pads nor cuts, whatever the file asks for.

    Raises:
        MissingExtraError: ``tokenizers`` is not installed.
        ProviderUnavailableError: there is no such file.
        ProviderError: it is damaged.
    """
    tokenizers = require(spec, "tokenizers")
    if not file.is_file():
        raise ProviderUnavailableError(
            spec.name, f"{file} is missing", "save it with transformers' AutoTokenizer.save_pretrained"
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ProviderError(f"{spec.name}: {file} cannot be read ({error}); fetch it again") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer

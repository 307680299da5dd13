"""Opening a tokenizer's file, whole and broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from providers._tokenizer import open_tokenizer
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.registry import Spec

SPEC = Spec("x", "m", "cpu", 0, "x:y", extra="onnx")


def test_padding_and_truncation_of_the_file_are_undone(
    tmp_path: Path, make_tiny: Callable[..., Path]
) -> None:
    tokenizer = open_tokenizer(SPEC, make_tiny(tmp_path) / "tokenizer.json")
    assert len(tokenizer.encode("a" * 40).ids) == 42
    assert len(tokenizer.encode("a").ids) == 3


@pytest.mark.parametrize("content", ["", "{", '{"version": "1.0"}', "[]"])
def test_a_broken_file_is_named(content: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs pip install 'rag-core-bench[onnx]'")
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(ProviderError, match=f"x: {file} cannot be read"):
        open_tokenizer(SPEC, file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs pip install 'rag-core-bench[onnx]'")
    with pytest.raises(ProviderUnavailableError, match=r"tokenizer\.json is missing; save it with"):
        open_tokenizer(SPEC, tmp_path / "tokenizer.json")

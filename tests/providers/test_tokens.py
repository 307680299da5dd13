from __future__ import annotations

import pytest

from providers._tokens import cut_to, estimate_tokens


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("", 2),
        ("abc", 3),
        ("abcd", 4),
        ("é", 3),
        ("図書館", 7),
        ("a図", 5),
        ("2026", 4),
        ("🙂", 4),
        ("\ud800", 3),
    ],
)
def test_estimate(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_the_estimate_is_above_the_true_count_of_ordinary_text() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs pip install 'rag-core-bench[onnx]'")
    del tokenizers
    from providers import EMBEDDERS
    from providers.minilm import bert_tokenizer

    tokenizer = bert_tokenizer(next(spec for spec in EMBEDDERS if spec.name == "minilm"))
    tokenizer.no_truncation()
    for text in (
        "The council meets in the old town hall on the first Monday of every month.",
        "def read_rows(rows: Any, count: int, dim: int) -> Rows:",
        "Invoice 2026-11-30, 1,234.56 EUR, IBAN PT50 0002 0123 1234 5678 9015 4",
    ):
        assert estimate_tokens(text) >= 0.9 * len(tokenizer.encode(text).ids)


@pytest.mark.parametrize("text", ["x" * 500, "図書館" * 50, "a é 図 🙂 " * 40, "short"])
@pytest.mark.parametrize("tokens", [3, 10, 64])
def test_cut_is_the_longest_beginning_that_fits(text: str, tokens: int) -> None:
    cut = cut_to(text, tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= tokens
    assert cut == text or estimate_tokens(text[: len(cut) + 1]) > tokens

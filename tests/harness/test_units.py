"""Durations, sizes and amounts as typed."""

from __future__ import annotations

import pytest

from harness.units import parse_bytes, parse_duration_s, parse_usd
from rag_core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("0.5s", 0.5), (".5 S", 0.5), ("250us", 0.00025), ("250µs", 0.00025), ("2min", 120)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text, "--max-p95") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2e9), ("1.5GiB", 1.5 * 2**30), ("512 MiB", 2**29), ("10kb", 1e4), ("7B", 7), ("1TB", 1e12)],
)
def test_sizes(text: str, size: float) -> None:
    assert parse_bytes(text, "--max-rss") == size


@pytest.mark.parametrize(
    ("text", "usd"), [("0.5", 0.5), ("$0.5", 0.5), ("0.5 USD", 0.5), ("0", 0), ("1e-3", 0.001)]
)
def test_amounts(text: str, usd: float) -> None:
    assert parse_usd(text, "--max-usd-per-1k") == usd


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_duration_s, text) for text in ("500", "ms", "-1s", "0s", "1h", "", "nan", "infs", "1,5s")),
        *((parse_bytes, text) for text in ("2", "2G", "GB", "0GB", "-1GB", "2 giga")),
        *((parse_usd, text) for text in ("", "$", "-1", "0.5EUR", "half")),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_option_the_value_and_what_is_accepted(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidArgumentError) as error:
        parse(text, "--the-option")
    assert str(error.value).startswith(f"--the-option {text!r}; accepted: ")
    assert "for example" in str(error.value)

"""What a rag.toml may say, and what is said of one that says something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rag_core import service_config
from rag_core.errors import InvalidArgumentError
from rag_core.service_config import read_config


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "rag.toml"


def test_the_documented_example_is_read(toml: Path) -> None:
    text = service_config.__doc__ or ""
    example = "\n".join(line[4:] for line in text.split("::\n")[1].split("\nKeys of")[0].splitlines())
    toml.write_text(example, encoding="utf-8")
    config = read_config(toml)
    assert config.chain == ["cohere", "e5-small@cpu"]
    assert config.cache == {
        "folder": toml.parent / "cache",
        "disk_bytes": 2_000_000_000,
        "memory_bytes": 64_000_000,
        "ttl_s": 2_592_000,
        "bypass": False,
    }
    assert config.max_usd == 5.0
    assert config.pauses == {"first_s": 5, "last_s": 300}
    assert config.prices == {"openai:text-embedding-3-small": 0.02}
    named = set(re.findall(r"^(\w+) = ", example, re.MULTILINE))
    assert named == {key for keys in service_config.TABLES.values() for key in keys}


def test_a_provider_is_enough(toml: Path) -> None:
    toml.write_text('[embedding]\nprovider = "fake"\nfallback = "fake-e5-small"\n')
    config = read_config(str(toml))
    assert (config.chain, config.cache, config.max_usd) == (["fake", "fake-e5-small"], {}, None)


def test_folders_are_absolute_or_of_the_home(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(toml.parent / "home"))
    toml.write_text('[embedding]\nprovider = "fake"\n[cache]\ndir = "~/c"\n')
    assert read_config(toml).cache["folder"] == toml.parent / "home" / "c"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", 'names no provider; write: [embedding] provider = "e5-small"'),
        ('[embeding]\nprovider = "fake"', "unknown table or key 'embeding'; did you mean 'embedding'?"),
        ('provider = "fake"', "unknown table or key 'provider'; it belongs in [embedding]"),
        (
            '[embedding]\nproviders = "fake"',
            "unknown key 'providers' in [embedding]; did you mean 'provider'",
        ),
        ("[embedding]\nprovider = 3", "[embedding] provider is 3; accepted: text"),
        ('[embedding]\nfallback = ["a", 1]', "fallback is ['a', 1]; accepted: text or a list of texts"),
        ("[cache]\nmax_byte = 3", "unknown key 'max_byte' in [cache]; did you mean 'max_bytes'"),
        ('[search]\nweights = [1, "2"]', "weights is [1, '2']; accepted: a list of numbers"),
        ("[search]\nweights = 2", "weights is 2; accepted: a list of numbers"),
        ("[search]\nfusion = 1", "[search] fusion is 1; accepted: text"),
        ("[cache]\nmax_bytes = true", "[cache] max_bytes is True; accepted: a whole number"),
        ("[cache]\nmax_bytes = 1.5", "accepted: a whole number"),
        ("[cache]\nbypass = 1", "accepted: true or false"),
        ('[limits]\nmax_usd = "5"', "max_usd is '5'; accepted: a number"),
        ('[prices]\n"openai" = "dear"', "accepted: a number"),
        ("embedding = 3", "embedding is 3; accepted: a table, [embedding]"),
        ("[embedding\n", "is not TOML: "),
    ],
)
def test_what_is_not_known_is_refused_with_the_nearest_names(toml: Path, text: str, said: str) -> None:
    toml.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=re.escape(said)) as caught:
        read_config(toml)
    assert str(toml) in str(caught.value)


def test_a_key_in_the_file_is_refused_and_not_repeated(toml: Path) -> None:
    toml.write_text('[embedding]\nprovider = "cohere"\napi_key = "sk-planted-0123456789"\n')
    with pytest.raises(InvalidArgumentError) as caught:
        read_config(toml)
    assert "planted" not in str(caught.value)


def test_a_file_that_cannot_be_read(toml: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read: No such file"):
        read_config(toml)
    toml.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgumentError, match="is not TOML"):
        read_config(toml)

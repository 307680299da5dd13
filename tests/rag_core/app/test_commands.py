"""Ingest and rebuild with services that cost money, fail, or are missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_core import registry
from rag_core.app.commands import ingest, rebuild, stats
from rag_core.app.settings import Asked
from rag_core.errors import BudgetExceededError, StoreError, TransientError
from rag_core.index import Index
from rag_core.registry import EMBEDDERS, Spec, load_plugins


@pytest.fixture(autouse=True)
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripted: Callable[..., Any]) -> dict[str, Any]:
    """Services ``paid`` and ``other``, by name; both have a price in ``rag.toml``."""
    monkeypatch.chdir(tmp_path)
    for variable in ("RAG_EMBED_PROVIDER", "RAG_REPLAY"):
        monkeypatch.delenv(variable, raising=False)
    Path("rag.toml").write_text("[prices]\npaid = 1000.0\nother = 1000.0\n")
    load_plugins()
    monkeypatch.setattr(EMBEDDERS, "_specs", dict(EMBEDDERS._specs))
    made = {name: scripted(name) for name in ("paid", "other")}
    for name, embedder in made.items():
        EMBEDDERS.add(Spec(name, embedder.model, "api", 8, f"here:{name}", auto=False))
    real = registry.load_attribute
    monkeypatch.setattr(
        registry,
        "load_attribute",
        lambda path: (lambda spec: made[spec.name]) if path.startswith("here:") else real(path),
    )
    return made


def corpus(n: int) -> Path:
    """A file of ``n`` documents; each has 5 tokens."""
    path = Path("corpus.jsonl")
    rows = [{"_id": f"d{number}", "text": f"text number {number:06} here"} for number in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def quiet(*anything: Any) -> None:
    return


def test_an_estimate_comes_before_many_texts_of_a_paid_provider(services: dict[str, Any]) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(f"{line} ({len(services['paid'].asked)} calls so far)")

    ingest(corpus(1001), Asked(Path("i"), provider="paid"), say, quiet)
    (line,) = said
    assert line.startswith("1,001 texts for paid: 5,005 tokens, about 5.005 USD")
    assert line.endswith("(1 calls so far)")  # the probe that decides for a provider
    said.clear()
    ingest(corpus(1001), Asked(Path("i")), say, quiet)
    assert said == []
    rebuild(Asked(Path("i"), provider="other"), say, quiet)
    assert said[0].startswith("1,001 texts for other: 5,005 tokens, about 5.005 USD")


def test_few_texts_and_local_models_are_not_announced() -> None:
    said: list[str] = []
    ingest(corpus(20), Asked(Path("i"), provider="paid"), said.append, quiet)
    ingest(corpus(1001), Asked(Path("j"), provider="fake"), said.append, quiet)
    assert said == []


def test_a_budget_stops_keeps_and_is_gone_on_from(services: dict[str, Any]) -> None:
    said: list[str] = []
    asked = Asked(Path("i"), provider="paid", max_usd=0.8)
    with pytest.raises(BudgetExceededError, match="raise max_usd to go on"):
        ingest(corpus(300), asked, said.append, quiet)
    assert said == [
        "300 texts for paid: 1,500 tokens, about 1.5 USD",
        "that is above the limit of 0.8 USD: it will stop there, and keep what is done",
    ]
    sent = sum(map(len, services["paid"].asked))
    assert 1 < sent < 300
    services["paid"].asked.clear()
    report = ingest(corpus(300), Asked(Path("i"), max_usd=10), quiet, quiet)
    again = sum(map(len, services["paid"].asked))
    assert len(Index.open("i")) == 300
    assert report.reused_vectors + report.embedded_texts + report.unchanged == 300
    assert again < 300


def test_a_build_that_fails_starts_again_with_the_next_provider(services: dict[str, Any]) -> None:
    def fail(texts: Sequence[str]) -> BaseException | None:
        return TransientError("outage") if any("number 000150" in text for text in texts) else None

    services["paid"].fail = fail
    Path("rag.toml").write_text(
        '[embedding]\nprovider = "paid"\nfallback = "other"\n[prices]\npaid = 1\nother = 1\n'
    )
    report = ingest(corpus(200), Asked(Path("i")), quiet, quiet)
    assert report.added == 200
    assert Index.open("i").identity.provider == "other"
    assert stats(Asked(Path("i")))["provider"] == ["paid", "other"]
    assert ingest(corpus(201), Asked(Path("i")), quiet, quiet).added == 1


def test_another_store_is_refused_with_the_command_that_changes_it() -> None:
    ingest(corpus(3), Asked(Path("i"), provider="fake"), quiet, quiet)
    with pytest.raises(StoreError, match="rag rebuild --index i --store lancedb"):
        ingest(corpus(3), Asked(Path("i"), store="lancedb"), quiet, quiet)


def test_the_folder_of_something_else_is_left_alone() -> None:
    folder = Path("home")
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(StoreError):
        ingest(corpus(3), Asked(folder, provider="fake"), quiet, quiet)
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


def test_chunks_are_as_long_as_the_option_or_the_file_says() -> None:
    folder = Path("documents")
    folder.mkdir()
    (folder / "a.txt").write_text("One two three four five. " * 40)
    longest = {}
    Path("rag.toml").write_text("[index]\nchunk_tokens = 40\noverlap = 0\n")
    for name, tokens in (("file", None), ("option", 100)):
        ingest(folder, Asked(Path(name), provider="fake", chunk_tokens=tokens), quiet, quiet)
        longest[name] = max(len(d.text.split()) for d in Index.open(name).documents.values())
    assert 20 < longest["file"] <= 40 < longest["option"] <= 100


def test_a_new_index_reads_words_as_the_file_says() -> None:
    Path("rag.toml").write_text('[index]\nanalyser = "raw"\n')
    ingest(corpus(2), Asked(Path("raw"), provider="fake"), quiet, quiet)
    Path("rag.toml").write_text('[index]\nlanguages = ["pt"]\n')
    ingest(corpus(2), Asked(Path("pt"), provider="fake"), quiet, quiet)
    assert "stop-words" not in stats(Asked(Path("raw")))["lexical"]["analyser"]
    assert stats(Asked(Path("pt")))["lexical"]["analyser"].endswith("snowball(pt)")

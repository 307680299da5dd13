"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``."""

from __future__ import annotations

from pathlib import Path

from harness.formats.folders import Parts, read_folder

__all__ = ["load", "matches"]


def matches(path: Path) -> bool:
    """Whether ``path`` holds both JSON-lines files."""
    return (path / "corpus.jsonl").is_file() and (path / "queries.jsonl").is_file()


def load(path: Path) -> Parts:
    """Read the folder. Queries without a judgement are kept."""
    return read_folder(path, path / "corpus.jsonl", path / "queries.jsonl")

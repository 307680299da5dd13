"""Folders of tables: ``corpus`` and ``queries`` as CSV, TSV or JSON lines, ``qrels`` as CSV or TSV."""

from __future__ import annotations

from pathlib import Path

from harness.formats.folders import Parts, find, read_folder

__all__ = ["load", "matches"]

SUFFIXES = (".csv", ".tsv", ".jsonl")


def matches(path: Path) -> bool:
    """Whether ``path`` holds a corpus and queries in any of the three forms."""
    return find(path, "corpus", SUFFIXES) is not None and find(path, "queries", SUFFIXES) is not None


def load(path: Path) -> Parts:
    """Read the folder."""
    corpus, queries = find(path, "corpus", SUFFIXES), find(path, "queries", SUFFIXES)
    assert corpus is not None  # see matches
    assert queries is not None
    return read_folder(path, corpus, queries)

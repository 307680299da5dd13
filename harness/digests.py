"""Digests of what made a figure: this project's own code, and the weights and tokenizer of a model."""

from __future__ import annotations

import csv
import hashlib
import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

__all__ = ["code_digest", "model_hashes", "package_digest"]

OWN = ("rag_core", "providers", "harness")
#: Files of a package that decide what it computes.
CODE = {".py", ".json", ".txt"}
DIGITS = 16


@cache
def code_digest() -> str:
    """16 hexadecimal digits over every source and data file of this project's packages, as installed."""
    hasher = hashlib.sha256()
    for name in OWN:
        root = Path(str(importlib.import_module(name).__file__)).parent
        for path in sorted(p for p in root.rglob("*") if p.suffix in CODE and p.is_file()):
            place = path.relative_to(root).as_posix()
            if "__pycache__" in place or "fixtures/" in place:  # data sets have their own hashes
                continue
            hasher.update(f"{name}/{place}\0{path.stat().st_size}\0".encode())
            hasher.update(path.read_bytes())
    return hasher.hexdigest()[:DIGITS]


def package_digest(name: str) -> str | None:
    """16 hexadecimal digits over the contents of an installed distribution, as its RECORD lists them.

    The digests that its installer verified: no file is read. None where it is not installed, or its RECORD
    holds no digests.
    """
    try:
        record = distribution(name).read_text("RECORD")
    except PackageNotFoundError:
        return None
    rows = [row for row in csv.reader((record or "").splitlines()) if len(row) == 3]
    # what the installer itself adds differs from machine to machine: notes in .dist-info, compiled files
    own = sorted(f"{p} {digest}" for p, digest, _ in rows if digest and ".dist-info/" not in p)
    return hashlib.sha256("\n".join(own).encode()).hexdigest()[:DIGITS] if own else None


def model_hashes(embedder: Any, packages: tuple[str, ...]) -> dict[str, str]:
    """``weights`` and ``tokenizer`` of an embedder: digest each; what cannot be told is left out.

    Weights: of a model that comes inside a package (its revision begins with the package's name) the
    package's contents; else the revision, which of a folder is a digest of its files. Tokenizer: what the
    embedder's ``tokenizer_digest()`` says, where it has one.

    Args:
        embedder: with a fingerprint.
        packages: names of distributions that may hold a model.
    """
    found: dict[str, str] = {}
    revision = str(embedder.fingerprint.revision)
    inside = [name for name in packages if revision.startswith(f"{name}-")]
    weights = package_digest(max(inside, key=len)) if inside else revision
    if weights:
        found["weights"] = weights
    tokenizer = getattr(embedder, "tokenizer_digest", None)
    digest = tokenizer() if callable(tokenizer) else None
    if digest:
        found["tokenizer"] = str(digest)
    return found

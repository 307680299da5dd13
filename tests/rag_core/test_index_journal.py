"""Vectors that wait for a version: given back in any order, each file read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_core import index_journal
from rag_core.fingerprint import Fingerprint
from rag_core.index_journal import Journal

IDENTITY = Fingerprint("fake", "m", "1", 4, "fp32", "mean")


def test_vectors_come_back_in_the_order_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are asked for in the order of their ids, which need not be that of the batches."""
    journal = Journal(tmp_path, IDENTITY)
    tags = [number.to_bytes(16, "little") for number in range(60)]
    rows = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    for start in range(0, 60, 6):
        journal.add(tags[start : start + 6], rows[start : start + 6])
    loaded = []
    real = index_journal._vectors
    monkeypatch.setattr(index_journal, "_vectors", lambda path: loaded.append(path) or real(path))
    again = Journal(tmp_path, IDENTITY)
    order = [*np.random.default_rng(1).permutation(60).tolist(), 7, 7]
    assert again.fetch([tags[n] for n in order]).tolist() == rows[order].tolist()
    assert len(loaded) == len(set(loaded)) == 10
    assert again.fetch([]).shape == (0, 4)
    with pytest.raises(KeyError):
        again.fetch([b"\xff" * 16])

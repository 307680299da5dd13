"""An index written from a stream: bit for bit that of a build in memory, however small the blocks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core import bm25_write, packed_find, spill
from rag_core.analysis import Analyser
from rag_core.bm25 import BM25
from rag_core.errors import InvalidArgumentError
from rag_core.types import Document

RAW = Analyser.raw()
WORDS = st.sampled_from(["a", "the", "running", "correr", "海", "海辺で", "été", "x1", "naïve", "ß", "नमस्ते"])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
METADATA = st.dictionaries(st.sampled_from(["n", "lang", "é"]), st.sampled_from([1, "en", None, ["x"]]))
IDS = st.text(st.sampled_from("ab\U0001f600\ue000é"), min_size=1, max_size=4)
CORPORA = st.dictionaries(IDS, st.tuples(TEXTS, METADATA), max_size=25).map(
    lambda found: [Document(doc_id, text, "", fields) for doc_id, (text, fields) in found.items()]
)


def files(folder: Path) -> dict[str, bytes]:
    """The arrays of the index in ``folder``, and the counts of its manifest."""
    found = {path.name: path.read_bytes() for path in folder.glob("data-*/*")}
    described = (folder / "bm25.json").read_text().split('"k1"')[1]
    return {**found, "": described.encode()}


def descending(documents: list[Document]) -> list[Document]:
    return sorted(documents, key=lambda document: document.doc_id, reverse=True)


@settings(max_examples=120, deadline=None)
@given(
    CORPORA,
    st.sampled_from([1, 3, 10_000]),
    st.sampled_from([1, 2, 7, 1 << 18]),
    st.sampled_from([1, 4, 1 << 15]),
    st.sampled_from([("en", "es", "pt"), ()]),
)
def test_the_files_of_a_build_in_memory(
    documents: list[Document], texts: int, window: int, held: int, languages: tuple[str, ...]
) -> None:
    analyser = Analyser(languages)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25_write, "BLOCK_TEXTS", texts)
        patch.setattr(bm25_write, "WINDOW", window)
        patch.setattr(spill, "FEWEST", 1)
        patch.setattr(spill.merge, "__defaults__", (held,))
        BM25.build(documents, analyser).save(Path(folder) / "whole")
        BM25.write(Path(folder) / "parts", iter(descending(documents)), analyser)
        assert files(Path(folder) / "parts") == files(Path(folder) / "whole")


def test_other_constants_and_a_word_of_every_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term beyond the window is weighed a window at a time, over blocks of which each has a part."""
    rng = np.random.default_rng(5)
    documents = [
        Document(f"d{n:04d}", "every " * int(rng.integers(1, 4)) + f"w{rng.integers(50)} u{n}")
        for n in range(900)
    ]
    monkeypatch.setattr(bm25_write, "BLOCK_CHARS", 2_000)
    monkeypatch.setattr(bm25_write, "WINDOW", 64)
    BM25.build(documents, RAW, 0.9, 0.4).save(tmp_path / "whole")
    BM25.write(tmp_path / "parts", descending(documents), RAW, 0.9, 0.4)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert BM25.open(tmp_path / "parts").top("every u7", 1).doc_ids == ("d0007",)


@pytest.mark.parametrize("ids", [["a", "b"], ["b", "b"]])
def test_another_order_is_refused_and_nothing_is_left(tmp_path: Path, ids: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"comes behind 'b'|comes behind 'a'"):
        BM25.write(tmp_path, [Document(doc_id, "x") for doc_id in ids], RAW)
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's and numpy's own, at its highest: what a block takes, 12 bytes a document, and for the hash
    table 48 a word at most; here each document has a word of its own."""
    monkeypatch.setattr(bm25_write, "BLOCK_TEXTS", 500)
    monkeypatch.setattr(bm25_write, "WINDOW", 1 << 12)
    monkeypatch.setattr(packed_find, "HASHED", 500)
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    monkeypatch.setattr(spill.Spill.__init__, "__defaults__", (0,))
    monkeypatch.setattr("rag_core.analysis.KEPT_WORDS", 1000)
    monkeypatch.setattr(spill.merge, "__defaults__", (1000,))

    def stream(n: int) -> Iterator[Document]:
        for number in range(n - 1, -1, -1):
            yield Document(f"d{number:06d}", f"a passage of words and u{number}")

    def peak_bytes(n: int) -> int:
        tracemalloc.start()
        try:
            BM25.write(tmp_path / str(n), stream(n), Analyser.raw())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(10)  # what is imported
    small, large = peak_bytes(2_000), peak_bytes(12_000)
    assert (large - small) / 10_000 < 12 + 48

"""Chunks: nothing lost, nothing too long, nothing random."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.chunking import OVERSIZE, chunk
from rag_core.errors import InvalidArgumentError
from rag_core.source import Block, Source


def count(texts: Sequence[str]) -> list[int]:
    """A token for each four letters begun, and two that stand for those around a text."""
    return [2 + sum(-(-len(word) // 4) for word in re.findall(r"\S+", text)) for text in texts]


def jumpy(texts: Sequence[str]) -> list[int]:
    """A tokenizer whose parts cost less than their whole."""
    return [2 + len(re.findall(r"\S+", text)) + len(text) // 40 for text in texts]


WORD = st.one_of(
    st.text(st.characters(categories=("Lu", "Ll", "Nd")), min_size=1, max_size=12),
    st.sampled_from(["end.", "what?", "图书馆。", "北京是首都", "a" * 90, "\u00a0", "x,y", '"said."']),
)
PARAGRAPH = st.lists(WORD, min_size=1, max_size=60).map(" ".join)
BLOCKS = st.lists(
    st.tuples(PARAGRAPH, st.sampled_from(["", "A", "A > B"]), st.integers(0, 3)), max_size=8
).map(lambda rows: tuple(Block(text, section, page) for text, section, page in rows))
LIMITS = st.tuples(st.integers(8, 60), st.integers(0, 30)).map(
    lambda pair: (pair[0], min(pair[1], pair[0] // 2))
)


@settings(max_examples=150, deadline=None)
@given(BLOCKS, LIMITS, st.sampled_from([count, jumpy]), st.sampled_from(["", "A title", "long " * 40]))
def test_nothing_is_lost_and_nothing_is_too_long(
    blocks: tuple[Block, ...], limits: tuple[int, int], counter: type[count], title: str
) -> None:
    source = Source("s.md", title, blocks, {"lang": "en"})
    max_tokens, overlap = limits
    chunks = chunk(source, max_tokens=max_tokens, overlap=overlap, count_tokens=counter)
    assert chunks == chunk(source, max_tokens=max_tokens, overlap=overlap, count_tokens=counter)
    ids = [one.doc_id for one in chunks]
    assert len(set(ids)) == len(ids)
    for section in {block.section for block in blocks}:
        words = {word for block in blocks if block.section == section for word in block.text.split()}
        joined = "".join(one.text + " " for one in chunks if one.metadata["section"] == section)
        pieces = set(joined.split())
        for word in words - pieces:  # only texts written without blanks may be cut within a "word"
            assert not word.isascii()
            assert set(word) <= set(joined)
    for one in chunks:
        tokens = counter([one.indexed_text])[0]
        if OVERSIZE in one.metadata:
            assert one.metadata[OVERSIZE] == tokens > max_tokens
            assert len(one.text.split()) == 1
        else:
            assert tokens <= max_tokens
        assert one.metadata["source"] == "s.md"
        assert one.metadata["lang"] == "en"
    assert [one.metadata["chunk"] for one in chunks] == list(range(len(chunks)))


def test_sections_are_not_mixed_and_paragraphs_kept_whole() -> None:
    blocks = (
        Block("One\nfirst paragraph of four words", "One"),
        Block("second paragraph of five words here", "One"),
        Block("Two\nthird paragraph", "Two"),
    )
    chunks = chunk(Source("s", "T", blocks), max_tokens=12, overlap=0, count_tokens=jumpy)
    assert [one.text for one in chunks] == [
        "One\nfirst paragraph of four words",
        "second paragraph of five words here",
        "Two\nthird paragraph",
    ]
    assert [one.metadata["section"] for one in chunks] == ["One", "One", "Two"]
    assert {one.title for one in chunks} == {"T"}


def test_overlap_repeats_the_end_of_the_chunk_before() -> None:
    text = " ".join(f"w{i}" for i in range(100))
    chunks = chunk(Source("s", "", (Block(text),)), max_tokens=32, overlap=8, count_tokens=jumpy)
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        first = after.text.split()[0]
        assert first in before.text.split()
        shared = before.text.split()[before.text.split().index(first) :]
        assert after.text.split()[: len(shared)] == shared
        assert 1 <= len(shared) <= 8
    sentences = "First sentence here. Second one stands. Third is last. Fourth ends it."
    parts = chunk(Source("s", "", (Block(sentences),)), max_tokens=10, overlap=4, count_tokens=jumpy)
    assert parts[0].text == "First sentence here. Second one stands."
    assert parts[1].text.startswith("Second one stands. Third is last.")


def test_ids_survive_what_is_added_elsewhere() -> None:
    blocks = tuple(Block(f"paragraph number {i}", f"S{i}") for i in range(4))
    before = {one.text: one.doc_id for one in chunk(Source("s", "T", blocks), count_tokens=count)}
    more = (Block("something new", "S"), *blocks, blocks[0])
    after = chunk(Source("s", "T", more), count_tokens=count)
    assert before.items() <= {one.text: one.doc_id for one in after[:-1]}.items()
    assert after[-1].doc_id == before["paragraph number 0"] + "-2"
    assert all(re.fullmatch(r"s#[0-9a-f]{12}(-2)?", one.doc_id) for one in after)


def test_pages_are_those_where_a_chunk_s_own_text_begins() -> None:
    blocks = tuple(Block(f"text of page {page} " * 3, "", page) for page in (1, 2, 3))
    chunks = chunk(Source("s", "", blocks), max_tokens=16, overlap=4, count_tokens=jumpy)
    assert [one.metadata["page"] for one in chunks] == [1, 2, 3]
    assert "page" not in chunk(Source("s", "", (Block("x"),)), count_tokens=count)[0].metadata


def test_a_word_that_cannot_be_split_is_counted() -> None:
    chunks = chunk(
        Source("s", "", (Block("before " + "x" * 400 + " after"),)),
        max_tokens=20,
        count_tokens=count,
        overlap=4,
    )
    assert [OVERSIZE in one.metadata for one in chunks] == [False, True, False]
    assert chunks[1].metadata[OVERSIZE] == 102
    cjk = chunk(
        Source("s", "", (Block("图书馆" * 200),)),
        max_tokens=20,
        overlap=5,
        count_tokens=lambda t: [len(x) for x in t],
    )
    assert all(len(one.text) <= 20 for one in cjk)


def test_a_title_alone_is_a_document_and_nothing_is_none() -> None:
    assert [one.indexed_text for one in chunk(Source("s", "only a title", ()), count_tokens=count)] == [
        "only a title"
    ]
    assert chunk(Source("s", " ", (Block(" \n "),)), count_tokens=count) == []


def test_bad_limits() -> None:
    for limits in ({"max_tokens": 7}, {"max_tokens": 20, "overlap": 11}, {"overlap": -1}):
        with pytest.raises(InvalidArgumentError, match="accepted"):
            chunk(Source("s", "", ()), count_tokens=count, **limits)

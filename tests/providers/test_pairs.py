"""Rows of token ids for a query and a candidate, with a letter a token."""

from __future__ import annotations

import pytest

from providers._pairs import PairEncoder
from rag_core.errors import InvalidArgumentError, ProviderUnavailableError

tokenizers = pytest.importorskip("tokenizers", reason="needs pip install 'rag-core-bench[onnx]'")
PAD, UNK, CLS, SEP = range(4)


def make(template: bool = True, doubled: bool = False):
    letters = {
        word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"])
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if template:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] [SEP] $B [SEP]" if doubled else "[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
        )
    return tokenizer


def ids(text: str) -> list[int]:
    return [ord(letter) - ord("a") + 4 for letter in text]


def spaced(text: str) -> str:
    return " ".join(text)


def test_the_tokenizers_own_template_is_used() -> None:
    (pair,) = PairEncoder("x", make(), 32).pairs("a b", ["c d e"])
    assert pair.rows == [([CLS, *ids("ab"), SEP, *ids("cde"), SEP], [0, 0, 0, 0, 1, 1, 1, 1])]
    assert not pair.is_cut
    (pair,) = PairEncoder("x", make(doubled=True), 32).pairs("a b", ["c d e"])
    assert pair.rows == [([CLS, *ids("ab"), SEP, SEP, *ids("cde"), SEP], [0] * 9)]


def test_types_are_left_out_where_the_model_knows_none() -> None:
    (pair,) = PairEncoder("x", make(), 32, has_types=False).pairs("a b", ["c d e"])
    assert pair.rows == [([CLS, *ids("ab"), SEP, *ids("cde"), SEP], [0] * 8)]


@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("query", ["", "a b", spaced("abcdefghijklmnopqrstuvwxyz" * 2)])
@pytest.mark.parametrize("candidate", ["", "c", spaced("zyxwvutsrqponmlkjihgfedcba" * 3)])
def test_equal_to_the_tokenizer_wherever_nothing_is_cut(doubled: bool, query: str, candidate: str) -> None:
    reference = make(doubled=doubled).encode(query, candidate)
    (pair,) = PairEncoder("x", make(doubled=doubled), 512).pairs(query, [candidate])
    assert pair.rows == [(reference.ids, reference.type_ids)]


def test_the_query_may_not_use_up_more_than_half_and_the_end_stands() -> None:
    """O31: a query longer than the window leaves the candidate its half."""
    encoder = PairEncoder("x", make(), 23)  # 20 places beside the template
    long = spaced("a" * 600)
    (pair,) = encoder.pairs(long, [spaced("bcdefghijklmno")])
    row = pair.rows[0].ids
    assert row == [CLS, *ids("a" * 10), SEP, *ids("bcdefghijk"), SEP]
    assert pair.is_cut
    (short,) = encoder.pairs(long, ["b"])
    assert short.rows[0].ids == [CLS, *ids("a" * 10), SEP, *ids("b"), SEP]
    assert short.is_cut, "the query lost its end, though the candidate did not"


def test_a_short_query_leaves_its_room_to_the_candidate() -> None:
    whole, cut = PairEncoder("x", make(), 23).pairs("a", [spaced("b" * 19), spaced("b" * 20)])
    assert len(whole.rows[0].ids) == len(cut.rows[0].ids) == 23
    assert (whole.is_cut, cut.is_cut) == (False, True)


@pytest.mark.parametrize(
    "length, starts", [(8, [0]), (9, [0, 1]), (14, [0, 6]), (15, [0, 4, 7]), (20, [0, 6, 12])]
)
def test_windows_overlap_and_reach_the_end(length: int, starts: list[int]) -> None:
    text = "abcdefghijklmnopqrstuvwxyz"[:length]
    (pair,) = PairEncoder("x", make(), 32, windows=8).pairs("z", [spaced(text)])
    assert [row.ids[3:-1] for row in pair.rows] == [ids(text[start : start + 8]) for start in starts]
    assert all(row.ids[-1] == SEP for row in pair.rows)
    assert not pair.is_cut


def test_a_window_is_never_wider_than_the_room() -> None:
    (pair,) = PairEncoder("x", make(), 23, windows=500).pairs(spaced("a" * 10), [spaced("b" * 30)])
    assert [len(row.ids) for row in pair.rows] == [23] * len(pair.rows)
    assert len(pair.rows) == 4


def test_template_tokens_spelt_in_a_text_do_not_steer_the_model() -> None:
    (pair,) = PairEncoder("x", make(), 32).pairs("a [SEP]", ["b [SEP] [CLS] c"])
    assert pair.rows[0].ids.count(SEP) == 2
    assert pair.rows[0].ids.count(CLS) == 1
    assert pair.rows[0].ids[:2] == [CLS, *ids("a")]


def test_the_padding_id_is_found_or_given() -> None:
    assert PairEncoder("x", make(), 32).pad == PAD
    assert PairEncoder("x", make(), 32, pad=5).pad == 5


def test_truncation_and_padding_of_the_file_are_undone() -> None:
    tokenizer = make()
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=12)
    (pair,) = PairEncoder("x", tokenizer, 64).pairs("a", [spaced("b" * 30)])
    assert len(pair.rows[0].ids) == 1 + 30 + 3


def test_a_tokenizer_without_a_pair_template_is_refused() -> None:
    with pytest.raises(
        ProviderUnavailableError, match=r"x is not available: tokenizer\.json has no template"
    ):
        PairEncoder("x", make(template=False), 32)


def test_too_small_a_window_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="option max_tokens is 10; accepted: from 11 "):
        PairEncoder("x", make(), 10)
    PairEncoder("x", make(), 11)

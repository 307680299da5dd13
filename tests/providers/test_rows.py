from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from providers._onnx import session_call
from providers._rows import Row, RowRunner, batches_by_length


class Session:
    """Sums of the ids that the mask keeps, or every id as a vector of two."""

    def __init__(
        self, inputs: tuple[str, ...] = ("input_ids", "attention_mask"), tokens: bool = False
    ) -> None:
        self.inputs, self.tokens, self.shapes, self.fed = inputs, tokens, [], []
        self.threads: set[str] = set()

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self.inputs]

    def run(self, outputs: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.shapes.append(feed["input_ids"].shape)
        self.fed.append(feed)
        self.threads.add(threading.current_thread().name)
        ids = feed["input_ids"]
        if self.tokens:
            return [np.stack([ids, -ids], axis=2)]
        return [(ids * feed["attention_mask"]).sum(axis=1, keepdims=True)]


def row(*ids: int) -> Row:
    return Row(list(ids), [1] * len(ids))


ROWS = [row(1), row(2, 3, 4), row(5, 6), row(7, 8, 9, 10), row(11)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("budget", [0, 6, 100])
def test_answers_come_back_in_the_order_of_the_rows(threads: int, budget: int) -> None:
    runner = RowRunner(session_call(Session(), "logits"), threads, budget, pad=99)
    assert [int(answer.item()) for answer in runner.run(ROWS)] == [1, 9, 11, 34, 11]
    assert runner.run([]) == []


def test_no_budget_gives_every_row_a_call_of_its_own() -> None:
    session = Session()
    RowRunner(session_call(session, "logits"), 1, 0).run(ROWS)
    assert session.shapes == [(1, 4), (1, 3), (1, 2), (1, 1), (1, 1)]


def test_like_lengths_share_a_call_and_are_padded_with_the_models_id() -> None:
    session = Session(("input_ids", "token_type_ids", "attention_mask"))
    RowRunner(session_call(session, "logits"), 1, 8, pad=99).run(ROWS)
    assert session.shapes == [(2, 4), (3, 2)]
    assert session.fed[0]["input_ids"].tolist() == [[7, 8, 9, 10], [2, 3, 4, 99]]
    assert session.fed[0]["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert session.fed[0]["token_type_ids"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_only_the_inputs_of_the_model_are_fed() -> None:
    session = Session(("input_ids",), tokens=True)
    RowRunner(session_call(session, "last_hidden_state"), 1, 8).run(ROWS)
    assert list(session.fed[0]) == ["input_ids"]


def test_token_outputs_lose_their_padding() -> None:
    answers = RowRunner(session_call(Session(tokens=True), "last_hidden_state"), 1, 100).run(ROWS)
    assert [answer.shape for answer in answers] == [(1, 2), (3, 2), (2, 2), (4, 2), (1, 2)]
    assert answers[1].tolist() == [[2, -2], [3, -3], [4, -4]]
    assert answers[1].dtype == np.float32


def test_one_call_stays_on_the_callers_thread() -> None:
    session = Session()
    RowRunner(session_call(session, "logits"), 2, 100).run(ROWS)
    assert session.threads == {threading.current_thread().name}


def test_groups_hold_like_lengths_within_the_budget() -> None:
    lengths = [5, 100, 7, 6, 90, 300, 5]
    groups = batches_by_length(lengths, token_budget=200)
    assert groups == [[5], [1, 4], [2, 3, 0, 6]]
    assert batches_by_length([], 200) == []


def test_the_budget_counts_what_is_padded_to_a_multiple() -> None:
    assert batches_by_length([9, 9, 9], 27) == [[0, 1, 2]]
    assert batches_by_length([9, 9, 9], 27, multiple=8) == [[0], [1], [2]]


def test_a_batch_size_replaces_the_budget() -> None:
    assert batches_by_length([9, 1, 8, 7, 2], 4, batch_size=2) == [[0, 2], [3, 4], [1]]
    session = Session()
    runner = RowRunner(session_call(session, "logits"), 1, 4)
    runner.batch_size = 3
    assert [int(answer.item()) for answer in runner.run(ROWS)] == [1, 9, 11, 34, 11]
    assert session.shapes == [(3, 4), (2, 1)]


def test_a_row_much_shorter_than_the_longest_gets_a_call_of_its_own() -> None:
    lengths = [43, 40, 22, 18, 17, 6]
    assert batches_by_length(lengths, 256) == [[0, 1, 2, 3, 4], [5]]
    assert batches_by_length(lengths, 256, padding=12) == [[0, 1], [2, 3, 4], [5]]
    assert batches_by_length(lengths, 256, padding=16) == [[0, 1], [2, 3, 4, 5]]
    assert batches_by_length(lengths, 60, padding=12) == [[0], [1], [2, 3], [4, 5]]
    assert batches_by_length(lengths, 256, batch_size=4, padding=1) == [[0, 1, 2, 3], [4, 5]]
    seen: list[tuple[int, ...]] = []

    def call(ids: Any, mask: Any, types: Any) -> Any:
        seen.append(ids.shape)
        return ids[:, 0].astype(np.float32)

    rows = [Row([length] * length, [0] * length) for length in lengths]
    answers = RowRunner(call, 1, 256, padding=12).run(rows)
    assert [int(answer) for answer in answers] == lengths
    assert seen == [(2, 43), (3, 22), (1, 6)]


def test_every_position_is_in_one_group() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 257, 500).tolist()
    groups = batches_by_length(lengths, 512)
    assert sorted(i for group in groups for i in group) == list(range(500))
    assert all(len(group) == 1 or len(group) * max(lengths[i] for i in group) <= 512 for group in groups)


def test_rows_are_padded_to_a_multiple_and_token_outputs_cut_back() -> None:
    session = Session(tokens=True)
    runner = RowRunner(session_call(session, "last_hidden_state"), 1, 100, multiple=8)
    assert [len(answer) for answer in runner.run(ROWS)] == [1, 3, 2, 4, 1]
    assert session.shapes == [(5, 8)]

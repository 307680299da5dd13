"""Pauses after failures, members that are made when needed, whose fault an error is."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.chain import Breaker, Member, Pauses, is_providers_fault, members
from rag_core.errors import (
    BudgetExceededError,
    InvalidArgumentError,
    NoFallbackError,
    PartialEmbedError,
    PermanentError,
    ProviderError,
    ProviderUnavailableError,
    RagCoreError,
    SpecStringError,
    TransientError,
    UnknownNameError,
)
from rag_core.factory import get_embedder
from rag_core.registry import EMBEDDERS


def test_pauses_double_up_to_the_last_and_end_with_an_answer(clock: Any) -> None:
    breaker = Breaker(Pauses(5, 30, clock))
    waits = []
    for _ in range(5):
        assert breaker.let_through()
        breaker.failed()
        waits.append(breaker.wait_s)
        assert not breaker.let_through()
        clock.now += breaker.wait_s
    assert waits == [5, 10, 20, 30, 30]
    assert breaker.let_through()
    breaker.worked()
    assert breaker.wait_s == 0
    breaker.failed()
    assert breaker.wait_s == 5


def test_one_caller_tries_after_a_pause_and_the_others_stay_away(clock: Any) -> None:
    breaker = Breaker(Pauses(5, 30, clock))
    breaker.failed()
    clock.now += 5
    allowed = []
    threads = [threading.Thread(target=lambda: allowed.append(breaker.let_through())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(allowed) == [False] * 7 + [True]
    breaker.let_go()
    assert breaker.let_through()
    clock.now += 5  # that one never said how it went
    assert breaker.let_through()


def test_letting_go_of_what_works_changes_nothing(clock: Any) -> None:
    breaker = Breaker(Pauses(5, 30, clock))
    assert breaker.let_through()
    breaker.let_go()
    assert breaker.wait_s == 0


def test_the_wait_that_a_service_asks_for_counts_up_to_the_last_pause(clock: Any) -> None:
    member: Member[str] = Member("a", "a", lambda: "a", Pauses(1, 60, clock))
    member.pause(TransientError("slow down", 429, retry_after_s=40))
    assert member.breaker.wait_s == 40
    member.breaker.worked()
    member.pause(TransientError("slow down", 429, retry_after_s=9999))
    assert member.breaker.wait_s == 60
    member.breaker.worked()
    partial = PartialEmbedError("a", np.zeros((1, 2), np.float32), {0: "later"}, True)
    partial.__cause__ = TransientError("slow down", 429, retry_after_s=7)
    member.pause(partial)
    assert member.breaker.wait_s == 7


@given(st.lists(st.booleans(), max_size=80))
def test_a_pause_never_passes_the_last_one(outcomes: list[bool]) -> None:
    breaker = Breaker(Pauses(0.5, 8, lambda: 0.0))
    for works in outcomes:
        breaker.worked() if works else breaker.failed()
        assert 0 <= breaker.wait_s <= 8
        assert (breaker.wait_s == 0) == works


@pytest.mark.parametrize("first_s, last_s", [(-1, 5), (6, 5), (1, float("inf")), (float("nan"), 5)])
def test_pauses_refuse_what_is_none(first_s: float, last_s: float) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted"):
        Pauses(first_s, last_s)


PERMANENT_401 = PermanentError("wrong key", 401)
VECTORS = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    "error, expected",
    [
        (TransientError("down", 503), True),
        (ProviderUnavailableError("a", "no key"), True),
        (NoFallbackError("nobody", {}), True),
        (ConnectionRefusedError(), True),
        (PERMANENT_401, True),
        (PermanentError("no such model", 404), True),
        (PermanentError("nonsense", 0), True),
        (PermanentError("bad text", 400), None),
        (PermanentError("bad text", 422), None),
        (ProviderError("?"), None),
        (PartialEmbedError("a", VECTORS, {0: "bad"}), False),
        (PartialEmbedError("a", VECTORS, {0: "later"}, True), True),
        (InvalidArgumentError("texts"), False),
        (BudgetExceededError("a", 1, 1, 1), False),
        (RagCoreError("?"), False),
    ],
)
def test_whose_fault(error: Exception, expected: bool | None) -> None:
    assert is_providers_fault(error) is expected


def test_a_partial_result_that_a_wrong_key_ended_is_the_providers_fault() -> None:
    partial = PartialEmbedError("a", VECTORS, {0: "ended early"})
    partial.__cause__ = PERMANENT_401
    assert is_providers_fault(partial) is True


def test_spec_strings_are_checked_and_not_loaded() -> None:
    made = []
    chain = members(["fake", "fake-cohere@cpu"], EMBEDDERS, made.append, Pauses())  # type: ignore[arg-type]
    assert [member.name for member in chain] == ["fake", "fake-cohere"]
    assert made == []
    for bad, error in (("", SpecStringError), ("fakee", UnknownNameError), ("fake@mars", SpecStringError)):
        with pytest.raises(error):
            members(["fake", bad], EMBEDDERS, get_embedder, Pauses())
    for nothing in ([], "fake"):
        with pytest.raises(InvalidArgumentError, match="list"):
            members(nothing, EMBEDDERS, get_embedder, Pauses())


def test_a_key_in_a_spec_string_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError, match="environment") as caught:
        members(["fake?api_key=sk-planted-0123456789"], EMBEDDERS, get_embedder, Pauses())
    assert "planted" not in str(caught.value)


def test_labels_hide_the_password_of_an_address_and_places_tell_namesakes_apart() -> None:
    chain = members(
        ["openai?base_url=http://me:planted-secret@localhost:1/v1", "openai"],
        EMBEDDERS,
        get_embedder,
        Pauses(),
    )
    assert "planted" not in chain[0].label
    assert "localhost" in chain[0].label
    assert [member.key for member in chain] == ["openai (place 1)", "openai (place 2)"]


def test_what_does_not_load_is_unavailable_and_tried_anew() -> None:
    outcomes: list[Any] = [OSError("libcuda is missing"), ProviderUnavailableError("x", "no key"), "made"]

    def make() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    member: Member[str] = Member("x", "x", make, Pauses())
    with pytest.raises(ProviderUnavailableError, match="libcuda"):
        member.get()
    with pytest.raises(ProviderUnavailableError, match="no key"):
        member.get()
    assert member.made is None
    assert member.get() == member.get() == "made"


@pytest.mark.parametrize(
    "error",
    [NoFallbackError("nobody", {"a": "down"}, 2.5), BudgetExceededError("a", 0.5, 0.75, 1.0)],
)
def test_the_errors_travel_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

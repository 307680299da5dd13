"""A reranker that is given up on when it takes too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from rag_core.errors import InvalidArgumentError, ProviderError, TransientError
from rag_core.protocols import Reranker, Target
from rag_core.timelimit import TimeLimitedReranker


class Held:
    """A reranker that answers when it is let go."""

    name, model, fingerprint, languages = "held", "m", "held/1", ("en",)
    target: Target = "cpu"

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), 0
        self.error: BaseException | None = None

    def is_available(self) -> bool:
        return True

    def rerank(self, query: str, candidates: Sequence[str]) -> list[float]:
        self.asked += 1
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error
        return [float(len(text)) for text in candidates]


@pytest.fixture
def held() -> Iterator[Held]:
    reranker = Held()
    yield reranker
    reranker.go.set()


def test_in_time_it_is_the_reranker_itself(held: Held) -> None:
    held.go.set()
    limited = TimeLimitedReranker(held, 60)
    assert isinstance(limited, Reranker)
    assert limited.rerank("q", ["a", "bcd"]) == [1.0, 3.0]
    assert (limited.name, limited.fingerprint, limited.languages) == ("held", "held/1", ("en",))
    assert limited.is_available()


def test_too_late_is_an_error_and_the_next_call_does_not_wait(held: Held) -> None:
    limited = TimeLimitedReranker(held, 0.02)
    with pytest.raises(TransientError, match=r"held took longer than 0\.02 s"):
        limited.rerank("q", ["a"])
    with pytest.raises(TransientError, match="still busy"):
        limited.rerank("q", ["a"])
    assert held.asked == 1
    assert not limited.is_available()


def test_once_the_late_call_has_ended_it_is_asked_again(held: Held) -> None:
    limited = TimeLimitedReranker(held, 0.02)
    with pytest.raises(TransientError):
        limited.rerank("q", ["a"])
    late = limited._late
    assert late is not None
    held.go.set()
    late.join(60)
    limited.limit_s = 60
    assert limited.rerank("q", ["a"]) == [1.0]


def test_errors_of_the_reranker_reach_the_caller(held: Held) -> None:
    held.error = ProviderError("no")
    held.go.set()
    with pytest.raises(ProviderError, match="no"):
        TimeLimitedReranker(held, 60).rerank("q", ["a"])


@pytest.mark.parametrize("limit_s", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_number_above_0(held: Held, limit_s: float) -> None:
    with pytest.raises(InvalidArgumentError, match="rerank timeout"):
        TimeLimitedReranker(held, limit_s)

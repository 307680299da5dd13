from __future__ import annotations

from collections.abc import Mapping

import pytest

from rag_core.wire import Reply, Send, tapped, through


def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
    return 200, {}, url.encode()


def marking(mark: str) -> object:
    def wrap(inner: Send) -> Send:
        def marked(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
            return inner(method, url + mark, headers, body)

        return marked

    return wrap


def test_without_a_tap_the_sender_is_itself() -> None:
    assert through(send) is send


def test_the_tap_entered_last_stands_outermost_and_leaves_with_its_block() -> None:
    with tapped(marking("a")), tapped(marking("b")):
        assert through(send)("GET", "", {}, None)[2] == b"ba"
    assert through(send) is send


def test_a_tap_leaves_after_an_error() -> None:
    with pytest.raises(KeyError), tapped(marking("a")):
        raise KeyError
    assert through(send) is send

"""Addresses of servers. Connections are in test_surrealdb.py, where the package is needed."""

from __future__ import annotations

import pytest

from rag_core.errors import InvalidArgumentError
from rag_core.stores.surreal_link import checked_url


@pytest.mark.parametrize("url", ["ws://localhost:8000", "wss://db.example.org/rpc"])
def test_servers(url: str) -> None:
    assert checked_url(url) == url


@pytest.mark.parametrize("url", ["", "localhost:8000", "http://x", "ws://", "surrealkv://folder"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="accepted: ws://host:port"):
        checked_url(url)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="RAG_SURREAL_PASSWORD") as caught:
        checked_url("ws://boss:hunter22@db.example.org")
    assert "hunter22" not in str(caught.value)
    assert "boss" not in str(caught.value)

from __future__ import annotations

import pytest

from rag_core.secrets import hide_pieces, mask, redact, safe_repr


class Client:
    name = "cohere"


@pytest.mark.parametrize(
    "field",
    ["api_key", "key", "token", "client_secret", "password", "Authorization", "credentials", "API_KEYS"],
)
def test_fields_named_like_a_key_are_masked(field: str) -> None:
    shown = safe_repr(Client(), **{field: "sk-123456", "model": "m"})
    assert "sk-123456" not in shown
    assert shown == f"Client({field}=cohere-***, model='m')"


def test_an_empty_key_is_seen_to_be_empty() -> None:
    assert safe_repr(Client(), api_key="") == "Client(api_key='')"


def test_fields_that_only_sound_alike_are_shown() -> None:
    assert (
        safe_repr(Client(), max_tokens_per_call=5, keyboard="x")
        == "Client(max_tokens_per_call=5, keyboard='x')"
    )


def test_without_a_name() -> None:
    assert mask("") == "***"
    assert safe_repr(object(), key="sk-123456") == "object(key=***)"


def test_values_of_secret_variables_are_taken_out_of_any_text() -> None:
    env = {
        "COHERE_API_KEY": "sk-abcdef",
        "HF_TOKEN": "hf_123456",
        "SHORT_KEY": "abc",
        "HOME": "/home/me",
        "EMPTY_KEY": "",
    }
    text = "401 for sk-abcdef and hf_123456 (sk-abcdef) in /home/me, abc"
    assert redact(text, env) == "401 for cohere-*** and hf_token-*** (cohere-***) in /home/me, abc"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-very-secret")
    assert redact("key pa-very-secret") == "key voyage-***"


def test_pieces_of_a_key_are_hidden() -> None:
    assert hide_pieces("key abcdefghij, or abcdef…, not abcde", "abcdefghij") == "key ***, or ***…, not abcde"
    assert hide_pieces("xabcdefabcdefx", "abcdef", "k-***") == "xk-***x"
    assert hide_pieces("abc", "abcdef") == "abc"
    assert hide_pieces("abcde", "abcde") == "abcde", "shorter secrets would hide ordinary words"

"""The transport over a sender that is scripted: no socket, no waiting."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest

from providers._http import BatchRefusedError, Transport
from providers._pacing import Timers
from providers._send import is_loopback, scrubber
from rag_core.errors import PermanentError, TransientError
from rag_core.wire import Reply, WireError, tapped

NOW = 1_795_000_000.0


class Clock:
    """Time that passes only when somebody sleeps; half of the jitter, always."""

    def __init__(self) -> None:
        self.at, self.slept = 0.0, []
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.at += seconds

    def timers(self) -> Timers:
        return Timers(lambda: self.at, self.sleep, lambda: 0.5, lambda: NOW + self.at)


class Script:
    """Answers in turn: a status, a (status, headers, value), or an exception."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.sent = list(answers), []

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        self.sent.append((method, url, dict(headers), body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, headers, value = answer if isinstance(answer, tuple) else (answer, {}, {})
        return status, headers, value if isinstance(value, bytes) else json.dumps(value).encode()


def made(script: Script, clock: Clock | None = None, **options: Any) -> Transport:
    return Transport(
        "acme", "https://api.acme.test/v1", script, timers=(clock or Clock()).timers(), **options
    )


def test_a_good_answer() -> None:
    script = Script((200, {}, {"ok": "é"}))
    transport = made(script)
    assert transport.post("/embed", {"input": ["é"]}, texts=1) == {"ok": "é"}
    ((method, url, headers, body),) = script.sent
    assert (method, url) == ("POST", "https://api.acme.test/v1/embed")
    assert headers == {"accept": "application/json", "content-type": "application/json"}
    assert json.loads(body or b"") == {"input": ["é"]}
    assert (transport.stats.requests, transport.stats.texts, transport.stats.retries) == (1, 1, 0)
    assert list(transport.stats.latency_s) == [0.0]
    assert transport.get("/models") == {"ok": "é"}
    assert script.sent[1][3] is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 422, 301, 501 - 100])
def test_o17_what_is_permanent_is_asked_once(status: int) -> None:
    script = Script((status, {"retry-after": "1"}, {"error": {"message": "no such thing"}}))
    transport, clock = made(script, key_name="ACME_API_KEY"), Clock()
    with pytest.raises(PermanentError) as error:
        transport.post("/embed", {})
    assert error.value.status == status
    assert str(error.value).startswith(f"acme: api.acme.test/v1/embed answered HTTP {status}: no such thing")
    assert ("check ACME_API_KEY" in str(error.value)) == (status in (401, 403))
    assert len(script.sent) == 1
    assert clock.slept == []


@pytest.mark.parametrize("failure", [408, 409, 429, 500, 502, 503, 504, 529, WireError("broke off")])
def test_what_passes_is_tried_again_with_back_off(failure: Any) -> None:
    script, clock = Script(failure, failure, 200), Clock()
    transport = made(script, clock)
    assert transport.post("/embed", {}) == {}
    assert clock.slept == [0.25, 0.5]
    assert transport.stats.waited_s == 0.75
    assert (transport.stats.requests, transport.stats.retries) == (3, 2)
    assert transport.stats.n_429 == (2 if failure == 429 else 0)
    assert len(transport.stats.latency_s) == 1


def test_an_answer_that_is_no_json_is_tried_again() -> None:
    for wrong in (b"<html>", b'{"cut": [', b"[1]"):
        assert made(Script((200, {}, wrong), 200)).post("/embed", {}) == {}


def test_the_tries_end() -> None:
    script = Script((503, {}, {"detail": "over\n  loaded"}))
    with pytest.raises(TransientError, match="HTTP 503: over loaded; gave up after 4 tries") as error:
        made(script, max_tries=4).post("/embed", {})
    assert (len(script.sent), error.value.status, error.value.retry_after_s) == (4, 503, None)
    script = Script(WireError("cannot be reached"))
    with pytest.raises(
        TransientError, match=r"acme: api\.acme\.test/v1/embed cannot be reached; gave up"
    ) as error:
        made(script, max_tries=2).post("/embed", {})
    assert error.value.status == 0


def test_the_tries_of_an_inner_error_can_end_sooner() -> None:
    script = Script(500)
    with pytest.raises(TransientError) as error:
        made(script).post("/embed", {}, max_500=2)
    assert (len(script.sent), error.value.status) == (2, 500)
    script = Script(503, 503, 503, 200)
    assert made(script).post("/embed", {}, max_500=2) == {}


def test_o17_retry_after_in_seconds_is_obeyed() -> None:
    script, clock = Script((429, {"retry-after": "3"}, {}), (429, {"retry-after": "3"}, {}), 200), Clock()
    transport = made(script, clock)
    transport.post("/embed", {})
    assert len(clock.slept) == 2
    assert all(3 <= seconds <= 4 for seconds in clock.slept)
    assert transport.stats.waited_s == sum(clock.slept)
    assert list(transport.stats.latency_s) == [0.0], "waiting is no latency"


def test_o17_retry_after_as_a_date_is_obeyed() -> None:
    script, clock = Script((503, {"retry-after": formatdate(NOW + 20, usegmt=True)}, {}), 200), Clock()
    made(script, clock).post("/embed", {})
    assert 20 <= clock.slept[0] <= 21


@pytest.mark.parametrize("value", ["nan", "-10", "", "soon", "inf"])
def test_o17_a_senseless_retry_after_falls_back_to_back_off(value: str) -> None:
    script, clock = Script((429, {"retry-after": value}, {}), 200), Clock()
    made(script, clock).post("/embed", {})
    assert clock.slept == [0.25]


def test_o17_above_the_ceiling_it_fails_at_once_with_the_value() -> None:
    script, clock = Script((429, {"retry-after": "99999"}, {})), Clock()
    with pytest.raises(TransientError, match="asks to wait 99999 s, more than the 60 s") as error:
        made(script, clock).post("/embed", {})
    assert (error.value.status, error.value.retry_after_s, clock.slept, len(script.sent)) == (
        429,
        99999.0,
        [],
        1,
    )
    made(Script((429, {"retry-after": "99"}, {}), 200), max_wait_s=120).post("/embed", {})


def test_used_up_credit_is_not_waited_for() -> None:
    quota = {"error": {"message": "insufficient_quota: check your plan and billing details"}}
    script = Script((429, {}, quota))
    with pytest.raises(TransientError):
        made(script).post("/embed", {})
    assert len(script.sent) == 1


@pytest.mark.parametrize(
    "status, message",
    [
        (413, "Payload Too Large"),
        (400, "max tokens per batch is 120000"),
        (400, "This model's maximum context length is 8192 tokens"),
        (422, "batch size 96 > maximum allowed batch size 32"),
        (500, "the input length exceeds the context length"),
        (500, "failed to encode response: json: unsupported value: NaN"),
    ],
)
def test_o16_o08_what_only_a_smaller_request_cures_is_never_sent_again(status: int, message: str) -> None:
    script = Script((status, {}, {"error": message}))
    with pytest.raises(BatchRefusedError) as error:
        made(script).post("/embed", {})
    assert (len(script.sent), error.value.status) == (1, status)


def test_one_pause_holds_all_threads() -> None:
    clock = Clock()
    transport = made(Script((429, {"retry-after": "30"}, {}), 200), clock)
    transport.post("/embed", {})
    before = clock.at
    transport.send = Script((429, {"retry-after": "30"}, {}))
    transport.max_tries = 1
    with pytest.raises(TransientError):
        transport.post("/embed", {})
    assert clock.at == before
    transport._resume_at = clock.at + 12  # what another thread was told
    transport.send = Script(200)
    transport.post("/embed", {})
    assert clock.at == before + 12


def test_requests_a_minute_are_kept() -> None:
    clock = Clock()
    transport = made(Script(200), clock, rpm=60)
    for _ in range(60):
        transport.post("/embed", {})
    assert clock.at == pytest.approx(60, abs=1)
    assert transport.stats.waited_s == pytest.approx(clock.at)


def test_tokens_a_minute_are_kept_and_corrected_by_what_was_used() -> None:
    clock = Clock()
    transport = made(Script(200), clock, tpm=6000)
    transport.post("/embed", {}, tokens=600)
    assert clock.at == 0
    transport.settle(600, 60)
    transport.post("/embed", {}, tokens=540)
    assert clock.at == 0
    assert transport.stats.tokens == 60
    transport.post("/embed", {}, tokens=90)
    assert clock.at == pytest.approx(1.0)


def test_no_more_requests_at_once_than_allowed() -> None:
    running, most, lock = [0], [0], threading.Lock()
    gate = threading.Barrier(3, timeout=10)

    def send(*args: Any) -> Reply:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait()
        with lock:
            running[0] -= 1
        return 200, {}, b"{}"

    transport = Transport("acme", "https://api.acme.test", send, concurrency=3)
    with ThreadPoolExecutor(9) as pool:
        list(pool.map(lambda _: transport.post("/embed", {}), range(9)))
    assert most[0] == 3
    assert transport.stats.requests == 9


def test_latency_samples_are_bounded() -> None:
    transport = made(Script(200))
    for _ in range(3):
        transport.post("/x", {})
    assert transport.stats.latency_s.maxlen == 10_000


def test_a_tap_sees_every_request_and_no_key() -> None:
    seen = []

    def wrap(inner: Any) -> Any:
        def recorded(*sent: Any) -> Reply:
            seen.append(sent)
            return inner(*sent)

        return recorded

    transport = made(Script(200))
    with tapped(wrap):
        transport.post("/embed", {"a": 1})
    transport.post("/embed", {})
    assert seen == [
        (
            "POST",
            "https://api.acme.test/v1/embed",
            {"accept": "application/json", "content-type": "application/json"},
            b'{"a": 1}',
        )
    ]


def test_what_a_service_repeats_of_a_key_is_masked() -> None:
    key = "sk-acme-0123456789abcdef"
    message = f"Incorrect API key: {key[:8]}********{key[-7:]} ({key}); see our pages"
    transport = made(Script((401, {}, {"error": {"message": message}})), scrub=scrubber("acme", key))
    with pytest.raises(PermanentError) as error:
        transport.post("/embed", {})
    shown = str(error.value)
    assert not any(key[i : i + 6] in shown for i in range(len(key) - 5))
    assert "acme-***" in shown
    assert "see our pages" in shown
    assert repr(transport) == "Transport(acme, api.acme.test/v1)"


def test_short_keys_and_no_key_leave_texts_alone() -> None:
    assert scrubber("acme", "")("some text") == "some text"
    assert scrubber("acme", "abc")("abc some text") == "abc some text"


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.1", "http://127.8.0.1/x", "http://[::1]:80"]
)
def test_this_machine(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url", ["https://api.acme.test", "http://127.0.0.1.evil.test", "http://10.0.0.1", "http://localhost.test"]
)
def test_other_machines(url: str) -> None:
    assert not is_loopback(url)

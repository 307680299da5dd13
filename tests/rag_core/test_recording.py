"""Requests and answers kept in a folder, and given again from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import InvalidArgumentError, PermanentError
from rag_core.recording import (
    MissingRecordingError,
    Recorder,
    Replayer,
    check_folder,
    record_to,
    replay_from,
    request_digest,
)
from rag_core.registry import Registry, Spec
from rag_core.wire import Reply, WireError

URL = "https://service.test:8443/v2/embed"
BODY = json.dumps({"model": "m", "texts": ["maçã", "two"]}, ensure_ascii=False).encode()
KEY = "Zq7vKp2mXw9rTb4nYc6hLd8s"


class Scripted:
    """Answers one reply after the other."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies, self.closed = list(replies), False

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        self.closed = True


def good(value: Any) -> Reply:
    return 200, {"set-cookie": f"session={KEY}", "x-request-id": "7"}, json.dumps(value).encode()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


def test_an_answer_is_given_again_to_the_last_bit(tmp_path: Path) -> None:
    value = {"embeddings": [[0.1, 1 / 3, -5e-324, 1e300, 2]], "text": "maçã 図"}
    inner = Scripted(good(value))
    recorder = Recorder(inner, tmp_path)
    answered = recorder("POST", URL, {}, BODY)
    assert answered == good(value)
    status, headers, raw = Replayer(tmp_path)("POST", URL, {}, BODY)
    assert (status, dict(headers), json.loads(raw)) == (200, {}, value)
    recorder.close()
    assert inner.closed


def test_a_file_is_strict_json_named_by_the_request(tmp_path: Path) -> None:
    Recorder(Scripted(good({"rows": [math.nan, math.inf]})), tmp_path)("POST", URL, {}, BODY)
    [file] = files(tmp_path)
    digest = request_digest("POST", URL, BODY)
    assert file.parent.name + file.stem == digest
    kept = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert kept["path"] == "/v2/embed"
    assert kept["body"] == json.loads(BODY)
    assert "service.test" not in file.read_text()
    rows = json.loads(Replayer(tmp_path)("POST", URL, {}, BODY)[2])["rows"]
    assert math.isnan(rows[0])
    assert rows[1] == math.inf


def test_what_tells_requests_apart() -> None:
    same = request_digest("POST", URL, BODY)
    assert (
        request_digest(
            "POST", "http://127.0.0.1:9/v2/embed", b'{"texts":["ma\\u00e7\\u00e3","two"],"model":"m"}'
        )
        == same
    )
    others = {
        request_digest("GET", URL, BODY),
        request_digest("POST", URL + "/x", BODY),
        request_digest("POST", URL + "?a=1", BODY),
        request_digest("POST", URL, None),
        request_digest("POST", URL, b'{"texts":["two","ma\\u00e7\\u00e3"],"model":"m"}'),
        request_digest("POST", URL, json.dumps({"texts": ["\ud800"]}).encode()),
    }
    assert len(others | {same}) == 7


def test_only_what_would_be_answered_again_is_kept(tmp_path: Path) -> None:
    for reply in (
        (429, {}, b"slow"),
        (503, {}, b""),
        (401, {}, KEY.encode()),
        (403, {}, b""),
        (200, {}, b"<html>"),
    ):
        Recorder(Scripted(reply), tmp_path)("POST", URL, {}, BODY)
    with pytest.raises(WireError):
        Recorder(Scripted(WireError("broke")), tmp_path)("POST", URL, {}, BODY)
    assert files(tmp_path) == []
    Recorder(Scripted((400, {}, b'{"message": "too many"}')), tmp_path)("POST", URL, {}, BODY)
    assert Replayer(tmp_path)("POST", URL, {}, BODY) == (400, {}, b'{"message": "too many"}')
    Recorder(Scripted(good({"rows": 1})), tmp_path)("POST", URL, {}, BODY)
    Recorder(Scripted((500, {}, b"moment")), tmp_path)("POST", URL, {}, BODY)
    assert json.loads(Replayer(tmp_path)("POST", URL, {}, BODY)[2]) == {"rows": 1}


@pytest.mark.parametrize("key", [KEY, 'Zq7"vKp2\\mXw9rTb4', "sk-é" + KEY])
def test_no_piece_of_a_key_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("COHERE_API_KEY", key)
    headers = {"authorization": f"Bearer {key}"}
    refusal = json.dumps({"message": f"wrong key {key[:9]}…{key[-9:]} or {key}"}, ensure_ascii=False).encode()
    Recorder(Scripted((400, {"x-key": key}, refusal)), tmp_path)("POST", URL, headers, BODY)
    texts = json.dumps({"texts": [f"my key is {key}"]}).encode()
    Recorder(Scripted(good({"echo": [{"said": key}]})), tmp_path)("POST", URL, headers, texts)
    assert len(files(tmp_path)) == 2
    for file in files(tmp_path):
        shown = file.read_text() + repr(json.loads(file.read_text()))
        assert not [i for i in range(len(key) - 7) if key[i : i + 8] in shown]
        assert "***" in shown, "nothing was masked, so nothing was tested"


def test_a_missing_recording_names_the_request_and_the_command(tmp_path: Path) -> None:
    replayer = Replayer(tmp_path)
    with pytest.raises(MissingRecordingError) as error:
        replayer("POST", URL, {}, BODY)
    said = str(error.value)
    assert "POST /v2/embed of m with 2 texts, the first 'maçã', was not recorded" in said
    assert f"bench run --record {tmp_path}" in said
    assert isinstance(error.value, PermanentError), "a missing recording must not be asked for again"
    with pytest.raises(MissingRecordingError, match="GET /api/tags was not recorded"):
        replayer("GET", "http://x/api/tags", {}, None)


@pytest.mark.parametrize("text", ["", "[]", '{"status": "x", "answer": 1}', '{"status": 200}', "{"])
def test_a_damaged_recording_is_named(tmp_path: Path, text: str) -> None:
    Recorder(Scripted(good({})), tmp_path)("POST", URL, {}, BODY)
    [file] = files(tmp_path)
    file.write_text(text)
    with pytest.raises(MissingRecordingError, match=f"{file.name} is damaged"):
        Replayer(tmp_path)("POST", URL, {}, BODY)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        Recorder(Scripted(good({})), tmp_path)("POST", URL, {}, BODY)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidArgumentError, match=f"bench run --record {folder}"):
            check_folder(folder)
    Recorder(Scripted(good({})), tmp_path)("POST", URL, {}, BODY)
    check_folder(tmp_path)


def test_the_variables() -> None:
    assert (record_to({"RAG_RECORD": " a "}), replay_from({"RAG_REPLAY": "b"})) == ("a", "b")
    assert (record_to({}), replay_from({"RAG_RECORD": "a"})) == ("", "")


def test_a_service_answered_from_recordings_needs_no_key_and_no_package() -> None:
    registry = Registry("embedding provider")
    spec = Spec(
        "x", "m", "api", 4, "x:load", requires=("no_such_package",), env=("X_KEY",), missing="x:missing"
    )
    registry.add(spec)
    assert not registry.availability(spec, {}).ok
    answer = registry.availability(spec, {"RAG_REPLAY": "kept"})
    assert answer.ok
    assert "recordings in kept" in answer.reason
    local = Spec("y", "m", "cpu", 4, "x:load", requires=("no_such_package",))
    assert not registry.availability(local, {"RAG_REPLAY": "kept"}).ok

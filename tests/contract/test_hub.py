"""Fetching weights with the real huggingface_hub, from a server here that speaks the hub's wire format.

Format: https://huggingface.co/docs/hub/api (model info with ``siblings``), and the headers of a file that
the library reads: ``ETag``, ``X-Repo-Commit``, ``Content-Length`` (huggingface_hub 2.4, November 2026).
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import perf_counter

import pytest

from providers import _hub
from providers._folders import find_folder, missing
from providers._hub import can_fetch, fetch, is_offline
from rag_core.errors import ProviderError, ProviderUnavailableError
from rag_core.progress import listening
from rag_core.registry import Registry, Spec

pytest.importorskip("huggingface_hub", reason="the hub's own package is not installed")

MODEL = "acme/tiny"
COMMIT = "c" * 40
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 40,
    "pytorch_model.bin": b"not wanted" * 1000,
    "README.md": b"# tiny",
}
SPEC = Spec(
    "tiny", MODEL, "cpu", 0, "x:y", missing="providers._folders:missing", fetch="providers._hub:can_fetch"
)


class Hub(BaseHTTPRequestHandler):
    """One model; ``broken`` names a file whose content never arrives whole."""

    broken = ""
    asked: list[str]

    def log_message(self, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        if path.startswith(f"/api/models/{MODEL}/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in FILES.items()
            ]
            self._send(200, json.dumps(tree).encode(), with_body, {"Content-Type": "application/json"})
            return
        if path == f"/api/models/{MODEL}" or path.startswith(f"/api/models/{MODEL}/revision/"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in FILES.items()]
            info = {"id": MODEL, "modelId": MODEL, "sha": COMMIT, "siblings": siblings, "private": False}
            self._send(200, json.dumps(info).encode(), with_body, {"Content-Type": "application/json"})
            return
        name = path.rpartition("/")[2]
        if f"/{MODEL}/resolve/" not in path or name not in FILES:
            self._send(404, b"{}", with_body, {"X-Error-Code": "RepoNotFound"})
            return
        data = FILES[name]
        etag = hashlib.sha256(data).hexdigest()
        self._send(200, data, with_body, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, name == self.broken)

    def _send(
        self, status: int, data: bytes, with_body: bool, headers: dict[str, str], cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a user of the server."""
    Hub.asked, Hub.broken = [], ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "RAG_MODELS_DIR"):
        monkeypatch.delenv(name, raising=False)
    env = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(tmp_path / "hub")}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    yield env
    server.shutdown()
    server.server_close()


def test_a_first_download_says_its_size_and_progress(
    hub: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, int, int]] = []
    with listening(lambda *said: seen.append(said)), caplog.at_level(logging.WARNING, "rag_core"):
        folder = find_folder(SPEC, MODEL, env=hub)
    total = sum(len(FILES[name]) for name in ("config.json", "tokenizer.json", "model.safetensors"))
    assert {file.name for file in folder.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert f"downloading {MODEL} (3 files, 0.0 MB) into" in caplog.text
    assert seen[0] == (f"download {MODEL}", 0, total)
    assert seen[-1] == (f"download {MODEL}", total, total)


def test_what_is_on_disk_is_not_asked_for_again(hub: dict[str, str]) -> None:
    first = find_folder(SPEC, MODEL, env=hub)
    Hub.asked.clear()
    assert find_folder(SPEC, MODEL, env=hub) == first
    assert find_folder(SPEC, MODEL, env={**hub, "HF_HUB_OFFLINE": "1"}) == first
    assert Hub.asked == []


def test_detection_knows_that_it_can_be_fetched_and_asks_nobody(hub: dict[str, str]) -> None:
    registry = Registry("embedding provider")
    registry.add(SPEC)
    answer = registry.availability(SPEC, hub)
    assert answer.ok
    assert not answer.is_ready
    assert not answer.at_once
    assert answer.reason == "weights are downloaded at first use"
    offline = registry.availability(SPEC, {**hub, "HF_HUB_OFFLINE": "1"})
    assert not offline.ok
    assert offline.reason.startswith(f"no weights of {MODEL}; looked in: ")
    assert Hub.asked == []
    find_folder(SPEC, MODEL, env=hub)
    assert missing(SPEC) == ""
    assert registry.availability(SPEC, hub).at_once


def test_a_model_that_the_hub_has_not(hub: dict[str, str]) -> None:
    with pytest.raises(ProviderUnavailableError, match=r"acme/other on disk .* does not give it"):
        find_folder(SPEC, "acme/other", env=hub)


def test_a_broken_download_is_an_error_and_leaves_no_folder_that_counts(hub: dict[str, str]) -> None:
    Hub.broken = "model.safetensors"
    with pytest.raises(ProviderError, match=r"broke off .* run the same command again"):
        find_folder(SPEC, MODEL, env=hub)
    assert missing(SPEC)
    Hub.broken = ""
    assert (find_folder(SPEC, MODEL, env=hub) / "model.safetensors").is_file()


def test_offline_never_opens_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O15: absent and offline is said at once, with the model and the folders."""

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    started = perf_counter()
    with pytest.raises(ProviderUnavailableError, match=rf"of {MODEL}; looked in: .*models--acme--tiny"):
        find_folder(SPEC, MODEL, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert perf_counter() - started < 5  # the promise itself, not a speed


def test_a_network_that_does_not_answer_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "CONNECT_S", 0.2)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
    env = {"HF_ENDPOINT": f"http://127.0.0.1:{listener.getsockname()[1]}", "HF_HOME": str(tmp_path)}
    with pytest.raises(ProviderUnavailableError, match=r"hub cannot be reached .*tiny\?path=FOLDER"):
        fetch(SPEC, MODEL, ("*.json",), ["/nowhere"], env)
    listener.close()


@pytest.mark.parametrize("value, offline", [("1", True), ("true", True), ("0", False), ("", False)])
def test_offline_as_the_hubs_own_package_reads_it(value: str, offline: bool) -> None:
    assert is_offline({"HF_HUB_OFFLINE": value}) is offline
    assert can_fetch(SPEC, {"HF_HUB_OFFLINE": value}) is not offline
    assert not can_fetch(Spec("t", "any", "cpu", 0, "x:y"), {})

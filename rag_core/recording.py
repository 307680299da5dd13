"""What services answered, kept in a folder and answered again from it: no network, no keys, the same figures.

A pair of request and answer is one JSON file, named by the SHA-256 of the method, the path of the address and
the body; the server's name and port are no part of it. It holds the texts that were sent, and no key: headers
are not kept at all, and in refusals every piece of a key is masked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rag_core.errors import InvalidArgumentError, PermanentError
from rag_core.secrets import hide_pieces, is_secret_name, redact
from rag_core.wire import Reply, Send

__all__ = [
    "RECORD",
    "REPLAY",
    "MissingRecordingError",
    "Recorder",
    "Replayer",
    "check_folder",
    "record_to",
    "replay_from",
    "request_digest",
]

#: Environment variables that name the folder to keep answers in, and the one to answer from.
RECORD, REPLAY = "RAG_RECORD", "RAG_REPLAY"
#: Refusals that the same request meets again. Those of the moment, and those that depend on the key, are not
#: kept.
LASTING = frozenset({400, 404, 413, 422, 500})
SHOWN_CHARS = 60


class MissingRecordingError(PermanentError):
    """The folder to answer from holds no answer to a request."""


def record_to(env: Mapping[str, str] | None = None) -> str:
    """The folder to keep answers in; empty where none is asked for."""
    return (os.environ if env is None else env).get(RECORD, "").strip()


def replay_from(env: Mapping[str, str] | None = None) -> str:
    """The folder to answer from; empty where services are to be asked."""
    return (os.environ if env is None else env).get(REPLAY, "").strip()


def check_folder(folder: str | Path) -> None:
    """Raise InvalidArgumentError unless ``folder`` holds recordings."""
    if not any(Path(folder).glob("??/*.json")):
        raise InvalidArgumentError(
            f"{folder} holds no recordings; accepted: a folder made with: bench run --record {folder}"
        )


def request_digest(method: str, url: str, body: bytes | None) -> str:
    """64 hexadecimal digits that tell a request from every other; equal JSON values count as equal."""
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    head = f"{method}\n{path}\n".encode()
    return hashlib.sha256(head + _canonical(_json(body)).encode("utf-8", "surrogatepass")).hexdigest()


class Recorder:
    """A :data:`~rag_core.wire.Send` around another one that keeps what it answers; safe for many threads."""

    def __init__(self, send: Send, folder: str | Path) -> None:
        self._send, self._folder = send, Path(folder)
        self.close = getattr(send, "close", lambda: None)

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """Send, and keep the answer where the same request would be answered so again.

        Raises:
            WireError: no whole answer; nothing is kept.
        """
        status, found, raw = self._send(method, url, headers, body)
        file = _file(self._folder, request_digest(method, url, body))
        if 200 <= status < 300:
            with contextlib.suppress(ValueError):  # no JSON: the transport asks again
                self._keep(file, method, url, body, status, _json(raw))
        elif status in LASTING and not file.exists():  # a good answer to the same request is better
            said = raw.decode("utf-8", "replace")
            for variable, value in os.environ.items():
                if is_secret_name(variable):
                    said = hide_pieces(said, value)
            self._keep(file, method, url, body, status, said)
        return status, found, raw

    def _keep(self, file: Path, method: str, url: str, body: bytes | None, status: int, answer: Any) -> None:
        try:
            kept = {"status": status, "answer": answer}
            text = _pretty(method, url, body, kept)
        except ValueError:  # NaN in the answer, which strict JSON cannot hold
            kept = {"status": status, "answer": json.dumps(answer)}
            text = _pretty(method, url, body, kept)
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.replace(temporary, file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class Replayer:
    """A :data:`~rag_core.wire.Send` that answers from a folder alone."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """The recorded answer.

        Raises:
            MissingRecordingError: there is none, or its file is damaged.
        """
        digest = request_digest(method, url, body)
        file = _file(self._folder, digest)
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            status, answer = int(kept["status"]), kept["answer"]
        except FileNotFoundError:
            self._missing(method, url, body, f"holds no answer to it ({digest[:12]})")
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._missing(method, url, body, f"{file.name} is damaged ({type(error).__name__})")
        return status, {}, (answer if isinstance(answer, str) else json.dumps(answer)).encode()

    def _missing(self, method: str, url: str, body: bytes | None, problem: str) -> NoReturn:
        value = _json(body)
        fields = value if isinstance(value, Mapping) else {}
        lists = [item for item in fields.values() if isinstance(item, list) and item]
        texts = lists[0] if lists else []
        of = f" of {fields['model']}" if "model" in fields else ""
        first = " ".join(str(texts[0])[:SHOWN_CHARS].split()) if texts else ""
        with_texts = f" with {len(texts)} texts, the first {first!r}," if texts else ""
        raise MissingRecordingError(
            f"replay: {method} {urlsplit(url).path}{of}{with_texts} was not recorded: {self._folder} "
            f"{problem}; record it with the same options: bench run --record {self._folder}"
        )


def _file(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / f"{digest[2:]}.json"


def _json(raw: bytes | None) -> Any:
    """``raw`` as a JSON value; NaN and infinities as Python reads them."""
    return json.loads(raw) if raw else None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _pretty(method: str, url: str, body: bytes | None, kept: Mapping[str, Any]) -> str:
    """The file's text.

    Raises:
        ValueError: a number that strict JSON cannot hold.
    """
    values = {"method": method, "path": urlsplit(url).path, "body": _json(body), **kept}
    return json.dumps(_without_keys(values), allow_nan=False, sort_keys=True) + "\n"


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return value if value and isinstance(value[0], float) else [_without_keys(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _without_keys(item) for name, item in value.items()}
    return value

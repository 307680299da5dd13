"""A server on this machine that speaks the embedding services' formats, and fails on demand.

::

    with FaultServer(dim=1024) as server:
        server.plan(Fault(status=429, headers={"Retry-After": "3"}), None)
        provider = get_embedder(f"cohere?base_url={server.url('cohere')}")

Wire formats, read in November 2026: https://platform.openai.com/docs/api-reference/embeddings,
https://docs.cohere.com/reference/embed (v2), https://docs.voyageai.com/reference/embeddings-api,
https://jina.ai/embeddings (OpenAPI), https://docs.ollama.com/api/embed, and the parsers of the clients
openai 3.57, cohere 7.3, voyageai 0.5, ollama 0.6.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from rag_core.protocols import Vectors

__all__ = ["SERVICES", "Answer", "Fault", "FaultServer", "Request", "Route", "vector_of"]

#: Name -> path of its base URL on the server.
SERVICES = {
    "cohere": "/cohere",
    "jina": "/jina/v1",
    "ollama": "/ollama",
    "openai": "/openai/v1",
    "voyage": "/voyage/v1",
}
ROW_FAULTS = ("reordered", "short", "duplicate", "nan", "null", "zero", "width")


def vector_of(text: str, dim: int, role: str = "") -> Vectors:
    """The server's vector of ``text``: float32 ``(dim,)``, of a length from 1 to 20, the same every time."""
    seed = int.from_bytes(hashlib.sha256(f"{role}\0{text}".encode("utf-8", "replace")).digest()[:8], "little")
    raw = np.random.default_rng(seed).normal(size=dim)
    return np.asarray(raw * ((1 + seed % 20) / np.linalg.norm(raw)), np.float32)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one answer.

    Attributes:
        status: answered in place of vectors, with the service's form of error; 0 for vectors.
        message: what that error says.
        headers: added to the answer.
        delay_s: passes before anything is answered.
        kind: ``reset`` (the connection breaks), ``cut`` (half the body), ``garbage`` (no JSON), or what is
            wrong with the vectors: one of ``reordered``, ``short``, ``duplicate``, ``nan``, ``null``,
            ``zero``, ``width``. Formats without an index cannot show ``reordered``.
    """

    status: int = 0
    message: str = "a planned fault"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What the server received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts of an embedding request."""
        found = self.body.get("texts", self.body.get("input", []))
        return [found] if isinstance(found, str) else list(found)


class Answer(NamedTuple):
    """An answer before faults: rows of (index, value), and how the service writes them."""

    rows: list[tuple[int, Any]]
    write: Callable[[list[tuple[int, Any]]], Any]


Route = Callable[[Request], Answer]


class FaultServer:
    """Speaks every format of :data:`SERVICES`; more of them go into :attr:`routes`.

    Attributes:
        dim: width of the vectors, where a request does not ask for another.
        key: what ``Authorization: Bearer`` must hold; empty to take any.
        max_texts, max_tokens, max_text_tokens: of a request, of a request, of a text; a token is a word;
            0 for no limit. Beyond it: HTTP 400.
        models: names that ``GET /ollama/api/tags`` lists.
        routes: path -> what answers a POST to it.
        requests: everything received, in order.
        choose: asked for the fault of every request that has none planned.
    """

    def __init__(self, dim: int = 16, key: str = "") -> None:
        self.dim, self.key = dim, key
        self.max_texts = self.max_tokens = self.max_text_tokens = 0
        self.models = ["nomic-embed-text:latest"]
        self.routes: dict[str, Route] = {
            "/cohere/v2/embed": self._cohere,
            "/jina/v1/embeddings": self._listed,
            "/openai/v1/embeddings": self._listed,
            "/voyage/v1/embeddings": self._listed,
            "/ollama/api/embed": self._ollama,
        }
        self.requests: list[Request] = []
        self.choose: Callable[[Request], Fault | None] = lambda request: None
        self._planned: deque[Fault | None] = deque()
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._http = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._http.server_port)

    def url(self, service: str) -> str:
        """The base URL of ``service``, one of :data:`SERVICES`."""
        return f"http://127.0.0.1:{self.port}{SERVICES[service]}"

    def plan(self, *faults: Fault | None) -> None:
        """The next requests get these faults, one each; None for a good answer."""
        with self._lock:
            self._planned.extend(faults)

    def __enter__(self) -> FaultServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def receive(self, request: Request) -> tuple[Fault, int, Any]:
        """Fault, status and JSON value of the answer to ``request``."""
        with self._lock:
            self.requests.append(request)
            fault = self._planned.popleft() if self._planned else self.choose(request)
        fault = fault or Fault()
        if fault.delay_s:
            self._closing.wait(fault.delay_s)
        if fault.status:
            return fault, fault.status, self._error(request, fault.message)
        if request.method == "GET":
            listed = {"models": [{"name": name, "model": name} for name in self.models]}
            return (fault, 200, listed) if request.path == "/ollama/api/tags" else (fault, 404, {})
        refusal = self._refusal(request)
        if refusal:
            return fault, refusal[0], self._error(request, refusal[1])
        answer = self.routes[request.path](request)
        return fault, 200, answer.write(_damaged(answer.rows, fault.kind))

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key and sent != self.key:
            return 401, f"Incorrect API key provided: {sent[:8]}{'*' * 8}{sent[-4:]}. Or was it {sent}?"
        if request.path not in self.routes:
            return 404, f"no route {request.path}"
        sizes = [len(text.split()) for text in request.texts]
        if any(not text.strip() for text in request.texts):
            return 400, "input is invalid"
        if self.max_texts and len(sizes) > self.max_texts:
            return 400, f"at most {self.max_texts} texts a request, got {len(sizes)}"
        if self.max_text_tokens and max(sizes, default=0) > self.max_text_tokens:
            return 400, f"a text has {max(sizes)} tokens, the maximum is {self.max_text_tokens}"
        if self.max_tokens and sum(sizes) > self.max_tokens:
            return 400, f"max tokens per batch is {self.max_tokens}, got {sum(sizes)}"
        return None

    def _error(self, request: Request, message: str) -> Any:
        service = request.path.split("/")[1] if "/" in request.path else ""
        forms: dict[str, Any] = {
            "openai": {"error": {"message": message, "type": "invalid_request_error", "code": None}},
            "cohere": {"id": "0", "message": message},
            "ollama": {"error": message},
        }
        return forms.get(service, {"detail": message})

    def _rows(self, request: Request, role: str) -> list[tuple[int, Vectors]]:
        body = request.body
        width = int(body.get("dimensions") or body.get("output_dimension") or 0)
        rows = [vector_of(text, self.dim, role) for text in request.texts]
        return [(i, row[: width or None]) for i, row in enumerate(rows)]

    def _listed(self, request: Request) -> Answer:
        """Jina, OpenAI, Voyage: objects with ``index`` and ``embedding``."""
        body, used = request.body, sum(len(text.split()) for text in request.texts)
        is_base64 = "base64" in (body.get("encoding_format"), body.get("embedding_type"))

        def write(rows: list[tuple[int, Any]]) -> Any:
            data = [
                {"object": "embedding", "index": i, "embedding": _base64(v) if is_base64 else _plain(v)}
                for i, v in rows
            ]
            usage = {"prompt_tokens": used, "total_tokens": used}
            return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}

        return Answer(self._rows(request, str(body.get("task") or body.get("input_type") or "")), write)

    def _cohere(self, request: Request) -> Answer:
        used = sum(len(text.split()) for text in request.texts)

        def write(rows: list[tuple[int, Any]]) -> Any:
            billed = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": used}}
            floats = [_plain(v) for _, v in rows]
            return {
                "id": "0",
                "response_type": "embeddings_by_type",
                "embeddings": {"float": floats},
                "texts": request.texts,
                "meta": billed,
            }

        return Answer(self._rows(request, str(request.body.get("input_type"))), write)

    def _ollama(self, request: Request) -> Answer:
        used = sum(len(text.split()) for text in request.texts)

        def write(rows: list[tuple[int, Any]]) -> Any:
            vectors = [_plain(v) for _, v in rows]
            return {"model": request.body.get("model"), "embeddings": vectors, "prompt_eval_count": used}

        return Answer(self._rows(request, ""), write)


def _plain(vector: Any) -> Any:
    return [float(x) if x is not None else None for x in vector]


def _base64(vector: Any) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()


def _damaged(rows: list[tuple[int, Any]], kind: str) -> list[tuple[int, Any]]:
    """``rows`` with the damage of ``kind``, one of ``ROW_FAULTS``."""
    if kind not in ROW_FAULTS or not rows:
        return rows
    middle = len(rows) // 2
    index, vector = rows[middle]
    spoilt = (index, _spoilt(vector, kind))
    changed: dict[str, Sequence[tuple[int, Any]]] = {
        "reordered": [*rows[2:], *rows[:2]][::-1] if len(rows) > 2 else rows[::-1],
        "short": rows[:middle] + rows[middle + 1 :],
        "duplicate": [*rows[:-1], (rows[0][0], rows[-1][1])],
        "width": [(i, _spoilt(v, kind)) for i, v in rows],
    }
    return list(changed.get(kind, [*rows[:middle], spoilt, *rows[middle + 1 :]]))


def _spoilt(value: Any, kind: str) -> Any:
    """A vector, or the score of another route, with the damage of ``kind``."""
    first = {"nan": float("nan"), "null": None}
    if np.ndim(value) == 0:
        return first.get(kind, 0.0)
    return {"zero": [0.0] * len(value), "width": value[:-1]}.get(kind, [first.get(kind), *value[1:]])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""


def _handler(server: FaultServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args: object) -> None:
            return

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(json.loads(raw or b"{}"))

        def _answer(self, body: Mapping[str, Any]) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault, status, value = server.receive(Request(self.command, self.path, headers, body))
            if fault.kind == "reset":
                # a linger of 0 s makes the close a reset
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            data = b"<html>no JSON</html>" if fault.kind == "garbage" else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"Content-Type": "application/json", **fault.headers}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if fault.kind == "cut" else data)
            if fault.kind == "cut":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

    return Handler
